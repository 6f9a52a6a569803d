// Attributes by the rules of object.__getattribute__ and type.__getattribute__, guarded at each step that mattered.
#pragma once
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/eval/variable.h"

namespace braze::capture {

// What is known of a class that attributes were looked up on.
struct TypeInfo {
  bool generic = false;              // object.__getattribute__
  PyObject* getattribute = nullptr;  // else: the class's own (borrowed)
  PyObject* getattr = nullptr;       // __getattr__, if any (borrowed)
};

// An attribute of a class of which nothing is read but who it is.
bool is_in_c(PyObject* attribute);

class Attributes {
 public:
  explicit Attributes(Translator& tr) : tr_(tr) {}

  const TypeInfo& type_info(PyTypeObject*);
  // Looks the name up on the class; nullptr when absent. Guarded: that it is absent, that it is this very object when
  // that is a method in C or when no source is asked for, and whether it is a descriptor. The source is set to the
  // place on the class, for other objects to be guarded by whoever uses them.
  PyObject* lookup_on_type(PyTypeObject* type, PyObject* name, SourceId* source);
  // What accessing this class attribute on `self` gives (descriptor applied).
  Variable* bind_descriptor(PyObject* descr, SourceId source, Variable* self, PyTypeObject* type, PyObject* name);
  // A special method (looked up on the class), unbound; nullptr when absent.
  Variable* special_method(Variable* self, PyObject* name);
  Variable* special_method(Variable* self, const char* name);
  // To be called before an operator's function is called on tensors: that their classes have PyTorch's own method for
  // it is guarded.
  void tensor_operator(const std::string& method, std::initializer_list<Variable*> operands);
  // The class keeps its bases, and theirs: what it is a subclass of, and where its attributes are looked up.
  void guard_bases(PyTypeObject* type);

  // What the captured code put on a class.
  struct Write {
    PyTypeObject* type;
    PyObject* name;
    Variable* value;
  };
  const std::vector<Write>& writes() const { return writes_; }
  // Under this name, as classes derived from it see it; nullptr: nothing.
  Variable* written_on_type(PyTypeObject* type, PyObject* name);
  void write_on_type(PyTypeObject* type, PyObject* name, Variable* value);
  // The code has the class's __dict__, which shows what is written to the class from then on.
  void note_shown(PyTypeObject* type) { shown_.insert(type); }

 private:
  Translator& tr_;
  std::unordered_map<PyTypeObject*, TypeInfo> types_;
  std::unordered_map<PyTypeObject*, size_t> guarded_mros_;  // and the number of guards before
  std::vector<Write> writes_;
  std::unordered_set<PyTypeObject*> shown_;
};

}  // namespace braze::capture
