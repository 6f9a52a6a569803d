#include "capture/frames/native_step.h"

#include "capture/cpython/call_order.h"
#include "capture/cpython/template.h"
#include "capture/cpython/texts.h"

namespace braze::capture {

namespace {

using Binary = PyObject* (*)(PyObject*, PyObject*);

PyObject* power(PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }
PyObject* inplace_power(PyObject* a, PyObject* b) { return PyNumber_InPlacePower(a, b, Py_None); }

// In the order of CPython's NB_ numbers, which 3.11 to 3.14 share.
constexpr Binary kBinary[] = {PyNumber_Add,
                              PyNumber_And,
                              PyNumber_FloorDivide,
                              PyNumber_Lshift,
                              PyNumber_MatrixMultiply,
                              PyNumber_Multiply,
                              PyNumber_Remainder,
                              PyNumber_Or,
                              power,
                              PyNumber_Rshift,
                              PyNumber_Subtract,
                              PyNumber_TrueDivide,
                              PyNumber_Xor,
                              PyNumber_InPlaceAdd,
                              PyNumber_InPlaceAnd,
                              PyNumber_InPlaceFloorDivide,
                              PyNumber_InPlaceLshift,
                              PyNumber_InPlaceMatrixMultiply,
                              PyNumber_InPlaceMultiply,
                              PyNumber_InPlaceRemainder,
                              PyNumber_InPlaceOr,
                              inplace_power,
                              PyNumber_InPlaceRshift,
                              PyNumber_InPlaceSubtract,
                              PyNumber_InPlaceTrueDivide,
                              PyNumber_InPlaceXor};

// A special method of the object's type, bound.
PyObject* special(PyObject* self, const char* name, const char* missing) {
  Ref n = Ref::steal(PyUnicode_InternFromString(name));
  PyObject* found = _PyType_Lookup(Py_TYPE(self), n.get());
  if (!found) {
    PyErr_Format(PyExc_TypeError, missing, Py_TYPE(self)->tp_name);
    return nullptr;
  }
  Py_INCREF(found);
  descrgetfunc get = Py_TYPE(found)->tp_descr_get;
  if (!get) return found;
  PyObject* bound = get(found, self, reinterpret_cast<PyObject*>(Py_TYPE(self)));
  Py_DECREF(found);
  return bound;
}

class Stepper {
 public:
  Stepper(cpython::Frame* frame, const Bytecode& code, int at, PyObject* kw_names)
      : frame_(frame), code_(code), in_(code.instructions[at]), at_(at), kw_names_(kw_names) {}

