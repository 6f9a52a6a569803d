// What the evaluator knows of a Python value while capturing.
//
// Variables live as long as the capture (an arena owns them), so plain pointers are used. A variable stands for one
// object: two uses of the same object are the same pointer, and mutable ones carry the pending state that later reads
// see.
//
// A value that existed before the capture has a `source`; reading anything of it adds guards, at the moment of reading.
// Such values start as Lazy: a value that is only passed on is never guarded. `Translator::force` turns them into what
// they are; every operation of this interface expects forced operands unless it says otherwise.
//
// Failures: `Unsupported` ends the segment before the current instruction; `PyRaise` is an exception of the user's
// program.
#pragma once
#include <Python.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "capture/cpython/ref.h"
#include "capture/guards/source.h"
#include "capture/recipe/recipe.h"

namespace braze::capture {

class Translator;
class Codegen;
class Variable;

enum class Kind : uint8_t {
  Lazy,      // pre-existing, nothing known yet
  Constant,  // an immutable real object: numbers, strings, None, dtypes, ranges, enum members...
  Sym,       // a torch.SymInt, SymFloat or SymBool
  Float,     // a float that only the run knows, see vars/tensor_float.h
  Tensor,
  Array,  // see vars/array.h
  Tuple,  // tuple, its subclasses (named tuples, torch.Size), lists of results of torch functions
  List,
  Dict,
  DictView,
  Set,
  Slice,     // with a part that is no constant
  Iterator,  // see vars/iterator.h
  Generator,
  Function,       // a Python function
  BoundMethod,    // a Python function or other callable bound to self
  BuiltinMethod,  // a method implemented in C bound to a variable
  Partial,
  Cell,
  Real,    // a pre-existing object that is known by identity: class, Python module, C function, singleton
  Object,  // instance of a class, pre-existing or made here
  Module,  // an nn.Module
  Super,
  MappingProxy,
  Traceback,     // of an exception that was raised in the capture
  Host,          // see vars/host.h
  Weakref,       // made in the capture
  ContextToken,  // see vars/context_token.h
};

// Of what a capture goes through one by one, each of which may become a guard and an operator.
constexpr int64_t kMostElements = 10000;
// Throws Unsupported for a loop over more.
void check_loop(Translator& tr, int64_t n);

struct Args {
  std::vector<Variable*> pos;
  std::vector<std::pair<PyObject*, Variable*>>
      kw;  // names borrowed: interned strings of code objects, or kept alive by the translator

  size_t size() const { return pos.size(); }
  Variable* operator[](size_t i) const { return pos[i]; }
  // The keyword argument, removed from kw; nullptr if there is none.
  Variable* take_kw(const char* name);
};

// An exception of the user's program, on its way to a handler.
struct PyRaise {
  Variable* exception;
  uint64_t origin;  // ordinal of the instruction that raised it first
};

// Recipes can't make this value; the capture is to end before it comes to life.
struct CannotRebuild {
  const Variable* variable;
  std::string what;
};

class Variable {
 public:
  explicit Variable(Kind k) : kind(k) {}
  virtual ~Variable() = default;
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

  const Kind kind;
  bool emitting = false;  // of Codegen: being built
  SourceId source;        // invalid: made in this capture
  uint64_t born = 0;      // ordinal of the instruction that made it
  Reg reg = kNoReg;       // of Codegen
  // Of what is no object of its own: the object whose content this is (of a subclass of list, dict or set), or whose
  // __dict__. nullptr: it is one.
  Variable* owner = nullptr;
  bool is_instance_dict = false;

  // The class that the user's program sees.
  virtual PyTypeObject* type() const = 0;
  // The real object (borrowed) when it is immutable or known by identity, so that using it at capture time is right.
  virtual PyObject* as_constant() const { return nullptr; }
  virtual std::string describe() const;

  // Attribute by the full protocol of its type. nullptr: there is none (no exception).
  virtual Variable* getattr(Translator&, PyObject* name);
  // value nullptr: delete. False: there is no such attribute to delete.
  virtual void setattr(Translator&, PyObject* name, Variable* value);
  virtual Variable* call(Translator&, Args&);
  // A method that CPython implements in C for this kind of value ("append", "__getitem__"...). nullptr: not modelled.
  virtual Variable* call_method(Translator&, const char* name, Args&);

  virtual Variable* getitem(Translator&, Variable* key);
  virtual void setitem(Translator&, Variable* key, Variable* value);
  virtual void delitem(Translator&, Variable* key);
  virtual bool contains(Translator&, Variable* item);
  virtual Variable* iter(Translator&);
  // Of iterators. nullptr: exhausted.
  virtual Variable* next(Translator&);
  virtual bool has_len(Translator&) { return false; }
  virtual int64_t len(Translator&);
  virtual bool truth(Translator&);
  // An object with the hash and equality of this value, for the index of dicts and sets. Raises TypeError if
  // unhashable.
  virtual Ref hash_key(Translator&);
  // All items of something iterable, as they are now; for containers without running any code.
  virtual std::vector<Variable*> items(Translator&);

  // The steps that make this value when the entry runs. Only for values without source, called once.
  virtual Reg build(Codegen&);

  bool is(Kind k) const { return kind == k; }
  // Throws InternalError where it is none.
  template <class T>
  T* as() {
    T* v = dynamic_cast<T*>(this);
    BRAZE_CHECK(v, "a value stands for something of another kind than its reader takes it for");
    return v;
  }
};

// Makes recipe steps for variables; one register for one variable.
class Codegen {
 public:
  Codegen(Translator& tr, Recipe& recipe) : tr(tr), recipe(recipe) {}
  Reg reg(Variable*);  // nullptr: kNoReg
  std::vector<Reg> regs(const std::vector<Variable*>&);
  Reg constant(PyObject* o) { return recipe.constant(o); }
  Reg tensor(PyObject* fake);  // output of the graph
  // While `v` is still being built (it contains itself): its register must be known already.
  Translator& tr;
  Recipe& recipe;
  std::vector<PyObject*> outputs;  // fakes in order, borrowed
};

inline bool named(PyObject* name, const char* s) { return PyUnicode_CompareWithASCIIString(name, s) == 0; }

}  // namespace braze::capture
