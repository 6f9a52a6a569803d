#include "capture/guards/source.h"

#include <structmember.h>

#include <cstdio>

#include "base/hash.h"
#include "capture/cpython/dict.h"
#include "capture/cpython/imported.h"
#include "capture/cpython/lru_cache.h"
#include "capture/cpython/wrappers.h"
#include "capture/guards/array_memory.h"
#include "capture/guards/content.h"
#include "trace/pytorch/names.h"

namespace braze::capture {

namespace {

// The layout of functools.partial's first members (C struct, stable since 3.0, not in a public header).
struct PartialLayout {
  PyObject_HEAD PyObject *fn, *args, *kw;
};
bool is_partial(PyObject* o) {
  static PyObject* const type = imported("functools", "partial");
  return PyObject_TypeCheck(o, reinterpret_cast<PyTypeObject*>(type));
}

struct MappingProxyLayout {
  PyObject_HEAD PyObject* mapping;
};

bool same_key(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b || !PyUnicode_CheckExact(a) || !PyUnicode_CheckExact(b)) return false;
  return PyUnicode_Compare(a, b) == 0;
}

uint64_t key_hash(PyObject* key) {
  if (!key) return 0;
  if (PyUnicode_CheckExact(key)) return static_cast<uint64_t>(PyObject_Hash(key));
  return reinterpret_cast<uintptr_t>(key);
}

std::string text(PyObject* o) {
  Ref s = Ref::steal(o ? PyObject_Str(o) : nullptr);
  const char* c = s ? PyUnicode_AsUTF8(s.get()) : nullptr;
  if (!c) PyErr_Clear();
  return c ? c : "?";
}

// Of a key. No code of the user's is run, nor PyTorch's on a tensor, which would be recorded.
std::string repr(PyObject* o) {
  if (PyTuple_CheckExact(o)) {
    std::string items;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) items += (i ? ", " : "") + repr(PyTuple_GET_ITEM(o, i));
    return "(" + items + (PyTuple_GET_SIZE(o) == 1 ? ",)" : ")");
  }
  if (Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE || PyMethod_Check(o) || PyAnySet_Check(o)) {
    char text[24];
    std::snprintf(text, sizeof text, " at %p>", static_cast<void*>(o));
    return std::string("<") + Py_TYPE(o)->tp_name + text;
  }
  Ref s = Ref::steal(PyObject_Repr(o));
  const char* c = s ? PyUnicode_AsUTF8(s.get()) : nullptr;
  if (!c) PyErr_Clear();
  return c ? c : "?";
}

// The default name of a constant object.
std::string object_name(PyObject* o) {
  if (PyModule_Check(o)) {
    const char* n = PyModule_GetName(o);
    if (!n) PyErr_Clear();
    return n ? n : "module";
  }
  if (PyType_Check(o)) return reinterpret_cast<PyTypeObject*>(o)->tp_name;
  if (PyFunction_Check(o)) return text(reinterpret_cast<PyFunctionObject*>(o)->func_qualname);
  if (PyDict_CheckExact(o)) {
    PyObject* name = PyDict_GetItemString(o, "__name__");
    return name && PyUnicode_Check(name) ? "G[" + text(name) + "]" : "{...}";
  }
  return std::string("<") + Py_TYPE(o)->tp_name + ">";
}

bool is_identifier(PyObject* key) { return key && PyUnicode_Check(key) && PyUnicode_IsIdentifier(key); }

}  // namespace

SourceId Sources::add(SourceKind kind, SourceId base, int64_t index, PyObject* key) {
  Hasher h;
  h.add(kind);
  h.add(base.index);
  h.add(index);
  h.add(key_hash(key));
  uint32_t known = interned_.find(h.value(), [&](uint32_t id) {
    const Source& s = items_[id];
    return s.kind == kind && s.base == base && s.index == index && same_key(s.key.get(), key);
  });
  if (known != HashIndex::kNone) return SourceId(known);
  items_.push_back({kind, base, index, Ref::borrow(key)});
  interned_.insert(h.value(), static_cast<uint32_t>(items_.size() - 1));
  return SourceId(items_.size() - 1);
}

void Sources::loosen(const std::unordered_set<PyObject*>& objects) {
  for (Source& s : items_)
    if (s.key && objects.count(s.key.get())) s.key.loosen();
}

bool Sources::is_held(SourceId id) const {
  for (; id.valid(); id = items_[id.index].base)
    if (const LooseRef& key = items_[id.index].key; key && !key.owned()) return false;
  return true;
}

SourceId Sources::constant(PyObject* object, const std::string& label) {
  SourceId id = add(SourceKind::Const, {}, 0, object);
  if (!label.empty()) labels_.emplace(id.index, label);
  return id;
}

SourceId Sources::dict_item(SourceId dict, const char* key) {
  Ref k = Ref::steal(PyUnicode_InternFromString(key));
  return dict_item(dict, k.get());
}

