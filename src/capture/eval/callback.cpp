#include "capture/eval/callback.h"

#include "capture/eval/library_objects.h"
#include "capture/eval/open_sizes.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/host.h"

namespace braze::capture {
namespace {

struct Callback {
  PyObject_HEAD std::shared_ptr<HostCalls*> owner;  // where *owner is null, the capture is over
  Variable* callee;
  PyObject *signature, *code;  // owned; nullptr: not known
};

using Field = PyObject* Callback::*;
constexpr Field kSignature = &Callback::signature, kCode = &Callback::code;

void dealloc(PyObject* self) {
  reinterpret_cast<Callback*>(self)->owner.~shared_ptr();
  for (Field f : {kSignature, kCode}) Py_CLEAR(reinterpret_cast<Callback*>(self)->*f);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs) {
  auto* c = reinterpret_cast<Callback*>(self);
  if (HostCalls* host = *c->owner) return host->run_callback(c->callee, args, kwargs);
  trace::signal_graph_break(Reason::TraceFailed, "a function of the user is called after its capture has ended");
  return nullptr;
}

PyObject* get_field(PyObject* self, void* field) {
  PyObject* value = reinterpret_cast<Callback*>(self)->*(*static_cast<const Field*>(field));
  if (!value) PyErr_SetString(PyExc_AttributeError, field == &kCode ? "__code__" : "__signature__");
  return Py_XNewRef(value);
}

int set_field(PyObject* self, PyObject* value, void* field) {
  Py_XSETREF(reinterpret_cast<Callback*>(self)->*(*static_cast<const Field*>(field)), Py_XNewRef(value));
  return 0;
}

PyTypeObject* callback_type() {
  static PyTypeObject* type = [] {
    static PyGetSetDef properties[] = {
        {"__signature__", get_field, set_field, nullptr, const_cast<Field*>(&kSignature)},
        {"__code__", get_field, set_field, nullptr, const_cast<Field*>(&kCode)},
        {nullptr, nullptr, nullptr, nullptr, nullptr}};
    static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                                  {Py_tp_call, reinterpret_cast<void*>(call)},
                                  {Py_tp_getset, properties},
                                  {0, nullptr}};
    static PyType_Spec spec = {"braze._C.Callback", sizeof(Callback), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  }();
  return type;
}

// A Python callable that evaluates `callee` in the capture of `owner`; once that is over a call of it is a graph break.
// New reference.
PyObject* new_callback(std::shared_ptr<HostCalls*> owner, Variable* callee) {
  PyTypeObject* type = callback_type();
  auto* c = type ? reinterpret_cast<Callback*>(type->tp_alloc(type, 0)) : nullptr;
  if (!c) return nullptr;
  new (&c->owner) std::shared_ptr<HostCalls*>(std::move(owner));
  c->callee = callee;
  return reinterpret_cast<PyObject*>(c);
}

}  // namespace

HostCalls::HostCalls(Translator& tr) : tr_(tr), alive_(std::make_shared<HostCalls*>(this)) {}
HostCalls::~HostCalls() { *alive_ = nullptr; }

bool wraps_user_code(PyObject* function) {
  PyObject* closure = PyFunction_Check(function) ? PyFunction_GET_CLOSURE(function) : nullptr;
  for (Py_ssize_t i = 0; closure && i < PyTuple_GET_SIZE(closure); ++i) {
    PyObject* held = PyCell_GET(PyTuple_GET_ITEM(closure, i));
    if (!held || !PyCallable_Check(held) || PyType_Check(held) || PyCFunction_Check(held)) continue;
    if (!PyFunction_Check(held) || !of_library(held) || wraps_user_code(held)) return true;
  }
  return false;
}

// vmap in chunks that draw the same numbers, which PyTorch gets by setting the generator's state between them: no
// operator of the graph.
bool draws_alike_in_chunks(PyObject* function) {
  if (!PyFunction_Check(function) || !PyFunction_GET_CLOSURE(function)) return false;
  Ref names = Ref::steal(PyCode_GetFreevars(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function))));
  bool alike = false, chunks = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); ++i) {
    PyObject* held = PyCell_GET(PyTuple_GET_ITEM(PyFunction_GET_CLOSURE(function), i));
    auto called = [&](const char* name) {
      return PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names.get(), i), name) == 0;
    };
    if (held && called("randomness"))
      alike = PyUnicode_Check(held) && PyUnicode_CompareWithASCIIString(held, "same") == 0;
    chunks = chunks || (held && held != Py_None && (called("chunk_size") || called("chunks")));
  }
  return alike && chunks;
}

