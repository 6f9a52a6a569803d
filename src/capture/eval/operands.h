// What operators ask of their operands, and Python's tables of them.
#pragma once
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {

struct OperatorRow {
  const char* symbol;
  const char* method;     // __add__
  const char* reflected;  // __radd__
  const char* inplace;    // __iadd__
  binaryfunc function;
  binaryfunc inplace_function;
  const char* operator_name;  // of module operator
};
// By CPython's NB_ number, without those of the operators in place.
const OperatorRow& operator_row(int base);
// A function of module operator, held for good: that of C, whatever the program put in its place.
PyObject* operator_function(const char* name);

// Kinds of operands, as a set.
using KindSet = uint32_t;
constexpr KindSet kAnyKind = ~KindSet{0};
template <class... K>
constexpr KindSet kinds(K... k) {
  return ((KindSet{1} << static_cast<int>(k)) | ...);
}
inline bool among(Variable* v, KindSet set) { return (set >> static_cast<int>(v->kind)) & 1; }

// An operator that goes through PyTorch: a tensor, or something that holds one, is involved.
inline bool for_torch(Variable* v) { return v->is(Kind::Tensor); }
// Numbers, texts and other values of Python's own, and their real value: a constant, or a symbolic number.
inline bool is_plain(Variable* v) { return v->is(Kind::Constant) || v->is(Kind::Sym); }
PyObject* plain(Variable* v);
// An int that may meet an open one: what is computed from sizes and such stays far inside of 64 bits.
bool small_int(Variable* v);
// A symbolic number that depends on data, in a graph that may hold such.
bool only_run_knows(Translator& tr, Variable* v);
// Open integers are compared and combined with small integers only; with others they are fixed to their values.
void close_unlike(Translator& tr, Variable*& a, Variable*& b);
// Numbers and strings of a class of the user's, which may define operators of its own; and all values of which that
// holds.
bool user_number(Variable* v);
bool user_class(Variable* v);
bool not_implemented(Variable* v);
// Whether what a class has under a name is a method in C, or a function of the standard library's or PyTorch's.
bool is_library_method(PyObject* f);
// Whether a class has a special method of the program's; that it has none, or which of the library's, is guarded.
bool has_own(Translator& tr, PyTypeObject* type, const char* method);
// The content of an object whose class derives from a container or number; else the object.
Variable* content(Variable* v);
// Whether an object of the program's class leaves this method to a class in C that has an answer for the other, so that
// the other's reflected method is not asked.
bool content_answers(Translator& tr, Variable* v, const char* method, Variable* other);
// Ends the graph where a tensor on the left would hand the operator to the other's __torch_function__ before any method
// of its class is asked.
void leave_to_torch_function(Translator& tr, Variable* a, Variable* b, const char* symbol);
// What PyTorch makes of a number of the user's class: its value. nullptr: no such number.
Variable* as_number(Translator& tr, Variable* v);
// v.<name>(other) by the class's special method; nullptr for none or NotImplemented.
Variable* try_special(Translator& tr, Variable* v, const char* name, Variable* other);

}  // namespace braze::capture
