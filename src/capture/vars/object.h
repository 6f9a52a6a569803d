// Instances of classes, objects known by identity, super().
#pragma once
#include "capture/vars/dict.h"

namespace braze::capture {

// module.qualname of a class or function, its class otherwise.
std::string full_name(PyObject* o);

// A class, Python module, C function, or another object that is held by identity.
class RealVariable final : public Variable {
 public:
  RealVariable(PyObject* o, SourceId s) : Variable(Kind::Real), object(Ref::borrow(o)) { source = s; }
  PyTypeObject* type() const override { return Py_TYPE(object.get()); }
  PyObject* as_constant() const override { return object.get(); }
  std::string describe() const override;
  Variable* getattr(Translator&, PyObject* name) override;
  void setattr(Translator&, PyObject* name, Variable* value) override;
  Variable* call(Translator&, Args&) override;
  Variable* getitem(Translator&, Variable* key) override;
  void setitem(Translator&, Variable* key, Variable* value) override;
  void delitem(Translator&, Variable* key) override;
  bool contains(Translator&, Variable* item) override;
  Variable* iter(Translator&) override;
  Variable* next(Translator&) override;
  bool has_len(Translator&) override;
  int64_t len(Translator&) override;
  bool truth(Translator&) override;
  Ref hash_key(Translator&) override;
  std::vector<Variable*> items(Translator&) override;
  Reg build(Codegen&) override;
  Ref object;
};
// Ends the graph where a weak reference's target may have died of a change that was made in the capture.
void refuse_if_let_go(Translator&, PyObject* target);

// An instance. `base` holds the content that a C base class gives: dict, list, tuple, set, str or number, or the
// args of an exception (a tuple).
class ObjectVariable : public Variable {
 public:
  explicit ObjectVariable(PyTypeObject* cls, Kind k = Kind::Object) : Variable(k), cls(cls) {}
  ObjectVariable(PyObject* real, SourceId s, Kind k = Kind::Object)
      : Variable(k), cls(Py_TYPE(real)), real(Ref::borrow(real)) {
    source = s;
  }
  PyTypeObject* type() const override { return cls; }
  PyObject* as_constant() const override { return nullptr; }
  std::string describe() const override;
  Variable* getattr(Translator&, PyObject* name) override;
  void setattr(Translator&, PyObject* name, Variable* value) override;
  Variable* call_method(Translator&, const char* name, Args&) override;
  Variable* getitem(Translator&, Variable* key) override;
  void setitem(Translator&, Variable* key, Variable* value) override;
  void delitem(Translator&, Variable* key) override;
  bool contains(Translator&, Variable* item) override;
  Variable* iter(Translator&) override;
  Variable* next(Translator&) override;
  bool has_len(Translator&) override;
  int64_t len(Translator&) override;
  bool truth(Translator&) override;
  Ref hash_key(Translator&) override;
  std::vector<Variable*> items(Translator&) override;
  Reg build(Codegen&) override;
  virtual void emit_changes(Codegen&, Reg self);

  // object.__getattribute__ and object.__setattr__: without the class's own hooks.
  Variable* generic_getattr(Translator&, PyObject* name);
  void generic_setattr(Translator&, PyObject* name, Variable* value);
  // The instance dict; nullptr when instances of the class have none.
  virtual DictVariable* instance_dict(Translator&);
  Variable* instance_get(Translator&, PyObject* name);              // nullptr: not there
  void instance_set(Translator&, PyObject* name, Variable* value);  // value nullptr: delete
  bool is_exception() const;
  static bool has_chain(PyObject* e);  // whether C code gave the exception a cause or context

  PyTypeObject* cls;
  Ref real;
  Variable* base = nullptr;
  struct Slot {
    PyObject* name;     // kept by the translator
    Variable* value;    // nullptr: deleted
    bool there = true;  // of one that was deleted: whether there was a value at first
  };
  std::vector<Slot> slots;  // written here, of member descriptors of the class
  // Of exceptions: one of the C fields (__context__, __cause__...).
  void set_field(Translator&, PyObject* name, Variable* value);
  bool raised_here = false;  // an exception that an instruction raised by itself
  bool bare = false;         // an exception that was raised, and whose traceback was taken away since
  bool initialised = false;  // an exception: by __init__ of a class written in C
  Ref like;                  // the real exception that it was made from

 private:
  // Calls a special method found on the class; nullptr when there is none.
  Variable* special(Translator&, const char* name, std::vector<Variable*> args);
  Variable* read_slot(Translator&, PyObject* descr, PyObject* name);
  void slots_gone(PyObject* name, bool there);
  DictVariable* dict_ = nullptr;
  Variable* traceback_ = nullptr;
  Ref identity_;  // stands for this object in the index of dicts
};

class ModuleVariable final : public ObjectVariable {
 public:
  ModuleVariable(PyObject* real, SourceId s) : ObjectVariable(real, s, Kind::Module) {}
  PyObject* as_constant() const override { return nullptr; }
};
// What a table of an enum (`_member_map_`, `_value2member_map_`) has for the key; nullptr: nothing, or no table that
// can be read.
Variable* enum_member(Translator&, PyTypeObject* cls, const char* table, Variable* key);
// nn.Module.__getattr__: parameters, buffers, submodules. nullptr: none of them.
Variable* module_getattr(Translator&, ObjectVariable*, PyObject* name);
// nn.Module.__setattr__.
void module_setattr(Translator&, ObjectVariable*, PyObject* name, Variable* value);
// What calling the module calls: forward when there are no hooks, else the real _call_impl.
Variable* module_call_target(Translator&, ObjectVariable*);

// The traceback of an exception that was raised in the capture. That there is one is known; for what is in it the
// exception has to be raised natively.
class TracebackVariable final : public Variable {
 public:
  explicit TracebackVariable(Variable* exception) : Variable(Kind::Traceback), exception(exception) {}
  PyTypeObject* type() const override { return &PyTraceBack_Type; }
  Variable* getattr(Translator&, PyObject* name) override;
  Reg build(Codegen&) override;
  Variable* exception;
};

// What a form of typing or a generic class is subscripted with: constants, classes, other forms and type variables, in
// lists and tuples. None: anything else.
Ref typing_argument(Translator&, Variable*);

class SuperVariable final : public Variable {
 public:
  SuperVariable(PyTypeObject* after, Variable* self) : Variable(Kind::Super), after(after), self(self) {}
  PyTypeObject* type() const override { return &PySuper_Type; }
  Variable* getattr(Translator&, PyObject* name) override;
  PyTypeObject* after;
  Variable* self;
};

// A threading.local that was there before: its attributes lie in a dict of the thread that asks.
class ThreadLocalVariable final : public ObjectVariable {
 public:
  ThreadLocalVariable(PyObject* real, SourceId s) : ObjectVariable(real, s) {}
  Variable* getattr(Translator&, PyObject* name) override;
  void setattr(Translator&, PyObject* name, Variable* value) override;
  DictVariable* instance_dict(Translator&) override;

 private:
  DictVariable* own_ = nullptr;
};

}  // namespace braze::capture