  StepResult run() {
    switch (in_.op) {
      case Opcode::LoadFast:
        return in_.second ? push(Py_NewRef(cpython::slot(frame_, in_.arg))) : StepResult{StepResult::NotTaken};
      case Opcode::StoreFast: {
        if (!in_.second) return {StepResult::NotTaken};
        Ref gone = cpython::take_slot(frame_, in_.arg);
        cpython::put_slot(frame_, in_.arg, pop());
        return next();
      }
      case Opcode::PopTop: {
        Ref gone = pop();
        return next();
      }
      case Opcode::Call: return call(kw_names_);
      case Opcode::CallKw: {
        Ref names = pop();
        return call(names.get());
      }
      case Opcode::CallFunctionEx: return call_ex();
      case Opcode::PopJumpIfTrue: return jump_if(true, false);
      case Opcode::PopJumpIfFalse: return jump_if(false, false);
      case Opcode::JumpIfTrueOrPop: return jump_if(true, true);
      case Opcode::JumpIfFalseOrPop: return jump_if(false, true);
      case Opcode::UnaryNot: {
        Ref v = pop();
        int t = PyObject_IsTrue(v.get());
        return t < 0 ? raised() : push(PyBool_FromLong(!t));
      }
      case Opcode::UnaryNegative: return unary(PyNumber_Negative);
      case Opcode::UnaryPositive: return unary(PyNumber_Positive);
      case Opcode::UnaryInvert: return unary(PyNumber_Invert);
      case Opcode::GetIter: return unary(PyObject_GetIter);
      case Opcode::BinaryOp: return binary(kBinary[in_.arg]);
      case Opcode::BinarySubscr: return binary(PyObject_GetItem);
      case Opcode::BinarySlice: {
        Ref stop = pop(), start = pop(), container = pop();
        Ref slice = Ref::steal(PySlice_New(start.get(), stop.get(), nullptr));
        return push(PyObject_GetItem(container.get(), slice.get()));
      }
      case Opcode::CompareOp: {
        Ref b = pop(), a = pop();
        Ref r = Ref::steal(PyObject_RichCompare(a.get(), b.get(), in_.arg));
        return in_.flag && r ? push(truth(r.get())) : push(r.release());
      }
      case Opcode::ContainsOp: {
        Ref container = pop(), item = pop();
        int t = PySequence_Contains(container.get(), item.get());
        return t < 0 ? raised() : push(Py_NewRef((t != 0) != (in_.arg != 0) ? Py_True : Py_False));
      }
      case Opcode::LoadAttr: {
        Ref o = pop();
        return push(PyObject_GetAttr(o.get(), code_.name(in_.arg)));
      }
      case Opcode::LoadMethod: {
        Ref o = pop();
        Ref v = Ref::steal(PyObject_GetAttr(o.get(), code_.name(in_.arg)));
        return push_callable(std::move(v));
      }
      case Opcode::LoadSuperAttr:
      case Opcode::LoadSuperMethod: {
        Ref self = pop(), cls = pop(), super = pop();
        PyObject* args[] = {cls.get(), self.get()};
        bool given = in_.flag || super.get() == reinterpret_cast<PyObject*>(&PySuper_Type);
        Ref object = Ref::steal(PyObject_Vectorcall(super.get(), args, given ? 2 : 0, nullptr));
        Ref v = Ref::steal(object ? PyObject_GetAttr(object.get(), code_.name(in_.arg)) : nullptr);
        return in_.op == Opcode::LoadSuperMethod ? push_callable(std::move(v)) : push(v.release());
      }
      case Opcode::StoreAttr: {
        Ref o = pop(), v = pop();
        return done(PyObject_SetAttr(o.get(), code_.name(in_.arg), v.get()));
      }
      case Opcode::DeleteAttr: {
        Ref o = pop();
        return done(PyObject_SetAttr(o.get(), code_.name(in_.arg), nullptr));
      }
      case Opcode::StoreSubscr: {
        Ref key = pop(), container = pop(), v = pop();
        return done(PyObject_SetItem(container.get(), key.get(), v.get()));
      }
      case Opcode::StoreSlice: {
        Ref stop = pop(), start = pop(), container = pop(), v = pop();
        Ref slice = Ref::steal(PySlice_New(start.get(), stop.get(), nullptr));
        return done(slice ? PyObject_SetItem(container.get(), slice.get(), v.get()) : -1);
      }
      case Opcode::DeleteSubscr: {
        Ref key = pop(), container = pop();
        return done(PyObject_DelItem(container.get(), key.get()));
      }
      case Opcode::ForIter: {
        Ref it = top();
        PyObject* v = Py_TYPE(it.get())->tp_iternext(it.get());
        if (v) return push(v);
        if (PyErr_Occurred()) {
          if (!PyErr_ExceptionMatches(PyExc_StopIteration)) return raised();
          PyErr_Clear();
        }
        pop();
        return {StepResult::Next, in_.target};
      }
      case Opcode::RaiseVarargs: return in_.arg ? raise() : StepResult{StepResult::NotTaken};
      case Opcode::UnpackSequence: return unpack();
      case Opcode::ConvertValue: {
        Ref v = pop();
        return push(converted(v, in_.arg).release());
      }
      case Opcode::FormatValue: return format();
      case Opcode::BuildInterpolation: {
        Ref spec = in_.arg & 1 ? pop() : Ref(), text = pop(), v = pop();
        return push(cpython::build_interpolation(v, text, in_.arg >> 2, spec).release());
      }
      case Opcode::BuildTemplate: {
        Ref interpolations = pop(), strings = pop();
        return push(cpython::build_template(strings, interpolations).release());
      }
      case Opcode::BeforeWith: return before_with();
      case Opcode::LoadSpecial: return load_special();
      case Opcode::ImportName: return import_name();
      default: return {StepResult::NotTaken};
    }
  }

