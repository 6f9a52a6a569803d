// Guards: what a compiled entry assumed, as data while capturing, and compiled to a flat check.
//
// The check has two parts. What hangs off objects that are fixed (constants, and objects whose identity is guarded) is
// *watched*: a table of (address, expected word), for the types of objects, the version tags of dicts and types, the
// items of lists, the contents of cells... scanned linearly. A dict or type whose tag moved has the keys that were read
// looked up again, and the new tag remembered. All else is fetched from the frame's slots and checked, step by step, in
// the order of cost. No Python code runs while checking, except the hash and equality of keys that a user put into a
// dict.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/hash_index.h"
#include "capture/code/bytecode.h"
#include "capture/guards/float_condition.h"
#include "capture/guards/guard_values.h"
#include "capture/guards/source.h"
#include "launch/tensor_spec.h"
#include "symbolic/expr.h"
#include "trace/global_state.h"
#include "trace/trace.h"

namespace braze::capture {

enum class GuardKind : uint8_t {
  TypeIs,        // Py_TYPE(value) is `object`
  Identity,      // value is `object`; what is read through it from here on is watched while it lives
  WeakIdentity,  // value is `object`; what is read through it is read anew
  Equal,   // same type and same value as `object`, recursively through tuples: int, float (by bits), str, bytes, bool,
           // None, complex, slice, Ellipsis, dtype-like singletons by identity
  Tensor,  // value matches `tensor` (launch::matches); objects that are no tensors fail
  Exists,  // the source leads somewhere (DictItem: key is there; TypeAttr: found)
  Absent,  // the source leads nowhere (dict lacks the key, attribute is not on the type, cell is empty, local unbound)
  Lacks,   // a dict, where there is one, has none of `members`, which are strings
  Length,  // list, tuple, dict or set: `number` of items
  DictKeys,     // keys are `members`, in that order (equal as in Equal, else identical)
  SameObject,   // value is the value of `other`
  Distinct,     // value is not the value of `other`
  AllDistinct,  // no two of `group` have the same value
  SetMembers,   // set or frozenset: its members, in the order of iteration, are `members` (as in DictKeys)
  RangeIs,      // a range object with the same start, stop, step as `object`
  Answer,       // the value, a function in C, called with the arguments object[0] gives a constant equal to object[1]
  Apart,        // the first `number` tensors of `group` share memory with no other of it
  FloatHolds,   // `floats` of the floats of `group`
};

struct Guard {
  GuardKind kind;
  SourceId source;
  SourceId other;
  int64_t number = 0;
  LooseRef object;
  std::shared_ptr<const launch::TensorSpec> tensor;
  UserLine line;
  std::vector<trace::SymbolicDim> symbolic = {};  // Tensor: what the spec leaves open
  std::vector<SourceId> group = {};               // AllDistinct, Apart, FloatHolds; `source` is the first
  std::vector<LooseRef> members = {};             // DictKeys, SetMembers, Lacks
  LooseRef type = {};                             // besides, Py_TYPE(value) is this; of guards on one value
  std::shared_ptr<const FloatCondition> floats = {};
};

// Collected while capturing. Adding the same guard twice keeps the first.
class GuardSet {
 public:
  void type_is(SourceId s, PyTypeObject* type, UserLine line);
  void identity(SourceId s, PyObject* object, UserLine line);
  void weak_identity(SourceId s, PyObject* object, UserLine line);  // of a class with weak references
  void equal(SourceId s, PyObject* object, UserLine line);
  // Takes a snapshot of the real tensor; what is symbolic is left to SizeGuards.
  void tensor(SourceId s, PyObject* tensor, const std::vector<trace::SymbolicDim>& symbolic, UserLine line);
  void exists(SourceId s, UserLine line);
  void absent(SourceId s, UserLine line);
  void length(SourceId s, int64_t n, UserLine line);
  void dict_keys(SourceId s, PyObject* dict, UserLine line);
  void same_object(SourceId a, SourceId b, UserLine line);
  void distinct(SourceId a, SourceId b, UserLine line);
  void all_distinct(std::vector<SourceId> group, UserLine line);  // two or more
  void set_members(SourceId s, PyObject* set, UserLine line);
  void range_is(SourceId s, PyObject* range, UserLine line);
  void answer(SourceId function, PyObject* arguments, PyObject* answer, UserLine line);
  void float_holds(FloatCondition condition, UserLine line);
  void apart(std::vector<SourceId> group, size_t written, UserLine line);  // the written ones first

