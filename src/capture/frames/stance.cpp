#include "capture/frames/stance.h"

#include <iterator>
#include <string_view>

#include "capture/eval/markers.h"
#include "trace/pytorch/names.h"

namespace braze::capture {

namespace {

struct Row {
  std::string_view name;
  Stance stance;
};
constexpr Row kStances[] = {{"default", Stance::Default},
                            {"force_eager", Stance::ForceEager},
                            {"eager_on_recompile", Stance::EagerOnRecompile},
                            {"fail_on_recompile", Stance::FailOnRecompile},
                            {"eager_then_compile", Stance::EagerThenCompile},
                            {"aot_eager_then_compile", Stance::EagerThenCompile}};
size_t g_stance = 0;
constexpr size_t kPyTorchsLimit = 8;  // by default

Stance named(std::string_view name) {
  for (const Row& r : kStances)
    if (r.name == name) return r.stance;
  return Stance::Default;
}

Ref key(PyObject* config, const char* name) {
  Ref v = Ref::steal(PyObject_GetAttrString(config, name));
  if (!v) PyErr_Clear();
  return v;
}

}  // namespace

Stance stance() {
  if (g_stance) return kStances[g_stance].stance;
  // PyTorch makes an object for each; the one that was seen last is kept.
  static PyObject* last = nullptr;
  static Stance last_stance = Stance::Default;
  Ref now = Ref::steal(pytorch::loaded(pytorch::Name::stance));
  if (!now || now.get() == last) return now ? last_stance : Stance::Default;
  Ref name = key(now.get(), "stance");
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  last_stance = named(text ? text : "");
  Py_XSETREF(last, Py_NewRef(now.get()));
  return last_stance;
}

std::string set_stance(const std::string& name) {
  for (size_t i = 0; i < std::size(kStances); ++i)
    if (kStances[i].name == name) return std::string(kStances[std::exchange(g_stance, i)].name);
  return {};
}

std::string stance_names() {
  std::string all;
  for (const Row& r : kStances) all += (all.empty() ? "" : ", ") + std::string(r.name);
  return all;
}

bool breaks_are_errors() {
  UntracedScope untraced;
  return Ref::steal(pytorch::loaded(pytorch::Name::error_on_graph_break)).get() == Py_True;
}

TorchConfig torch_config() {
  TorchConfig out;
  UntracedScope untraced;
  Ref config = Ref::steal(pytorch::loaded(pytorch::Name::dynamo_config));
  if (!config) return out;
  auto is = [&](const char* name, PyObject* value) { return key(config.get(), name).get() == value; };
  if (Ref limit = key(config.get(), "recompile_limit"); limit && PyLong_Check(limit.get())) {
    size_t n = PyLong_AsSize_t(limit.get());
    if (PyErr_Occurred())
      PyErr_Clear();
    else if (n != kPyTorchsLimit)
      out.recompile_limit = n;
  }
  out.numbers = is("capture_scalar_outputs", Py_True);
  out.fail = is("error_on_recompile", Py_True);
  out.off = is("disable", Py_True);
  if (is("automatic_dynamic_shapes", Py_False)) out.dynamic = Dynamic::Never;
  if (is("assume_static_by_default", Py_False)) out.dynamic = Dynamic::Always;
  return out;
}

}  // namespace braze::capture