std::string Sources::print(SourceId id) const {
  if (!id.valid()) return "?";
  const Source& s = items_[id.index];
  auto base = [&] { return print(s.base); };
  auto key = [&] { return repr(s.key.get()); };
  switch (s.kind) {
    case SourceKind::Local:
      if (code_ && s.index < code_->co_nlocalsplus)
        return "L[" + repr(PyTuple_GET_ITEM(code_->co_localsplusnames, s.index)) + "]";
      return "L[" + std::to_string(s.index) + "]";
    case SourceKind::Stack: return "stack[" + std::to_string(s.index) + "]";
    case SourceKind::Const: {
      auto it = labels_.find(id.index);
      return it != labels_.end() ? it->second : object_name(s.key.get());
    }
    case SourceKind::CellContents: return base();
    case SourceKind::DictItem: {
      const Source& b = items_[s.base.index];
      if ((b.kind == SourceKind::InstanceDict || b.kind == SourceKind::MadeDict) && is_identifier(s.key.get())) {
        // A submodule or parameter reads as the attribute that it is.
        return print(b.base) + "." + text(s.key.get());
      }
      if (b.kind == SourceKind::DictItem && b.key && PyUnicode_Check(b.key.get()) &&
          items_[b.base.index].kind == SourceKind::InstanceDict) {
        std::string holder = text(b.key.get());
        if (holder == pytorch::text(pytorch::Attribute::modules) ||
            holder == pytorch::text(pytorch::Attribute::parameters) ||
            holder == pytorch::text(pytorch::Attribute::buffers)) {
          std::string owner = print(items_[b.base.index].base);
          return is_identifier(s.key.get()) ? owner + "." + text(s.key.get()) : owner + "[" + text(s.key.get()) + "]";
        }
      }
      return base() + "[" + key() + "]";
    }
    case SourceKind::Handled: return "sys.exception()";
    case SourceKind::DictKeyAt: return "list(" + base() + ")[" + std::to_string(s.index) + "]";
    case SourceKind::ListItem:
    case SourceKind::TupleItem: return base() + "[" + std::to_string(s.index) + "]";
    case SourceKind::TypeOf: return "type(" + base() + ")";
    case SourceKind::MadeDict:
    case SourceKind::InstanceDict: return base() + ".__dict__";
    case SourceKind::TypeAttr:
    case SourceKind::Slot: return base() + "." + text(s.key.get());
    case SourceKind::FuncCode: return base() + ".__code__";
    case SourceKind::FuncGlobals: return base() + ".__globals__";
    case SourceKind::FuncDefaults: return base() + ".__defaults__";
    case SourceKind::FuncKwDefaults: return base() + ".__kwdefaults__";
    case SourceKind::FuncClosure: return base() + ".__closure__";
    case SourceKind::MethodSelf: return base() + ".__self__";
    case SourceKind::MethodFunc: return base() + ".__func__";
    case SourceKind::PropertyGet: return base() + ".fget";
    case SourceKind::StaticTarget: return base() + ".__func__";
    case SourceKind::PartialFunc: return base() + ".func";
    case SourceKind::PartialArgs: return base() + ".args";
    case SourceKind::PartialKeywords: return base() + ".keywords";
    case SourceKind::Content: return "content(" + base() + ")";
    case SourceKind::ArrayTensor:
    case SourceKind::MappingOrigin: return base();
    case SourceKind::WeakTarget: return base() + "()";
    case SourceKind::TensorAttr: return base() + "." + text(s.key.get());
    case SourceKind::CachedCall: return base() + "(" + key() + ")";
    case SourceKind::ContextValue: return base() + ".get()";
  }
  return "?";
}

PyObject* handled_exception() {
  PyObject* e = PyThreadState_Get()->exc_info->exc_value;
  return e ? e : Py_None;
}

