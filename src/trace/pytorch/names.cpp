#include "trace/pytorch/names.h"

#include <torch/version.h>

#include <array>
#include <atomic>
#include <stdexcept>

#include "base/check.h"

namespace braze::pytorch {
namespace {

constexpr NameRow kRows[] = {
#define BRAZE_PYTORCH_NAME(name, module, path, need) {#name, module, path, Need::need},
#include "trace/pytorch/names.def"
#undef BRAZE_PYTORCH_NAME
};

enum class Holder : uint8_t { Tensor, Module, ModuleClass, Modules, Storage, Optimizer, Mark };
struct AttributeRow {
  const char* text;
  Holder holder;
};
constexpr AttributeRow kAttributes[] = {
#define BRAZE_PYTORCH_ATTRIBUTE(name, text, holder) {text, Holder::holder},
#include "trace/pytorch/attributes.def"
#undef BRAZE_PYTORCH_ATTRIBUTE
};

class Owned {
 public:
  explicit Owned(PyObject* object) : object_(object) {}
  ~Owned() { Py_XDECREF(object_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_; }

 private:
  PyObject* object_;
};

// New reference; nullptr without a Python exception. A module that nobody imported is imported only if `import`.
PyObject* look_up(const char* module, const char* path, bool import) {
  PyObject* at = Py_XNewRef(PyDict_GetItemString(PyImport_GetModuleDict(), module));
  if (!at && import) at = PyImport_ImportModule(module);
  std::string rest = path;
  while (at && !rest.empty()) {
    size_t dot = rest.find('.');
    std::string head = rest.substr(0, dot);
    rest = dot == std::string::npos ? "" : rest.substr(dot + 1);
    PyObject* next = PyObject_GetAttrString(at, head.c_str());
    Py_DECREF(at);
    at = next;
  }
  if (!at) PyErr_Clear();
  return at;
}

bool is_imported(const char* module) { return PyDict_GetItemString(PyImport_GetModuleDict(), module) != nullptr; }

std::string spelled(const NameRow& row) {
  return *row.path ? std::string(row.module) + "." + row.path : std::string(row.module);
}

bool of_this_build(const NameRow& row) {
  if (row.need != Need::OfCuda) return true;
  Owned cuda(look_up("torch.version", "cuda", true));
  return cuda && cuda.get() != Py_None;
}

bool lacks(const NameRow& row) { return !Owned(look_up(row.module, row.path, row.need == Need::Needed)); }

// What has an attribute, looked up once for all.
struct Holders {
  Owned optimizer{look_up("torch.optim", "SGD", true)}, tensor{look_up("torch", "Tensor", true)},
      storage{look_up("torch", "UntypedStorage", true)}, modules{look_up("torch.nn.modules.module", "", true)},
      module_class{look_up("torch.nn", "Module", true)},
      module{module_class ? PyObject_CallNoArgs(module_class.get()) : nullptr};