Ref HostCalls::callback(Variable* callee) {
  Ref c = Ref::steal(new_callback(alive_, callee));
  if (!c) tr_.raise_current();
  tr_.keep(c);
  tr_.stand_in_for(c.get(), callee);
  return c;
}

Ref HostCalls::with_callbacks(PyObject* function, SourceId source) {
  PyObject* closure = PyFunction_GET_CLOSURE(function);
  SourceId cells_at = tr_.sources().derived(SourceKind::FuncClosure, source);
  tr_.guard_identity(tr_.sources().derived(SourceKind::FuncCode, source), PyFunction_GET_CODE(function));
  Hosting host(*this, true);
  Ref cells = Ref::steal(PyTuple_New(PyTuple_GET_SIZE(closure)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(closure); ++i) {
    auto* cell =
        tr_.force(tr_.wrap(PyTuple_GET_ITEM(closure, i), tr_.sources().tuple_item(cells_at, i)))->as<CellVariable>();
    Variable* held = cell->get(tr_);
    PyTuple_SET_ITEM(cells.get(), i, PyCell_New(held ? tr_.real.to_python(held).get() : nullptr));
  }
  Ref copy = Ref::steal(PyFunction_New(PyFunction_GET_CODE(function), PyFunction_GET_GLOBALS(function)));
  if (!copy || PyFunction_SetClosure(copy.get(), cells.get()) < 0) tr_.raise_current();
  if (PyObject* d = PyFunction_GET_DEFAULTS(function)) PyFunction_SetDefaults(copy.get(), d);
  if (PyObject* d = PyFunction_GET_KW_DEFAULTS(function)) PyFunction_SetKwDefaults(copy.get(), d);
  tr_.keep(copy);
  return copy;
}

Variable* HostCalls::from_host(Ref o) {
  Hosting host(*this, true);
  return tr_.from_python(std::move(o), Ground::made());
}

Variable* HostCalls::host_object(Ref o) {
  auto [it, fresh] = hosts_.try_emplace(o.get());
  if (fresh) {
    it->second = tr_.make<HostVariable>(o.get());
    tr_.keep(o);
  }
  return it->second;
}

// Which of two counters the class of hooks' handles has: the program's, which it reads, or that of hooks that PyTorch's
// code puts on fakes. The other one is kept meanwhile.
class HostCalls::HookNumbers {
 public:
  HookNumbers(HostCalls& host, bool of_host) : flag_(host.numbers_of_host_), changes_(flag_ != of_host) {
    if (changes_) exchange();
  }
  ~HookNumbers() {
    if (changes_) exchange();
  }
  HookNumbers(const HookNumbers&) = delete;
  HookNumbers& operator=(const HookNumbers&) = delete;

 private:
  void exchange() {
    static PyObject* handles = imported("torch.utils.hooks", "RemovableHandle");
    static auto* other = new Ref(Ref::steal(PyLong_FromLongLong(int64_t{1} << 48)));  // far from the program's
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Ref now = Ref::steal(native::attr(Ground::made(), handles, "next_id"));
    if (now && PyObject_SetAttrString(handles, "next_id", other->get()) == 0) *other = now;
    PyErr_Restore(type, value, trace);
    flag_ = !flag_;
  }

  bool &flag_, changes_;
};

// What the user's code did meanwhile ends the call in PyTorch by a signal, and is raised again once PyTorch's frames
// are left.
PyObject* HostCalls::run_callback(Variable* callee, PyObject* args, PyObject* kwargs) {
  Hosting host(*this, false);
  HookNumbers numbers(*this, false);
  ++called_back;
  struct Depth {
    int& depth;
    explicit Depth(int& d) : depth(d) { ++depth; }
    ~Depth() { --depth; }
  } inside(depth_);
  // PyTorch's modes are others here than in the code around, and PyTorch sets them back.
  Effects::StatesOfCallback states(tr_.effects);
  try {
    if (!pending_) {
      Args a;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i)
        a.pos.push_back(from_host(Ref::borrow(PyTuple_GET_ITEM(args, i))));
      PyObject *key, *value;
      for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &key, &value);)
        a.kw.emplace_back(tr_.keep(Ref::borrow(key)), from_host(Ref::borrow(value)));
      Variable* result = tr_.call(callee, std::move(a));
      if (states.changed()) tr_.unsupported("a function called back by PyTorch leaves a mode of PyTorch changed");
      Hosting back(*this, true);
      OpenSizes open(true);
      return tr_.real.to_python(result).release();
    }
  } catch (...) {
    pending_ = std::current_exception();
  }
  PyErr_Clear();
  trace::signal_graph_break(Reason::UnsupportedFeature, "a function called back by PyTorch");
  return nullptr;
}

