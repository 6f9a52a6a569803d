// The variables of a capture: how they are made, under which sources and objects they are known, why what is known of
// them holds.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/eval/variable.h"

namespace braze::capture {

class DictVariable;
class LazyVariable;
class ListVariable;
class TupleVariable;

class Values {
 public:
  explicit Values(Translator& tr);

  template <class T, class... A>
  T* make(A&&... args) {
    auto owned = std::make_unique<T>(std::forward<A>(args)...);
    T* p = owned.get();
    p->born = now();
    arena_.push_back(std::move(owned));
    return p;
  }
  // What is known says why it holds in every run of the entry (guards/ground.h).
  Variable* constant(PyObject* o, Ground);  // a new Constant on a borrowed object
  Variable* constant(Ref o, Ground g) { return constant(o.get(), g); }
  Variable* none() { return none_; }
  Variable* boolean(bool b, Ground) { return b ? true_ : false_; }
  Variable* integer(int64_t, Ground);
  Variable* string(const std::string&, Ground);
  TupleVariable* tuple(std::vector<Variable*> items);
  Variable* make_tuple(PyTypeObject* cls, std::vector<Variable*> items);  // of a class of tuples
  ListVariable* list(std::vector<Variable*> items);
  DictVariable* dict();
  // A constant of a code object; the same variable for the same object.
  Variable* load_const(PyObject* o);
  // An object made at capture time by a pure function: constants, containers of constants, fakes, and singletons.
  Variable* from_python(Ref object, Ground);

  // A pre-existing object read from `source`; lazy. The same variable for the same source.
  Variable* wrap(PyObject* object, SourceId source);
  // A pre-existing object that may be held for good (class, function of a module...): constant source.
  Variable* global_object(PyObject* object, Ground);
  Variable* force(Variable* v) { return v->kind == Kind::Lazy ? force_lazy(v) : v; }
  // The object that was wrapped at this source, if any (borrowed).
  PyObject* wrapped_at(SourceId) const;
  // The variable that is known under this object's address: a mutable object of before that was forced, or a fake.
  // nullptr: none.
  Variable* standing_for(PyObject* o) const {
    auto it = by_object_.find(o);
    return it == by_object_.end() ? nullptr : it->second;
  }
  void stands_for(PyObject* object, Variable* v) { by_object_.try_emplace(object, v); }
  // A real object or class that was made for the capture, in place of what the variable says.
  void stand_in_for(PyObject* made, Variable* v) { stand_ins_[made] = v; }
  Variable* behind(PyObject* made) const {
    auto it = stand_ins_.find(made);
    return it == stand_ins_.end() ? nullptr : it->second;
  }
  const std::unordered_map<PyObject*, Variable*>& objects() const { return by_object_; }
  // Every variable, in the order of making.
  const std::vector<std::unique_ptr<Variable>>& all() const { return arena_; }
  // The variables from this one on were made by an instruction that the segment ends before: what they know is not
  // said.
  void forget_from(size_t index) { forgotten_ = index; }

  bool anchored(SourceId s);  // below something that is fixed
  // Whether the tensor there is taken to be the same one in every call.
  bool is_fixed(SourceId s, PyObject* tensor);
  bool on_stack(SourceId s);  // found in what the frame's stack held at the start
  void guard_identity(SourceId s, PyObject* o);
  // Whether a tensor that is made in the capture is an inference tensor.
  bool is_inference(TensorVariable* t);
  // Whether a fake is on the memory of a tensor that is no inference tensor: of one that was there before, of any.
  bool on_plain_input(PyObject* fake);
  bool on_plain_memory(PyObject* fake);
  void guards_truncated();  // what rested on guards that are gone is asked for anew

  // A class that the captured code defines: made now, and only good as long as neither it nor an instance leaves the
  // capture, since each call of the code would make another.
  Variable* made_class(Ref cls);
  // The classes that the code made, and their dicts.
  std::unordered_set<PyObject*> of_made_classes() const;
  bool is_made_class(PyTypeObject* cls) const { return made_classes_.count(reinterpret_cast<PyObject*>(cls)) != 0; }
  // Throws CannotRebuild for an instance of such a class.
  void check_rebuild(PyTypeObject* cls) const;

  PyObject* intern(const char* s);  // borrowed, kept
  const char* intern_text(const std::string& s);
  PyObject* keep(Ref o) {
    kept_.push_back(o);
    return o.get();
  }

  // Throws InternalError unless every constant that says that it is guarded has its guard.
  void verify_grounds();

 private:
  friend class Classifier;
  uint64_t now() const;  // the ordinal of the current instruction
  Variable* force_lazy(Variable*);
  Variable* classify(PyObject* o, SourceId s);

  Translator& tr_;
  std::vector<std::unique_ptr<Variable>> arena_;
  size_t forgotten_ = SIZE_MAX;
  std::vector<Ref> kept_;
  std::unordered_map<std::string_view, PyObject*> interned_;
  std::unordered_map<uint32_t, Variable*> by_source_;
  std::unordered_map<PyObject*, Variable*> by_object_;
  std::unordered_map<PyObject*, Variable*> stand_ins_;
  std::unordered_map<PyObject*, Variable*> global_objects_;
  std::unordered_map<PyObject*, Variable*> consts_;  // constants of code objects
  std::unordered_map<int64_t, Variable*> integers_;
  std::unordered_map<uint32_t, bool> identities_;  // sources with an identity guard
  std::unordered_map<uint32_t, bool> passing_;     // what was known of sources of tensors, by SeenSizes::is_passing()
  struct Computed {
    LazyVariable* number;
    size_t guards;
  };
  void note_plain_memory(PyObject* except);
  std::unordered_set<uint64_t> plain_memory_,
      plain_inputs_;  // storages of tensors that are no inference tensors, of those up to
  size_t plain_until_ = 0, plain_until_lifted_ = 0;
  std::vector<Computed> computed_;  // numbers that were looked at, and how many guards there were before
  std::unordered_map<PyObject*, Variable*> made_classes_;
  Variable *none_, *true_, *false_;
};

}  // namespace braze::capture