 private:
  Ref pop() { return cpython::pop(frame_); }
  Ref top() { return Ref::borrow(cpython::slot(frame_, cpython::num_slots(frame_) - 1)); }
  void put(PyObject* owned) { cpython::push(frame_, Ref::steal(owned)); }
  StepResult raised() { return {StepResult::Raised}; }
  StepResult next() { return {StepResult::Next, at_ + 1}; }
  StepResult push(PyObject* owned) {
    if (!owned) return raised();
    put(owned);
    return next();
  }
  StepResult push_callable(Ref owned) {  // one without `self`
    if (!owned) return raised();
    auto pair = cpython::without_self(owned.release());
    put(pair.lower);
    put(pair.upper);
    return next();
  }
  static PyObject* truth(PyObject* o) {
    int t = PyObject_IsTrue(o);
    return t < 0 ? nullptr : PyBool_FromLong(t);
  }
  StepResult done(int status) { return status < 0 ? raised() : next(); }
  StepResult unary(PyObject* (*f)(PyObject*)) {
    Ref v = pop();
    return push(f(v.get()));
  }
  StepResult binary(Binary f) {
    Ref b = pop(), a = pop();
    return push(f(a.get(), b.get()));
  }
  StepResult jump_if(bool when, bool keep) {
    Ref v = top();
    int t = PyObject_IsTrue(v.get());
    if (t < 0) return raised();
    bool jumps = (t != 0) == when;
    if (!(keep && jumps)) pop();
    return {StepResult::Next, jumps ? in_.target : at_ + 1};
  }

  StepResult call(PyObject* names) {
    size_t n = static_cast<size_t>(in_.arg);
    std::vector<Ref> held(n + 2);
    for (size_t i = n + 2; i-- > 0;) held[i] = pop();
    std::vector<PyObject*> args(n + 2);
    for (size_t i = 0; i < n + 2; ++i) args[i] = held[i].get();
    auto [callable, self] = cpython::called(args[0], args[1]);
    PyObject** first = args.data() + (self ? 1 : 2);
    size_t total = self ? n + 1 : n;
    size_t kw = names ? static_cast<size_t>(PyTuple_GET_SIZE(names)) : 0;
    return push(PyObject_Vectorcall(callable, first, (total - kw) | PY_VECTORCALL_ARGUMENTS_OFFSET, names));
  }

  StepResult call_ex() {
    Ref kwargs = in_.arg & 1 ? pop() : Ref();
    Ref args = pop(), upper = pop(), lower = pop();
    PyObject* callable = cpython::called(lower.get(), upper.get()).callable;
    if (!PyTuple_CheckExact(args.get())) {
      args = Ref::steal(PySequence_Tuple(args.get()));
      if (!args) return raised();
    }
    if (kwargs && !PyDict_CheckExact(kwargs.get())) {
      Ref d = Ref::steal(PyDict_New());
      if (!d || PyDict_Update(d.get(), kwargs.get()) < 0) return raised();
      kwargs = d;
    }
    return push(PyObject_Call(callable, args.get(), kwargs.get()));
  }

  // An instance of what is raised: a class is called.
  static Ref instance(PyObject* o, const char* otherwise) {
    if (PyExceptionInstance_Check(o)) return Ref::borrow(o);
    if (!PyExceptionClass_Check(o)) {
      PyErr_SetString(PyExc_TypeError, otherwise);
      return Ref();
    }
    Ref made = Ref::steal(PyObject_CallNoArgs(o));
    if (made && !PyExceptionInstance_Check(made.get())) {
      PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", o,
                   Py_TYPE(made.get()));
      return Ref();
    }
    return made;
  }