PyObject* step(const Source& s, PyObject* base, PyObject* const* slots, size_t num_locals_plus) {
  switch (s.kind) {
    case SourceKind::Local: return slots[s.index];
    case SourceKind::Stack: return slots[num_locals_plus + s.index];
    case SourceKind::Handled: return handled_exception();
    case SourceKind::Const: return s.key.get();
    default: break;
  }
  if (!base) return nullptr;
  auto func = [&]() -> PyFunctionObject* {
    return PyFunction_Check(base) ? reinterpret_cast<PyFunctionObject*>(base) : nullptr;
  };
  switch (s.kind) {
    case SourceKind::CellContents: return PyCell_Check(base) ? PyCell_GET(base) : nullptr;
    case SourceKind::DictItem: return PyDict_Check(base) ? cpython::dict_get(base, s.key.get()) : nullptr;
    case SourceKind::DictKeyAt: {
      if (!PyDict_Check(base)) return nullptr;
      PyObject *k, *v;
      Py_ssize_t pos = 0;
      for (int64_t i = 0; PyDict_Next(base, &pos, &k, &v); ++i)
        if (i == s.index) return k;
      return nullptr;
    }
    case SourceKind::ListItem:
      return PyList_Check(base) && s.index < PyList_GET_SIZE(base) ? PyList_GET_ITEM(base, s.index) : nullptr;
    case SourceKind::TupleItem:
      return PyTuple_Check(base) && s.index < PyTuple_GET_SIZE(base) ? PyTuple_GET_ITEM(base, s.index) : nullptr;
    case SourceKind::TypeOf: return reinterpret_cast<PyObject*>(Py_TYPE(base));
    case SourceKind::InstanceDict: {
      PyObject** p = _PyObject_GetDictPtr(base);
      if (!p && PyErr_Occurred()) PyErr_Clear();
      if (p && !*p)
        Py_XDECREF(PyObject_GenericGetDict(base, nullptr));  // a function gets its dictionary when somebody asks
      if (p && !*p) PyErr_Clear();
      return p ? *p : nullptr;
    }
    case SourceKind::MadeDict: {
      PyObject** p = _PyObject_GetDictPtr(base);
      if (!p && PyErr_Occurred()) PyErr_Clear();
      return p ? *p : nullptr;
    }
    case SourceKind::TypeAttr:
      return PyType_Check(base) ? _PyType_Lookup(reinterpret_cast<PyTypeObject*>(base), s.key.get()) : nullptr;
    case SourceKind::Slot:
      return Py_TYPE(base)->tp_basicsize >= s.index + static_cast<Py_ssize_t>(sizeof(PyObject*))
                 ? *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(base) + s.index)
                 : nullptr;
    case SourceKind::FuncCode: return func() ? func()->func_code : nullptr;
    case SourceKind::FuncGlobals: return func() ? func()->func_globals : nullptr;
    case SourceKind::FuncDefaults: return func() ? func()->func_defaults : nullptr;
    case SourceKind::FuncKwDefaults: return func() ? func()->func_kwdefaults : nullptr;
    case SourceKind::FuncClosure: return func() ? func()->func_closure : nullptr;
    case SourceKind::MethodSelf: return PyMethod_Check(base) ? PyMethod_GET_SELF(base) : nullptr;
    case SourceKind::MethodFunc: return PyMethod_Check(base) ? PyMethod_GET_FUNCTION(base) : nullptr;
    case SourceKind::PropertyGet:
      return PyObject_TypeCheck(base, &PyProperty_Type) ? reinterpret_cast<cpython::PropertyLayout*>(base)->get
                                                        : nullptr;
    case SourceKind::StaticTarget:
      return PyObject_TypeCheck(base, &PyStaticMethod_Type) || PyObject_TypeCheck(base, &PyClassMethod_Type)
                 ? reinterpret_cast<cpython::StaticLayout*>(base)->callable
                 : nullptr;
    case SourceKind::PartialFunc: return is_partial(base) ? reinterpret_cast<PartialLayout*>(base)->fn : nullptr;
    case SourceKind::PartialArgs: return is_partial(base) ? reinterpret_cast<PartialLayout*>(base)->args : nullptr;
    case SourceKind::PartialKeywords: return is_partial(base) ? reinterpret_cast<PartialLayout*>(base)->kw : nullptr;
    case SourceKind::MappingOrigin:
      return Py_TYPE(base) == &PyDictProxy_Type ? reinterpret_cast<MappingProxyLayout*>(base)->mapping : nullptr;
    case SourceKind::TensorAttr: {
      PyObject* descr = _PyType_Lookup(Py_TYPE(base), s.key.get());
      PyObject* v = descr && Py_TYPE(descr) == &PyGetSetDescr_Type
                        ? Py_TYPE(descr)->tp_descr_get(descr, base, reinterpret_cast<PyObject*>(Py_TYPE(base)))
                        : nullptr;
      if (!v) PyErr_Clear();
      Py_XDECREF(v);  // the tensor keeps it
      return v;
    }
    case SourceKind::ArrayTensor: return array_tensor(base);
    case SourceKind::Content: return content_of(base);
    case SourceKind::CachedCall: return cpython::lru_peek(base, s.key.get());
    case SourceKind::ContextValue: {
      PyObject* v = nullptr;
      if (!PyContextVar_CheckExact(base) || PyContextVar_Get(base, nullptr, &v) < 0) PyErr_Clear();
      Py_XDECREF(v);  // the context keeps it, or the variable its default
      return v;
    }
    case SourceKind::WeakTarget: {
      if (!PyWeakref_Check(base)) return nullptr;
      PyObject* o = PyWeakref_GET_OBJECT(base);
      return o == Py_None ? nullptr : o;
    }
    default: return nullptr;
  }
}

}  // namespace braze::capture