std::optional<Stop> HostCalls::why_stopped() const {
  if (!pending_) return std::nullopt;
  try {
    std::rethrow_exception(pending_);
  } catch (const Restart& r) {
    return r.stop;
  } catch (const Unsupported& e) {
    return Stop{e.reason(), e.detail()};
  } catch (...) {
    return std::nullopt;
  }
}

Variable* HostCalls::call(PyObject* fn, const Args& args, PyObject* noted) {
  // Below a call that the graph shows, it shows nothing.
  if (tr_.view().torch_level && !noted && !depth_)
    tr_.unsupported("a transform of functions in a graph for another backend");
  if (draws_alike_in_chunks(fn)) tr_.unsupported("vmap in chunks that draw the same numbers");
  const uint64_t at = tr_.ordinal(), effects = tr_.effects.seen();
  if (!noted && !depth_ && !not_shown) not_shown = at;
  ++tr_.segment().num_calls;
  Ref result = run_host(fn, args, noted, false);
  // What is called in its place would have these effects once more.
  if (!depth_ && !not_shown && tr_.effects.seen() != effects) not_shown = at;
  return from_host(std::move(result));
}

Variable* HostCalls::call_overridden(PyObject* fn, const Args& args) {
  tr_.torch_functions.met_subclass();
  return from_host(run_host(fn, args, nullptr, true));
}

Ref HostCalls::run_host(PyObject* fn, const Args& args, PyObject* noted, bool overridden) {
  tr_.mutate();
  HookNumbers numbers(*this, true);
  Ref result;
  {
    Hosting host(*this, true);
    std::vector<Ref> owned;
    std::vector<PyObject*> pos;
    Ref kw;
    {
      OpenSizes open(true);
      for (Variable* v : args.pos) {
        owned.push_back(tr_.real.to_python(v));
        pos.push_back(owned.back().get());
      }
      if (!args.kw.empty()) {
        kw = Ref::steal(PyDict_New());
        for (auto& [k, v] : args.kw) PyDict_SetItem(kw.get(), k, tr_.real.to_python(v).get());
      }
    }
    result = Ref::steal(overridden
                            ? tr_.tracer().call_overridden(fn, pos.data(), pos.size(), kw.get(), tr_.real.location())
                            : tr_.tracer().call_host(fn, pos.data(), pos.size(), kw.get(), tr_.real.location(), noted));
  }
  if (pending_) {
    PyErr_Clear();
    std::rethrow_exception(std::exchange(pending_, nullptr));
  }
  if (!result) tr_.raise_current();
  return result;
}

}  // namespace braze::capture