  StepResult raise() {
    Ref cause = in_.arg == 2 ? pop() : Ref(), e = pop();
    Ref value = instance(e.get(), "exceptions must derive from BaseException");
    if (!value) return raised();
    if (cause) {
      Ref from =
          cause.get() == Py_None ? Ref() : instance(cause.get(), "exception causes must derive from BaseException");
      if (!from && PyErr_Occurred()) return raised();
      PyException_SetCause(value.get(), from.release());
    }
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value.get())), value.get());
    return raised();
  }

  StepResult unpack() {
    Ref seq = pop();
    Py_ssize_t n = in_.arg;
    Ref it = Ref::steal(PyObject_GetIter(seq.get()));
    if (!it) {
      if (PyErr_ExceptionMatches(PyExc_TypeError) && !Py_TYPE(seq.get())->tp_iter && !PySequence_Check(seq.get()))
        PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", Py_TYPE(seq.get())->tp_name);
      return raised();
    }
    std::vector<Ref> items;
    for (Py_ssize_t i = 0; i <= n; ++i) {
      Ref v = Ref::steal(PyIter_Next(it.get()));
      if (!v) break;
      items.push_back(std::move(v));
    }
    if (PyErr_Occurred()) return raised();
    Py_ssize_t got = static_cast<Py_ssize_t>(items.size());
    if (got < n) {
      PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %zd, got %zd)", n, got);
      return raised();
    }
    if (got > n) {
      PyTypeObject* t = Py_TYPE(seq.get());
      if (cpython::kTellsLength && (t == &PyList_Type || t == &PyTuple_Type || t == &PyDict_Type))
        PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %zd, got %zd)", n,
                     PyObject_Size(seq.get()));
      else
        PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %zd)", n);
      return raised();
    }
    for (Py_ssize_t i = n; i-- > 0;) put(items[i].release());
    return next();
  }

  static Ref converted(const Ref& v, int conversion) {
    switch (conversion) {
      case 1: return Ref::steal(PyObject_Str(v.get()));
      case 2: return Ref::steal(PyObject_Repr(v.get()));
      case 3: return Ref::steal(PyObject_ASCII(v.get()));
      default: return v;
    }
  }

  StepResult format() {
    Ref spec = in_.arg & 4 ? pop() : Ref();
    Ref v = converted(pop(), in_.arg & 3);
    if (!v) return raised();
    if (PyUnicode_CheckExact(v.get()) && !spec) return push(v.release());
    return push(PyObject_Format(v.get(), spec.get()));
  }

  // Left to the interpreter where it is missing, which says so.
  StepResult load_special() {
    static PyObject* const names[] = {PyUnicode_InternFromString("__enter__"), PyUnicode_InternFromString("__exit__")};
    Ref mgr = top();
    if (in_.arg > 1 || !_PyType_Lookup(Py_TYPE(mgr.get()), names[in_.arg])) return {StepResult::NotTaken};
    pop();
    return push_callable(Ref::steal(special(mgr.get(), PyUnicode_AsUTF8(names[in_.arg]), "")));
  }

  StepResult before_with() {
    Ref mgr = top();
    Ref enter =
        Ref::steal(special(mgr.get(), "__enter__", "'%.200s' object does not support the context manager protocol"));
    if (!enter) return raised();
    Ref exit =
        Ref::steal(special(mgr.get(), "__exit__",
                           "'%.200s' object does not support the context manager protocol (missed __exit__ method)"));
    if (!exit) return raised();
    Ref result = Ref::steal(PyObject_CallNoArgs(enter.get()));
    if (!result) return raised();
    pop();
    put(exit.release());
    return push(result.release());
  }

  StepResult import_name() {
    Ref fromlist = pop(), level = pop();
    PyObject* builtins = cpython::builtins(frame_);
    PyObject* import = PyDict_GetItemString(builtins, "__import__");
    if (!import) {
      PyErr_SetString(PyExc_ImportError, "__import__ not found");
      return raised();
    }
    return push(PyObject_CallFunctionObjArgs(import, code_.name(in_.arg), cpython::globals(frame_), Py_None,
                                             fromlist.get(), level.get(), nullptr));
  }

  cpython::Frame* frame_;
  const Bytecode& code_;
  const Instruction& in_;
  int at_;
  PyObject* kw_names_;
};

}  // namespace

StepResult native_step(PyThreadState* ts, cpython::Frame* frame, const Bytecode& code, int instruction,
                       PyObject* kw_names) {
  cpython::set_position(frame, code.instructions[instruction].offset);
  cpython::link(ts, frame);
  StepResult r = Stepper(frame, code, instruction, kw_names).run();
  cpython::unlink(ts, frame);
  return r;
}

}  // namespace braze::capture
