#include "capture/eval/library_objects.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/check.h"
#include "capture/cpython/dict.h"
#include "capture/cpython/imported.h"
#include "capture/cpython/ref.h"
#include "trace/pytorch/names.h"

namespace braze::capture {
namespace {

PyTypeObject* type(const char* module, const char* path, bool optional = false) {
  return reinterpret_cast<PyTypeObject*>(imported(module, path, optional));
}

// The raw attribute of a class: functions as they are in its dict.
PyObject* raw(PyTypeObject* t, const char* name) {
  Ref key = Ref::steal(PyUnicode_InternFromString(name));
  PyObject* o = _PyType_Lookup(t, key.get());
  if (!o) throw InternalError(std::string("no attribute ") + name + " on " + t->tp_name);
  Py_INCREF(o);
  return o;
}

// A method in Python that does nothing but `return id(self)`.
bool returns_id(PyObject* function) {
  if (!PyFunction_Check(function)) return false;
  Ref names = Ref::steal(PyObject_GetAttrString(PyFunction_GET_CODE(function), "co_names")),
      only = Ref::steal(Py_BuildValue("(s)", "id"));
  Ref module = Ref::steal(PyObject_GetAttrString(function, "__module__")),
      torch = Ref::steal(PyUnicode_FromString(pytorch::row(pytorch::Name::tensor_module).module));
  return PyObject_RichCompareBool(names.get(), only.get(), Py_EQ) == 1 &&
         PyObject_RichCompareBool(module.get(), torch.get(), Py_EQ) == 1;
}

LibraryObjects load() {
  LibraryObjects k{};
  k.torch = imported("torch", nullptr);
  k.tensor = type("torch", "Tensor");
  k.parameter = type("torch.nn", "Parameter");
  k.module = type("torch.nn", "Module");
  k.optimizer = type("torch.optim", "Optimizer");
  k.size = type("torch", "Size");
  k.dtype = type("torch", "dtype");
  k.device = type("torch", "device");
  k.layout = type("torch", "layout");
  k.memory_format = type("torch", "memory_format");
  k.qscheme = type("torch", "qscheme");
  k.sym_int = type("torch", "SymInt");
  k.sym_float = type("torch", "SymFloat");
  k.untyped_storage = type("torch", "UntypedStorage");
  k.typed_storage = type("torch.storage", "TypedStorage");
  k.sym_bool = type("torch", "SymBool");
  k.legacy_tensor_class = Py_TYPE(imported("torch", "FloatTensor"));
  k.finfo = type("torch", "finfo");
  k.iinfo = type("torch", "iinfo");
  k.enum_ = type("enum", "Enum");
  k.enum_property = type("enum", "property", true);
  k.ordered_dict = type("collections", "OrderedDict");
  k.default_dict = type("collections", "defaultdict");
  k.deque = type("collections", "deque");
  k.partial = type("functools", "partial");
  k.cached_property = type("functools", "cached_property");
  k.lru_cache = type("functools", "_lru_cache_wrapper", true);
  k.simple_namespace = type("types", "SimpleNamespace");
  k.tuple_getter = type("_collections", "_tuplegetter");
  k.abc_meta = type("abc", "ABCMeta");
  k.op_overload = pytorch::get(pytorch::Name::OpOverload);
  k.op_packet = pytorch::get(pytorch::Name::OpOverloadPacket);
  k.object_getattribute = raw(&PyBaseObject_Type, "__getattribute__");
  k.object_setattr = raw(&PyBaseObject_Type, "__setattr__");
  k.object_init = raw(&PyBaseObject_Type, "__init__");
  k.object_new = raw(&PyBaseObject_Type, "__new__");
  k.module_getattr = raw(k.module, "__getattr__");
  k.module_setattr = raw(k.module, "__setattr__");
  k.module_call = raw(k.module, "__call__");
  k.module_call_impl = raw(k.module, pytorch::text(pytorch::Attribute::call_impl));
  k.module_globals = imported("torch.nn.modules.module", "__dict__");
  if (PyObject* hash = raw(k.tensor, "__hash__"); returns_id(hash)) cpython::hashes_by_address(hash);
  k.make_leaf = imported("braze._C", "_make_leaf");
  k.mark_consumed = imported("braze._C", "_mark_consumed");
  return k;
}

}  // namespace

namespace {
PyTypeObject* type_of(const char* module, const char* name) {
  Ref m = Ref::steal(PyImport_ImportModule(module));
  return reinterpret_cast<PyTypeObject*>(m ? PyObject_GetAttrString(m.get(), name) : nullptr);
}
}  // namespace

const LibraryObjects& library() {
  static const LibraryObjects k = load();
  return k;
}

bool is_constant_type(PyTypeObject* t) {
  static const std::unordered_set<PyTypeObject*> types = [] {
    const LibraryObjects& k = library();
    return std::unordered_set<PyTypeObject*>{Py_TYPE(Py_None),
                                             &PyBool_Type,
                                             &PyLong_Type,
                                             &PyFloat_Type,
                                             &PyComplex_Type,
                                             &PyUnicode_Type,
                                             &PyBytes_Type,
                                             Py_TYPE(Py_Ellipsis),
                                             Py_TYPE(Py_NotImplemented),
                                             &PyRange_Type,
                                             k.dtype,
                                             k.device,
                                             k.layout,
                                             k.memory_format,
                                             k.qscheme,
                                             k.finfo,
                                             k.iinfo,
                                             type_of("re", "Pattern"),
                                             type_of("re", "Match")};
  }();
  if (types.count(t)) return true;
  // Numbers of NumPy and their types; once it is imported.
  if (std::string_view(t->tp_name).substr(0, 6) != "numpy.") return false;
  static PyTypeObject* dtype = type("numpy", "dtype", true);
  if (dtype && PyType_IsSubtype(t, dtype)) return true;
  static PyTypeObject* generic = type("numpy", "generic", true);
  return generic && PyType_IsSubtype(t, generic);
}

bool is_structseq(PyTypeObject* t) {
  static PyObject* name = PyUnicode_InternFromString("n_sequence_fields");
  return t != &PyTuple_Type && PyType_IsSubtype(t, &PyTuple_Type) && PyDict_Contains(type_dict(t), name) == 1;
}

PyObject* type_dict(PyTypeObject* t) { return cpython::type_dict(t); }

bool of_import_system(PyCodeObject* code) {
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (!file) PyErr_Clear();
  return file && std::string_view(file).starts_with("<frozen importlib");
}

bool of_library(PyObject* function) {
  static PyObject* names = PySys_GetObject("stdlib_module_names");  // of sys, which keeps it
  PyObject* module =
      PyFunction_Check(function) ? PyDict_GetItemString(PyFunction_GET_GLOBALS(function), "__name__") : nullptr;
  const char* text = module && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
  if (!text) return PyErr_Clear(), false;
  std::string root(text);
  root.resize(std::min(root.size(), root.find('.')));
  if (root == "torch" || root == "__main__") return root == "torch";
  Ref name = Ref::steal(PyUnicode_FromString(root.c_str()));
  return names && PySet_Contains(names, name.get()) == 1;
}

}  // namespace braze::capture
