// Python functions, bound methods, partials, cells, generators.
#pragma once
#include "capture/cpython/imported.h"
#include "capture/eval/variable.h"

namespace braze::capture {

struct Frame;
class DictVariable;
class SeenSizes;
class TupleVariable;

class CellVariable final : public Variable {
 public:
  CellVariable() : Variable(Kind::Cell) {}
  CellVariable(PyObject* real, SourceId s) : Variable(Kind::Cell), real(Ref::borrow(real)) { source = s; }
  PyTypeObject* type() const override { return &PyCell_Type; }
  Variable* getattr(Translator&, PyObject* name) override;  // cell_contents
  Variable* get(Translator&);                               // nullptr: empty
  void set(Translator&, Variable* value);                   // nullptr: empty it
  Reg build(Codegen&) override;
  Ref real;
  Variable* contents = nullptr;
  bool known = false;  // contents says what is in it
};

class FunctionVariable final : public Variable {
 public:
  FunctionVariable(PyObject* real, SourceId s) : Variable(Kind::Function), real(Ref::borrow(real)) { source = s; }
  // Made by MAKE_FUNCTION.
  explicit FunctionVariable(PyObject* code) : Variable(Kind::Function), code(Ref::borrow(code)) {}
  PyTypeObject* type() const override { return &PyFunction_Type; }
  PyObject* as_constant() const override { return anchored ? real.get() : nullptr; }
  std::string describe() const override;
  Variable* getattr(Translator&, PyObject* name) override;
  void setattr(Translator&, PyObject* name, Variable* value) override;
  Variable* call(Translator&, Args&) override;
  Variable* call_method(Translator&, const char* name, Args&) override;
  Ref hash_key(Translator&) override;
  Reg build(Codegen&) override;
  PyCodeObject* code_object() const;
  Variable* new_builtin(Translator&, PyObject* descr, PyObject* name);

  Ref real;
  bool anchored = false;  // real, and known by identity
  bool code_guarded = false;
  Ref code;
  PyObject* globals = nullptr;  // of one made here
  PyObject* builtins = nullptr;
  SourceId globals_source;
  Variable* defaults = nullptr;    // tuple
  Variable* kwdefaults = nullptr;  // dict
  Variable* closure = nullptr;     // tuple of cells
  Variable* annotations = nullptr;
  Variable* annotate = nullptr;                             // makes them when they are first asked for (CPython 3.14)
  std::vector<std::pair<PyObject*, Variable*>> attributes;  // set on it here: __name__ and the like

 private:
  DictVariable* own_dict(Translator&);
  DictVariable* dict_ = nullptr;
};

class BoundMethodVariable final : public Variable {
 public:
  BoundMethodVariable(Variable* fn, Variable* self) : Variable(Kind::BoundMethod), function(fn), self(self) {}
  PyTypeObject* type() const override { return &PyMethod_Type; }
  std::string describe() const override;
  Variable* getattr(Translator&, PyObject* name) override;
  Ref hash_key(Translator&) override;
  Reg build(Codegen&) override;
  Variable* function;
  Variable* self;
  Ref real;
};

// A method implemented in C. `owner` is the class that defines it: subclasses may override it, super() may ask for it.
class BuiltinMethodVariable final : public Variable {
 public:
  BuiltinMethodVariable(Variable* self, PyObject* descr, PyTypeObject* owner, PyObject* name)
      : Variable(Kind::BuiltinMethod), self(self), descr(Ref::borrow(descr)), owner(owner), name(name) {}
  PyTypeObject* type() const override {
    return Py_TYPE(descr.get()) == &PyWrapperDescr_Type ? method_wrapper_type() : &PyCFunction_Type;
  }
  std::string describe() const override;
  Variable* getattr(Translator&, PyObject* name) override;
  Variable* call(Translator&, Args&) override;
  Reg build(Codegen&) override;
  Variable* self;
  Ref descr;
  PyTypeObject* owner;
  PyObject* name;            // interned
  bool only_called = false;  // by the instruction after the next arguments: nothing else gets hold of it
};
// descr.__get__(object), for a descriptor in C that is what its name finds on the object's class; nullptr: for no
// other.
Variable* get_through(Translator&, PyObject* descr, Args& args);
// self.<method of owner>(args), without looking at overrides.
Variable* call_builtin_method(Translator&, Variable* self, PyTypeObject* owner, PyObject* name, Args&);

class PartialVariable final : public Variable {
 public:
  PartialVariable(Variable* fn, TupleVariable* args, DictVariable* keywords)
      : Variable(Kind::Partial), function(fn), args(args), keywords(keywords) {}
  PyTypeObject* type() const override;
  Variable* getattr(Translator&, PyObject* name) override;
  void setattr(Translator&, PyObject* name, Variable* value) override;
  void merge(Translator&, Args&) const;  // puts its own arguments before those of a call
  Reg build(Codegen&) override;
  std::vector<std::pair<PyObject*, Variable*>> attributes;  // set on one made here
  Variable* function;
  TupleVariable* args;
  DictVariable* keywords;
  Ref real;
};

class GeneratorVariable final : public Variable {
 public:
  explicit GeneratorVariable(Frame* f) : Variable(Kind::Generator), frame(f) {}
  PyTypeObject* type() const override { return &PyGen_Type; }
  Variable* getattr(Translator&, PyObject* name) override;
  Variable* call_method(Translator&, const char* name, Args&) override;
  Variable* iter(Translator&) override { return this; }
  Variable* next(Translator&) override;
  // Resumes; nullptr when it returned (the value is in `result`).
  Variable* send(Translator&, Variable* value);
  Variable* throw_(Translator&, Variable* exception);
  Variable* close(Translator&);  // what it gives
  // Suspended where the interpreter would run more of its code when nobody holds it any more.
  bool has_end_to_run(Translator&);
  Reg build(Codegen&) override;
  // Of one that was there before: the real one becomes what this is now.
  void emit_state(Codegen&, Reg self);
  Frame* frame;  // nullptr: it had ended before
  Ref real;
  Variable* result = nullptr;
  bool started = false, finished = false, running = false;

 private:
  Variable* resume(Translator&);
  void change(Translator&);  // before each
  void end(Translator&);
  std::vector<Reg> state(Codegen&);
};

// The interpreter closes generators that nobody else holds: Unsupported where one that was there before, and has an end
// to run, may be let go of with this value.
void refuse_dropped(Translator&, Variable* held);

// One that was there before, read at where it waits, with its guards. nullptr: nothing is known of it, or it was met at
// too many places.
Variable* wrap_generator(Translator&, SeenSizes* seen, PyObject* generator, SourceId source);

}  // namespace braze::capture
