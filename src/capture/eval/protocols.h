// Python's protocols on variables, forced or lazy: attributes, calls, operators, items, iteration, identity, classes,
// texts.
#pragma once
#include <string>
#include <vector>

#include "capture/eval/variable.h"

namespace braze::capture {

class Protocols {
 public:
  explicit Protocols(Translator& tr) : tr_(tr) {}

  Variable* getattr(Variable* v, PyObject* name);  // raises AttributeError
  Variable* getattr(Variable* v, const char* name);
  Variable* getattr_or_null(Variable* v, PyObject* name);
  Variable* getattr_or_null(Variable* v, const char* name);
  void setattr(Variable* v, PyObject* name, Variable* value);

  Variable* call(Variable* callee, Args args, bool resumable = false);
  Variable* call(Variable* callee, std::vector<Variable*> pos) { return call(callee, Args{std::move(pos), {}}); }
  Variable* call_method(Variable* self, const char* name, std::vector<Variable*> pos);  // self.name(*pos)

  Variable* binary_op(int op, Variable* a, Variable* b);  // NB_ADD...
  Variable* compare(int op, Variable* a, Variable* b);    // Py_LT...
  Variable* unary_op(Opcode op, Variable* v);
  bool truth(Variable* v);
  bool equal(Variable* a, Variable* b);      // a == b, as a truth value
  bool identical(Variable* a, Variable* b);  // a is b, guarded where sources are involved
  bool same_item(Variable* a, Variable* b);  // a is b or a == b, as containers compare their items

  Variable* getitem(Variable* v, Variable* key, bool resumable = false);
  void setitem(Variable* v, Variable* key, Variable* value);
  void delitem(Variable* v, Variable* key);
  bool contains(Variable* v, Variable* item);
  Variable* iter(Variable* v);
  Variable* next(Variable* iterator);
  std::vector<Variable*> unpack(Variable* iterable);       // [item for item in iterable]
  std::vector<Variable*> rest(Variable* iterator);         // what it still gives
  std::vector<Variable*> listed(Variable* iterable);       // list(iterable), which asks for the length as well
  std::vector<Variable*> as_sequence(Variable* iterable);  // list(iter(iterable)), if it is neither list nor tuple
  void ask_length(Variable* iterable);                     // does what operator.length_hint does
  bool can_iterate(Variable* v);                           // its class has the methods for iter(v)
  int64_t len(Variable* v);
  std::string text_of_callee(Variable* v);  // as messages about its arguments name it: "module.function()"
  Variable* format(Variable* v, const std::string& spec, int conversion);

  bool is_instance(Variable* v, PyObject* cls);        // cls: class, tuple or union, real
  bool is_subclass(PyObject* derived, PyObject* cls);  // real, cls as above
  // That a class is none of an abstract one holds until another class is registered there.
  void guard_registrations(PyObject* cls);

 private:
  bool is_container_of_constants(Variable* v);

  Translator& tr_;
  int depth_ = 0;  // of calls
};

}  // namespace braze::capture
