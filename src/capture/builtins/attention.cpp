// Functions of attention's scores (flex_attention's score_mod and mask_mod): evaluated once on numbers, as functions
// without effects, and handed on as a graph. See python/braze/polyfills/_attention.py.
#include <utility>

#include "capture/builtins/builtins.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "launch/operators.h"
#include "trace/global_state.h"

namespace braze::capture {
namespace {

struct InScoreFunction {
  explicit InScoreFunction(Translator& t) : tr(t), before(std::exchange(t.in_score_function, true)) {}
  ~InScoreFunction() { tr.in_score_function = before; }
  Translator& tr;
  bool before;
};

// score_function(function, arguments)
Variable* score_function(Translator& tr, Args& a) {
  if (a.size() != 2 || !a.kw.empty()) return nullptr;
  if (tr.view().torch_level) tr.unsupported("flex_attention in a graph for another backend");
  if (tr.host.in_callback()) tr.unsupported("flex_attention in a function that PyTorch calls");
  const char* what = "a score_mod or mask_mod of flex_attention";
  Effects::PurePart pure(tr.effects, tr.ordinal(), what);
  InScoreFunction inside(tr);
  uint64_t state = trace::global_state_key();
  std::vector<PyObject*> before;
  for (const auto& v : tr.all())
    if (v->is(Kind::Tensor) && v->as<TensorVariable>()->fake) before.push_back(v->as<TensorVariable>()->fake.get());
  size_t writes = tr.tracer().begin_branch(before).writes;
  try {
    Variable* result = tr.call(a[0], tr.unpack(a[1]));
    if (!tr.force(result)->is(Kind::Tensor)) tr.unsupported(std::string(what) + " that gives no tensor");
    if (trace::global_state_key() != state)
      tr.unsupported(std::string(what) + " that leaves a mode of PyTorch changed");
    if (tr.tracer().begin_branch(before).writes != writes)
      tr.unsupported(std::string(what) + " that writes to a tensor that was there before");
    return result;
  } catch (const PyRaise&) {
    tr.unsupported(std::string(what) + " that raises an exception");
  }
}

// cut_scores(inputs, outputs): the text of the functions' graph, and its operands.
Variable* cut_scores(Translator& tr, Args& a) {
  if (a.size() != 2 || !a.kw.empty()) return nullptr;
  std::vector<Ref> owned;
  auto fakes = [&](Variable* list) {
    std::vector<PyObject*> out;
    for (Variable* v : tr.unpack(list)) {
      v = tr.force(v);
      owned.push_back(v->is(Kind::Tensor) ? Ref::borrow(v->as<TensorVariable>()->value(tr)) : Ref::borrow(Py_None));
      out.push_back(owned.back().get());
    }
    return out;
  };
  std::vector<PyObject*> inputs = fakes(a[0]), outputs = fakes(a[1]);
  tr.mutate();
  Ref made = Ref::steal(tr.tracer().score_graph(inputs, outputs));
  if (!made) tr.raise_current();
  return tr.from_python(std::move(made), Ground::pure(a));
}

// not_captured(reason)
Variable* not_captured(Translator& tr, Args& a) {
  Ref reason = a.size() == 1 ? tr.real.to_python(a[0]) : Ref();
  const char* text = reason && PyUnicode_Check(reason.get()) ? PyUnicode_AsUTF8(reason.get()) : nullptr;
  tr.unsupported(text ? text : "flex_attention");
}

// What cannot be captured of it breaks the graph here, at the call as a whole.
Variable* attention(Translator& tr, Args& a) {
  launch::flex::register_operators();
  return tr.call(tr.real.polyfill("flex_attention"), a);
}

}  // namespace

void register_attention_builtins() {
  register_builtin("braze.polyfills", "not_captured", not_captured);
  register_builtin("braze.polyfills", "score_function", score_function);
  register_builtin("braze.polyfills", "cut_scores", cut_scores);
  register_builtin(pytorch::Name::FlexAttentionHOP_call, attention);
}

}  // namespace braze::capture