  const std::vector<Guard>& items() const { return items_; }
  // Of guards that were written down: nothing is added to them but what is to exist.
  void restore(std::vector<Guard> items) { items_ = std::move(items); }
  // Removes what is read off these objects, which each call makes anew.
  void forget(const std::unordered_set<PyObject*>& made, const Sources& sources);
  // Removes what others imply, and joins a guard on the class of a value with another on the same value. At the end of
  // a capture.
  void simplify(const Sources& sources);
  void truncate(size_t n);  // back to an earlier size(): what a rolled back part of the capture added goes away
  size_t size() const { return items_.size(); }

 private:
  bool add(Guard guard);
  std::vector<Guard> items_;
  HashIndex index_;
};

std::string print(const Guard&, const Sources&);

// The sizes and integers that stay open: where a call reads them, what must hold, and what is computed from them.
struct SizeGuards {
  struct Symbol {
    sym::Expr symbol;
    sym::Range range;
  };
  struct Place {
    SourceId source;
    uint32_t symbol;  // all places of a symbol must agree
    int32_t dim;      // of a tensor: size of dimension d (d >= 0), or stride ~d
    bool integer;     // the source is an int
  };
  struct Condition {
    sym::Expr condition;
    UserLine line;
  };
  std::shared_ptr<const sym::ExprArena> arena;
  std::vector<Symbol> symbols;
  std::vector<Place> places;
  std::vector<Condition> conditions;
  std::vector<sym::Expr> values;  // what the entry needs when the guards hold

  bool empty() const { return places.empty(); }
};
std::vector<std::string> print(const SizeGuards&, const Sources&);

// The compiled form.
class GuardProgram {
 public:
  // Fixes the order of checks and what is watched. `wanted`: sources whose values the caller needs after a successful
  // check (graph inputs, recipe loads), in GuardValues::values. `global_state`: trace::global_state_key() at capture.
  static std::unique_ptr<GuardProgram> compile(std::shared_ptr<const Sources> sources, const GuardSet& guards,
                                               const std::vector<SourceId>& wanted, uint64_t global_state,
                                               size_t num_locals_plus, SizeGuards sizes = {});
  virtual ~GuardProgram() = default;

  // slots: localsplus then stack, borrowed. True: all guards hold, and `out` has the values. It may run code of the
  // user's, which may check the same guards with other `out`.
  virtual bool check(PyObject* const* slots, GuardValues& out) = 0;
  // Why the check that filled `of` failed.
  virtual std::string failure(const GuardValues& of) const = 0;
  // Which object is gone, once is_over(), in words; and where it was.
  virtual std::string ended() const = 0;
  struct Place {
    std::string source;   // empty: it has no name
    bool tensor = false;  // what was there when it was captured
  };
  virtual Place ended_place() const = 0;
  // Whether the check that filled `of` found another object than it wants where there was a tensor.
  virtual bool wants_tensor(const GuardValues& of) const = 0;
  // Where it found another object or tensor; without a name: nowhere.
  virtual Place other_object(const GuardValues& of) const = 0;
  // What is compared by address and not kept alive. When the first of them goes, no check holds any more: `then` is
  // called, which may end the program.
  virtual const std::unordered_set<PyObject*>& mortals() const = 0;
  virtual void when_over(std::function<void()> then) = 0;
  virtual bool is_over() const = 0;
  virtual size_t num_watched() const = 0;
  virtual size_t num_steps() const = 0;
  // For the garbage collector: every reference that is held.
  virtual int traverse(visitproc visit, void* arg) const = 0;

 protected:
  // For the one that implements this: the inside of GuardValues.
  static PyObject** registers(GuardValues& v, size_t registers, size_t integers) {
    return v.reset(registers, integers), v.registers_;
  }
  static int64_t* integers(GuardValues& v) { return v.integers_; }
  static GuardFailure& failure_of(GuardValues& v) { return v.failure_; }
};

}  // namespace braze::capture
