// Exceptions of the user's program while it is captured: raising, what is handled, the chain of contexts.
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/key.h"
#include "trace/pytorch/messages.h"
#include "trace/pytorch/names.h"

namespace braze::capture {

std::string describe_exception(Variable* exception) {
  std::string out = exception->type()->tp_name;
  if (exception->is(Kind::Object))
    if (auto* base = exception->as<ObjectVariable>()->base;
        base && base->is(Kind::Tuple) && !base->as<TupleVariable>()->elements.empty())
      if (PyObject* s = base->as<TupleVariable>()->elements[0]->as_constant(); s && PyUnicode_Check(s))
        out += std::string(": ") + PyUnicode_AsUTF8(s);
  return out;
}

void Raising::raise(Variable* exception) {
  exception = tr_.force(exception);
  if (PyObject* cls = exception->as_constant(); cls && PyExceptionClass_Check(cls))
    exception = tr_.force(tr_.call(exception, std::vector<Variable*>{}));
  chain_context(exception, being_handled());
  throw PyRaise{exception, tr_.ordinal()};
}

std::string Raising::name_of(PyTypeObject* cls) {
  if ((cls->tp_flags & Py_TPFLAGS_HEAPTYPE) && !is_fixed_type(cls) && !tr_.is_made_class(cls)) {
    SourceId of = tr_.sources().constant(reinterpret_cast<PyObject*>(cls));
    tr_.guard_identity(
        tr_.sources().add(SourceKind::Slot, of, offsetof(PyHeapTypeObject, ht_name), tr_.intern("__name__")),
        reinterpret_cast<PyHeapTypeObject*>(cls)->ht_name);
  }
  return cls->tp_name;
}

std::string Raising::name_of_owner(PyTypeObject* cls) {
#if PY_VERSION_HEX >= 0x030D0000
  auto* heap = reinterpret_cast<PyHeapTypeObject*>(cls);
  PyObject* module = tr_.intern("__module__");
  if (!(cls->tp_flags & Py_TPFLAGS_HEAPTYPE)) return name_of(cls);
  if (!tr_.is_made_class(cls)) {
    auto& sources = tr_.sources();
    SourceId of = sources.constant(reinterpret_cast<PyObject*>(cls));
    tr_.guard_identity(
        sources.add(SourceKind::Slot, of, offsetof(PyHeapTypeObject, ht_qualname), tr_.intern("__qualname__")),
        heap->ht_qualname);
    SourceId at = sources.dict_item(sources.constant(type_dict(cls)), module);
    PyObject* name = native::item(Ground::guarded(at), type_dict(cls), module);
    if (name) tr_.guard_identity(at, name);
  }
  if (Ref full = Ref::steal(PyType_GetFullyQualifiedName(cls))) return PyUnicode_AsUTF8(full.get());
  PyErr_Clear();
#endif
  return name_of(cls);
}

void Raising::raise(PyObject* type, const std::string& message) {
  auto* e = tr_.make<ObjectVariable>(reinterpret_cast<PyTypeObject*>(type));
  e->base = tr_.tuple({tr_.string(message, Ground::made())});
  e->raised_here = true;
  chain_context(e, being_handled());
  throw PyRaise{e, tr_.ordinal()};
}

Variable* Raising::being_handled() {
  auto some = [&](Variable* v) { return v && !is_none(tr_.force(v)) ? tr_.force(v) : nullptr; };
  Variable* v = some(handled);
  for (Frame* f = tr_.frame(); !v && f; f = f->parent)
    if (f->is_generator) v = some(f->around);
  return v || handled ? v : some(handled_at_start());
}

Variable* Raising::handled_at_start() {
  for (Frame* f = tr_.frame(); f; f = f->parent)
    if (f->is_generator) return tr_.none();
  if (!handled_before_) handled_before_ = tr_.wrap(handled_exception(), tr_.sources().handled());
  return handled_before_;
}

void Raising::chain_context(Variable* exception, Variable* context) {
  if (!context || !exception->is(Kind::Object)) return;
  context = tr_.force(context);
  if (context == exception || !context->is(Kind::Object)) return;
  auto* name = tr_.intern("__context__");
  // No cycles: where the chain leads back to the exception it is cut.
  Variable* at = context;
  for (int i = 0; i < 1000; ++i) {
    Variable* next = tr_.force(at->as<ObjectVariable>()->generic_getattr(tr_, name));
    if (next == exception) {
      at->as<ObjectVariable>()->set_field(tr_, name, tr_.none());
      break;
    }
    if (!next->is(Kind::Object)) break;
    at = next;
  }
  exception->as<ObjectVariable>()->set_field(tr_, name, context);
}

void Raising::throw_raised(Variable* exception) { throw PyRaise{exception, raised_at(exception, tr_.ordinal())}; }

bool Raising::is_as_at_start(Variable* v) {
  return v == handled_before_ || (v == tr_.none() && handled_at_start() == tr_.none());
}

void Raising::raise_natively(Variable* exception, const char* why) {
  if (!was_raised(exception)) unsupported(why);
  throw Restart{origin(exception), {Reason::RaisedException, why}};
}

namespace {

// The frame's own address: that of a variable may lie elsewhere, where AddressSanitizer keeps variables to see uses
// after their end.
inline const char* stack_here() { return static_cast<const char*>(__builtin_frame_address(0)); }

// The lowest address of this thread's stack and its size; false: not known.
bool find_stack(char** low, size_t* size) {
  // Of the first thread pthread_getattr_np would read the list of all mappings, which takes most of a millisecond. The
  // kernel puts the program's name at the very top of its stack, and leaves room below one of usual size. A child that
  // another thread forked has that thread as its first, on the stack that it had.
  constexpr size_t kUsual = size_t{64} << 20;
  rlimit limit;
  auto* top = reinterpret_cast<char*>(getauxval(AT_EXECFN));
  const char* here = stack_here();
  if (gettid() == getpid() && top && getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur <= kUsual && here < top &&
      here >= top - limit.rlim_cur) {
    *size = static_cast<size_t>(limit.rlim_cur);
    *low = top - *size;
    return true;
  }
  pthread_attr_t attr;
  void* from = nullptr;
  if (pthread_getattr_np(pthread_self(), &attr) != 0) return false;
  pthread_attr_getstack(&attr, &from, size);
  pthread_attr_destroy(&attr);
  *low = static_cast<char*>(from);
  return true;
}

}  // namespace

bool stack_is_low() {
  thread_local char* limit = [] {
    char* low = nullptr;
    size_t size = 0;
    return find_stack(&low, &size) ? low + std::min<size_t>(size / 4, 1 << 20) : nullptr;
  }();
  return stack_here() < limit;
}

// Errors that name a part of the capture, or that PyTorch words otherwise where nothing is traced: the interpreter
// raises them itself.
void Raising::refuse_words_of_traces(PyObject* exception) {
  Ref text = Ref::steal(is_fixed_type(Py_TYPE(exception)) ? PyObject_Str(exception) : nullptr);
  PyErr_Clear();
  const char* chars = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  std::string_view said = chars ? chars : "";
  auto is_view = [](TensorVariable* t) {
    Ref view = Ref::steal(PyObject_CallMethod(t->real.get(), pytorch::text(pytorch::Attribute::is_view), nullptr));
    if (!view) PyErr_Clear();
    return view.get() == Py_True;
  };
  bool of_leaf = pytorch::is_of_written_leaf(said) &&
                 std::any_of(tr_.lifted_tensors().begin(), tr_.lifted_tensors().end(), is_view);
  if (of_leaf || pytorch::names_tracing(said) || tr_.tracer().python_kernel_raised())
    tr_.unsupported(Reason::RaisedException, "an error in words of the trace");
}

void Raising::raise_current() {
  PyObject *type, *value, *trace;
  rethrow_from_key();
  PyErr_Fetch(&type, &value, &trace);
  if (!type) throw InternalError("a failed call left no exception");
  PyErr_NormalizeException(&type, &value, &trace);
  Ref t = Ref::steal(type), v = Ref::steal(value), tb = Ref::steal(trace);
  Reason reason;
  std::string detail;
  if (trace::is_graph_break_exception(value, &reason, &detail)) throw Unsupported(reason, detail);
  refuse_words_of_traces(v.get());
  Variable* e = tr_.from_python(v, Ground::made());
  if (e->is(Kind::Object)) {
    e->as<ObjectVariable>()->raised_here = true;
    e->as<ObjectVariable>()->like = v;
    chain_context(e, being_handled());
  }
  throw PyRaise{e, tr_.ordinal()};
}

void Raising::raise_stop_iteration_error(Variable* e) {
  auto* replaced = tr_.make<ObjectVariable>(reinterpret_cast<PyTypeObject*>(PyExc_RuntimeError));
  replaced->base = tr_.tuple({tr_.string("generator raised StopIteration", Ground::fixed())});
  replaced->set_field(tr_, tr_.intern("__cause__"), e);
  replaced->set_field(tr_, tr_.intern("__context__"), e);
  replaced->set_field(tr_, tr_.intern("__suppress_context__"), tr_.boolean(true, Ground::pure(e)));
  throw PyRaise{replaced, tr_.ordinal()};
}

void Raising::unsupported(Reason r, const std::string& detail) { throw Unsupported(r, detail); }

}  // namespace braze::capture