  PyObject* of(Holder holder) const {
    switch (holder) {
      case Holder::Tensor: return tensor.get();
      case Holder::Storage: return storage.get();
      case Holder::Optimizer: return optimizer.get();
      case Holder::Modules: return modules.get();
      case Holder::ModuleClass: return module_class.get();
      case Holder::Module: return module.get();
      case Holder::Mark: break;
    }
    return nullptr;
  }
};
constexpr const char* kHolderNames[] = {"torch.Tensor",
                                        "torch.nn.Module()",
                                        "torch.nn.Module",
                                        "torch.nn.modules.module",
                                        "torch.UntypedStorage",
                                        "torch.optim.SGD",
                                        ""};

bool lacks(const Holders& holders, const AttributeRow& row) {
  if (row.holder == Holder::Mark) return false;
  PyObject* holder = holders.of(row.holder);
  bool has = holder && PyObject_HasAttrString(holder, row.text);
  PyErr_Clear();
  return !has;
}

std::string version_now() {
  Owned version(look_up("torch.version", "__version__", true));
  Owned text(version ? PyObject_Str(version.get()) : nullptr);
  const char* chars = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (!chars) PyErr_Clear();
  return chars ? chars : "unknown";
}

[[noreturn]] void refuse(const std::string& what) {
  const std::string built = TORCH_VERSION;
  throw std::runtime_error("braze: built for PyTorch " + built + ", but this is " + version_now() + ", " + what +
                           ": install torch==" + built);
}

}  // namespace

const NameRow& row(Name name) { return kRows[static_cast<size_t>(name)]; }

PyObject* loaded(Name name) {
  // Asked in every call of compiled code: texts that are interned have their hash.
  static std::array<PyObject*, std::size(kRows)> modules{}, paths{};
  const size_t i = static_cast<size_t>(name);
  if (!modules[i]) {
    modules[i] = PyUnicode_InternFromString(kRows[i].module);
    paths[i] = PyUnicode_InternFromString(kRows[i].path);
  }
  PyObject* module = modules[i] ? PyDict_GetItemWithError(PyImport_GetModuleDict(), modules[i]) : nullptr;
  if (!module || !*kRows[i].path) return Py_XNewRef(module);
  PyObject* found = PyModule_CheckExact(module)
                        ? Py_XNewRef(PyDict_GetItemWithError(PyModule_GetDict(module), paths[i]))
                        : PyObject_GetAttr(module, paths[i]);
  if (!found) PyErr_Clear();
  return found;
}

PyObject* get(Name name) {
  static std::array<std::atomic<PyObject*>, std::size(kRows)> found{};
  std::atomic<PyObject*>& slot = found[static_cast<size_t>(name)];
  if (PyObject* known = slot.load(std::memory_order_acquire)) return known;
  PyObject* object = look_up(row(name).module, row(name).path, true);
  if (!object) throw Unsupported(Reason::PyTorchLacks, spelled(row(name)) + ", in " + version_now());
  slot.store(object, std::memory_order_release);  // the process keeps the reference
  return object;
}

PyTypeObject* get_type(Name name) {
  PyObject* type = get(name);
  if (!PyType_Check(type)) throw Unsupported(Reason::PyTorchLacks, spelled(row(name)) + " as a class");
  return reinterpret_cast<PyTypeObject*>(type);
}

const char* text(Attribute attribute) { return kAttributes[static_cast<size_t>(attribute)].text; }

PyObject* interned(Attribute attribute) {
  static std::array<std::atomic<PyObject*>, std::size(kAttributes)> made{};
  std::atomic<PyObject*>& slot = made[static_cast<size_t>(attribute)];
  if (PyObject* known = slot.load(std::memory_order_acquire)) return known;
  PyObject* name = PyUnicode_InternFromString(text(attribute));
  if (!name) throw InternalError("no memory for a name");
  slot.store(name, std::memory_order_release);
  return name;
}

std::vector<std::string> lacking() {
  std::vector<std::string> all;
  for (const NameRow& r : kRows)
    if ((r.need == Need::Needed || is_imported(r.module)) && of_this_build(r) && lacks(r)) all.push_back(spelled(r));
  Holders holders;
  for (const AttributeRow& a : kAttributes)
    if (lacks(holders, a)) all.push_back(std::string(kHolderNames[static_cast<size_t>(a.holder)]) + "." + a.text);
  PyErr_Clear();
  return all;
}

void check() {
  for (const NameRow& r : kRows)
    if (r.need == Need::Needed && lacks(r)) refuse("which has no " + spelled(r));
  Holders holders;
  for (const AttributeRow& a : kAttributes)
    if (lacks(holders, a))
      refuse(std::string("where ") + kHolderNames[static_cast<size_t>(a.holder)] + " has no " + a.text);
  PyErr_Clear();
}

}  // namespace braze::pytorch
