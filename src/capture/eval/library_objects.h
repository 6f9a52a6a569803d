// Objects of Python and PyTorch that capture compares with, imported at the first capture.
#pragma once
#include <Python.h>

namespace braze::capture {

struct LibraryObjects {
  PyTypeObject *tensor, *parameter, *module, *optimizer, *size, *dtype, *device, *layout, *memory_format, *qscheme,
      *sym_int, *sym_float, *sym_bool, *finfo, *iinfo, *untyped_storage, *typed_storage,
      *legacy_tensor_class;  // the last: of torch.FloatTensor and others
  PyTypeObject *enum_, *ordered_dict, *default_dict, *deque, *partial, *tuple_getter, *abc_meta, *enum_property,
      *cached_property, *lru_cache, *simple_namespace;
  PyObject* torch;
  PyObject* op_overload;          // torch._ops.OpOverload
  PyObject* op_packet;            // torch._ops.OpOverloadPacket
  PyObject* object_getattribute;  // object.__getattribute__, __setattr__, ...
  PyObject* object_setattr;
  PyObject* object_init;
  PyObject* object_new;
  PyObject* module_getattr;  // torch.nn.Module.__getattr__, ...
  PyObject* module_setattr;
  PyObject* module_call;
  PyObject* module_call_impl;
  PyObject* module_globals;             // dict of torch.nn.modules.module
  PyObject *make_leaf, *mark_consumed;  // of braze._C: what a result needs besides its values
};
// Throws InternalError if something is missing.
const LibraryObjects& library();

// Immutable classes whose instances are Constants.
bool is_constant_type(PyTypeObject* t);
bool is_structseq(PyTypeObject* t);
// Whether a Python function is one of the standard library's or PyTorch's own.
bool of_library(PyObject* function);
// Code of the import system: it changes what it looks at whenever the capture imports, so it runs uncompiled.
bool of_import_system(PyCodeObject* code);
// Attributes and bases of these classes never change.
inline bool is_fixed_type(PyTypeObject* t) {
  return !(t->tp_flags & Py_TPFLAGS_HEAPTYPE) || (t->tp_flags & Py_TPFLAGS_IMMUTABLETYPE);
}
// The class's own dict (borrowed).
PyObject* type_dict(PyTypeObject* t);

}  // namespace braze::capture
