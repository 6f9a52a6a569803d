// Symbolic evaluation of bytecode: frames, the capture they share, and the services that variables use.
//
// One Translator is one attempt at one segment. The evaluation is deterministic; a break that can't be taken where it was
// met (state was already changed by the instruction, or a frame between could not be continued) restarts the capture with the
// order to stop before an earlier instruction, named by its ordinal.
#pragma once
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/eval/capture.h"
#include "capture/eval/native.h"
#include "capture/eval/torch_function.h"
#include "capture/eval/variable.h"

namespace braze::capture {

class FunctionVariable;
class DictVariable;
class CellVariable;
class TensorVariable;
class ObjectVariable;
class ListVariable;
class TupleVariable;

// A frame being evaluated. Generators keep theirs between resumptions.
struct Frame {
  const Bytecode* code = nullptr;
  Variable* function = nullptr;     // nullptr: the outermost frame of a capture
  PyObject* globals = nullptr;      // borrowed, as is builtins
  PyObject* builtins = nullptr;
  SourceId globals_source;
  std::vector<Variable*> locals;    // localsplus; cells as CellVariable
  std::vector<Variable*> stack;     // of fixed capacity; above sp nothing counts
  int sp = 0;
  int ip = 0;
  uint64_t ordinal = 0;             // of the current instruction
  PyObject* kw_names = nullptr;     // the tuple of a KwNames that is in effect (borrowed from the code)
  bool resumable = false;           // its caller only waits for the result to push
  bool is_generator = false;
  Variable* pending = nullptr;      // an exception to be raised when the generator resumes
  Variable* handled = nullptr;      // what the generator was handling when it yielded
  Variable* around = nullptr;       // what the caller of a generator handles while it runs
  Frame* parent = nullptr;

  void push(Variable* v) { stack[sp++] = v; }
  Variable* pop() { return stack[--sp]; }
  Variable*& top(int i = 1) { return stack[sp - i]; }
  UserLine line() const { return {code->code, code->instructions[ip].line}; }
};

// Thrown to start the capture again with one more place to stop at.
struct Restart {
  uint64_t ordinal;
  Stop stop;
};

// What is known of a class that attributes were looked up on.
struct TypeInfo {
  bool generic = false;             // object.__getattribute__
  PyObject* getattribute = nullptr; // else: the class's own (borrowed)
  PyObject* getattr = nullptr;      // __getattr__, if any (borrowed)
};

// A lock of threading that was there before and that the captured code takes or asks for.
struct HeldLock {
  PyObject* object;     // borrowed
  SourceId source;
  uint64_t ordinal;     // where it was met first
  int count = 0;        // how often the code has taken it and not given it back
};

// Exceptions whose state is their arguments (and what an empty call of their class leaves in the other fields).
bool is_plain_exception(PyTypeObject* cls);
// Whether so little of the C stack is left that nothing may recurse further.
bool stack_is_low();

class Translator {
 public:
  Translator(const FrameView& view, const Options& options, const std::map<uint64_t, Stop>& stops);
  ~Translator();
  Segment run();

  // ---- making variables ----
  template <class T, class... A>
  T* make(A&&... args) {
    auto owned = std::make_unique<T>(std::forward<A>(args)...);
    T* p = owned.get();
    p->born = ordinal_;
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
  // A pre-existing object read from `source`; lazy. The same variable for the same source.
  Variable* wrap(PyObject* object, SourceId source);
  // An object made at capture time by a pure function: constants, containers of constants, fakes, and singletons.
  Variable* from_python(Ref object, Ground);
  // A pre-existing object that may be held for good (class, function of a module...): constant source.
  Variable* global_object(PyObject* object, Ground);
  Variable* force(Variable* v) { return v->kind == Kind::Lazy ? force_lazy(v) : v; }

  // ---- Python's protocols, on forced or lazy operands ----
  Variable* getattr(Variable* v, PyObject* name);                    // raises AttributeError
  Variable* getattr(Variable* v, const char* name) { return getattr(v, intern(name)); }
  Variable* getattr_or_null(Variable* v, PyObject* name);
  Variable* getattr_or_null(Variable* v, const char* name) { return getattr_or_null(v, intern(name)); }
  void setattr(Variable* v, PyObject* name, Variable* value);
  Variable* call(Variable* callee, Args args, bool resumable = false);
  Variable* call(Variable* callee, std::vector<Variable*> pos) { return call(callee, Args{std::move(pos), {}}); }
  Variable* call_method(Variable* self, const char* name, std::vector<Variable*> pos);  // self.name(*pos)
  Variable* binary_op(int op, Variable* a, Variable* b);  // NB_ADD...
  Variable* defer_arithmetic(int op, Variable* a, Variable* b);
  Variable* defer_negation(Variable* v);
  // ---- floats that vary from call to call (varying_numbers.cpp) ----
  // Such a float that nothing is known of yet, or what was computed from such, as a tensor that each call fills. nullptr: it is
  // to be looked at.
  Variable* varying_number(Variable* v);
  // Numbers of a pseudo-random generator of Python's or NumPy's: `call` is a tuple of a method of it, arguments, and keyword arguments
  // or None. Each run of the entry makes these calls first, in the order of the capture. A tensor of the type and size of `example`
  // (a real one): numbers are of type float64 or int64.
  TensorVariable* draw(Ref call, Ref example);
  // a op b of one beside a tensor; nullptr: not of that kind.
  Variable* varying_operand(int op, Variable* a, Variable* b);
  Variable* varying_comparison(int op, Variable* a, Variable* b);  // the same
  // a op b of such and constants: what it is in this call, with a guard that it is so. nullptr: they are to be looked at.
  Variable* decided_comparison(int op, Variable* a, Variable* b);
  // A float that nothing is known of yet, or that was computed from such, or that only the run knows.
  bool is_open_float(Variable* v);
  // One as an operand beside the tensor, in operators that take tensors where they take numbers; nullptr: it is to be looked at.
  Variable* number_beside(Variable* v, Variable* tensor);
  Variable* compare(int op, Variable* a, Variable* b);    // Py_LT...
  Variable* unary_op(Opcode op, Variable* v);
  bool equal(Variable* a, Variable* b);      // a == b, as a truth value
  bool identical(Variable* a, Variable* b);  // a is b, guarded where sources are involved
  bool same_item(Variable* a, Variable* b);  // a is b or a == b, as containers compare their items
  Variable* getitem(Variable* v, Variable* key, bool resumable = false);
  void setitem(Variable* v, Variable* key, Variable* value);
  void delitem(Variable* v, Variable* key);
  bool contains(Variable* v, Variable* item);
  Variable* iter(Variable* v);
  Variable* next(Variable* iterator) { return force(iterator)->next(*this); }
  std::vector<Variable*> unpack(Variable* iterable);   // list(iterable)
  bool truth(Variable* v);
  int64_t len(Variable* v) { return force(v)->len(*this); }
  bool is_instance(Variable* v, PyObject* cls);        // cls: class, tuple or union, real
  bool is_subclass(PyObject* derived, PyObject* cls);  // of real classes
  // That a class is none of an abstract one holds until another class is registered there.
  void guard_registrations(PyObject* cls);
  Variable* format(Variable* v, const std::string& spec, int conversion);

  // ---- attributes (attributes.cpp) ----
  const TypeInfo& type_info(PyTypeObject*);
  // Looks the name up on the class; nullptr when absent. Guarded: that it is absent, that it is this very object when that is a method in C
  // or when no source is asked for, and whether it is a descriptor. The source is set to the place on the class, for other objects to
  // be guarded by whoever uses them.
  PyObject* lookup_on_type(PyTypeObject* type, PyObject* name, SourceId* source);
  // What accessing this class attribute on `self` gives (descriptor applied).
  Variable* bind_descriptor(PyObject* descr, SourceId source, Variable* self, PyTypeObject* type, PyObject* name);
  // A special method (looked up on the class), unbound; nullptr when absent.
  Variable* special_method(Variable* self, PyObject* name);
  Variable* special_method(Variable* self, const char* name) { return special_method(self, intern(name)); }

  // To be called before an operator's function is called on a tensor: that the class has PyTorch's own method for it is guarded.
  void tensor_operator(const std::string& method);
  // What the captured code put on a class under this name, as classes derived from it see it; nullptr: nothing.
  Variable* written_on_type(PyTypeObject* type, PyObject* name);
  void write_on_type(PyTypeObject* type, PyObject* name, Variable* value);
  bool wrote_on_types() const { return !type_writes_.empty(); }
  // The class keeps its bases, and theirs: what it is a subclass of, and where its attributes are looked up.
  void guard_bases(PyTypeObject* type);

  // ---- calls ----
  // Runs a Python function symbolically.
  Variable* inline_function(FunctionVariable* fn, Args& args, bool resumable);
  Variable* instantiate(PyTypeObject* cls, Args& args);
  // What the __new__ of a class in C makes, for that class or one derived from it.
  Variable* builtin_new(PyTypeObject* cls, PyObject* new_function, Args& args);
  // Calls a real torch function on fakes; recorded.
  Variable* call_torch(PyObject* fn, const Args& args);
  // A call of a functools.lru_cache (a real one) on arguments that are the same objects in every call: what the cache holds for them.
  // nullptr: not for these; the function is to be evaluated.
  Variable* cached_call(Variable* cache, const Args& args);
  // Calls a real function of PyTorch that may call functions of the user (callback.h). `noted`: the function that the torch-level
  // graph shows in its place; none: that graph cannot show it.
  Variable* call_host(PyObject* fn, const Args& args, PyObject* noted = nullptr);
  // What such a function gave or hands to a callback.
  Variable* from_host(Ref object);
  Variable* host_object(Ref o);     // one that only the capture knows
  Ref callback(Variable* callee);   // a real callable that evaluates callee in this capture
  // A function of PyTorch's with callbacks in place of those of the user's that are in its closure (wraps_user_code).
  Ref with_callbacks(PyObject* function, SourceId source);
  PyObject* run_callback(Variable* callee, PyObject* args, PyObject* kwargs);
  // Calls a function of torch that only asks for metadata: on fakes, not recorded.
  Variable* query_torch(PyObject* fn, const Args& args);
  // The entry holds where the function in C, called again with these, answers the same.
  void guard_answer(PyObject* fn, const std::vector<PyObject*>& args, PyObject* answer);
  // Calls a real function without effects on constants. Throws Unsupported when an argument is none.
  Variable* call_pure(PyObject* fn, const Args& args);
  // The real value: constants, fakes and containers of them. Throws Unsupported for anything else.
  Ref to_python(Variable* v);
  bool is_python_constant(Variable* v);       // to_python gives a value without tensors
  Variable* specialised(Variable* v);         // open integers fixed to their values in this call, in tuples and lists too
  bool has_tensor(const Args& args);
  // A class that the captured code defines: made now, and only good as long as neither it nor an instance leaves the capture,
  // since each call of the code would make another.
  Variable* made_class(Ref cls);
  bool is_made_class(PyTypeObject* cls) const { return made_classes_.count(reinterpret_cast<PyObject*>(cls)) != 0; }
  // Throws CannotRebuild for an instance of such a class.
  void check_rebuild(PyTypeObject* cls) const;
  // A polyfill: a function of braze.polyfills by name.
  Variable* polyfill(const char* name);

  // ---- torch functions of the user's (torch_function.h) ----
  TorchFunction torch_function(PyTypeObject* cls);
  // Whether a call of torch with these arguments now runs a __torch_function__ of the user's.
  bool overrides_torch(const Args& args);
  // Calls a function of torch that such a function takes over.
  Variable* call_overridden(PyObject* fn, const Args& args);
  // Makes t, whose fake this is, a tensor of the class, for the program and for PyTorch.
  void set_tensor_class(TensorVariable* t, PyObject* fake, PyTypeObject* cls);
  PyTypeObject* class_behind(PyTypeObject* cls) const;
  // Tensors in a result made here become tensors of the class.
  Variable* of_tensor_class(Variable* v, PyTypeObject* cls);
  // `with device:`, entered for real while capturing; a context that is open when the segment ends is entered again by the entry.
  void enter_device(PyObject* device);
  bool exit_device();  // false: it was entered before
  void push_function_mode(Variable* mode);
  Variable* pop_function_mode();

  // ---- raising ----
  [[noreturn]] void raise(PyObject* type, const std::string& message);
  [[noreturn]] void raise(Variable* exception);
  [[noreturn]] void raise_current();          // the Python exception that is set, after a call into CPython failed
  // What sys.exc_info() gives: of this frame, or of a caller of the generator that runs. nullptr: nothing.
  Variable* being_handled();
  // Sets __context__ of an exception that is raised, as the interpreter does.
  void chain_context(Variable* exception, Variable* context);
  bool was_raised(const Variable* exception) const { auto it = origins_.find(exception); return it != origins_.end() && it->second > 0; }
  // The traceback, or something else that only a real raise gives, is wanted: the instruction that raised it is to be carried out natively.
  [[noreturn]] void raise_natively(Variable* exception, const char* why);
  // Ends the segment when the C stack is about to end (a recursion over values that are deeply nested).
  void check_stack() { if (stack_is_low()) unsupported("values that are nested too deeply"); }
  // A copy of the exception set, for "no attribute": clears it.
  [[noreturn]] void unsupported(Reason r, const std::string& detail);
  [[noreturn]] void unsupported(const std::string& detail) { unsupported(Reason::UnsupportedFeature, detail); }

  // ---- state that breaks restore ----
  // To be called before any change that can't be taken back by forgetting the current instruction's operands.
  void mutate() { dirty_ = true; }
  // Called by mutable variables that have a source, at their first change.
  void modified(Variable* v);
  DictVariable* globals_dict(const Frame& f);
  // A call without a result that matters here, made when the entry runs, after its graph and in order with others: logging, warnings.
  void defer_call(Variable* callee, Args args);

  // Made by the entry whether or not it is part of what it gives, for the effect that making it has.
  void make_always(Variable* v) { always_made_.push_back(v); }
  // Of objects made here that nothing outside of the capture sees: a backward may change them as well.
  void private_to_capture(Variable* v) { private_.insert(v); }
  // The entry takes this lock before its graph runs and gives it back at its end, or runs uncompiled where another thread has it:
  // what it holds in the meantime the code may take and give back. Of the captured code, the entry's end included, none is left taken.
  HeldLock* held_lock(Variable* lock);

  // Changes interpreter state for the rest of the capture (grad mode, autocast...): calls set(value) now, and when the
  // entry runs; undone when the capture ends. get() reads the present state.
  void set_state(PyObject* get, std::vector<Ref> get_args, PyObject* set, std::vector<Ref> set_args);

  // ---- gradients (vars/tensor_grad.h) ----
  const std::vector<TensorVariable*>& lifted_tensors() const { return lifted_; }
  void stands_for(PyObject* fake, Variable* v) { by_object_.try_emplace(fake, v); }
  // The variable that is known under this object's address, if any.
  Variable* standing_for(PyObject* o) const { auto it = by_object_.find(o); return it == by_object_.end() ? nullptr : it->second; }
  void tensor_is_key() { tensor_keys_ = true; }
  void watch_gradient(TensorVariable* t) {
    for (TensorVariable* o : gradients_)
      if (o == t) return;
    gradients_.push_back(t);
  }
  bool inference = false;                     // torch.inference_mode() was entered in the captured code
  // Not 0: what is evaluated may not change what was there before this ordinal, nor have effects. `pure_part` says what it is: the
  // backward of the user's (the entry runs before its backward does), or a branch that is evaluated whether it is taken or not.
  std::unordered_map<Variable*, Variable*> weakrefs;  // those made in the capture, by what they refer to
  uint64_t pure_since = 0;
  const char* pure_part = "";
  void no_effect(const char* what) { if (pure_since) unsupported(Reason::UnsupportedMutation, std::string(pure_part) + " " + what); }

  // ---- branches on what only the run knows (branches.cpp) ----
  // Evaluates both, so that the results of one can be selected: a tuple of two. Throws Unsupported where one of them may not be run
  // in vain, or their results cannot be selected element by element.
  Variable* both_branches(Variable* predicate, Variable* if_true, Variable* if_false, const std::vector<Variable*>& operands);
  // Throws Restart if both branches of something were evaluated: what follows cannot be had with them.
  void without_both_branches(const char* why);

  // ---- frames ----
  Frame* frame() { return frame_; }
  Frame* new_frame();
  Variable* run_frame(Frame* f);              // to its return or next yield; nullptr never
  uint64_t ordinal() const { return ordinal_; }
  // What a StopIteration that leaves a generator becomes.
  [[noreturn]] void raise_stop_iteration_error(Variable* exception);
  // The receiver of a Send returned: its value is pushed, and the frame goes on after the loop of the `yield from`.
  void finish_send(Frame& f, const Instruction& send, Variable* result);
  bool yielded() const { return yielded_; }   // how the last run_frame ended
  Variable* run_in(Frame* f, Frame* caller, bool resumable);
  UserLine line() const;
  Variable* handled = nullptr;                // the exception being handled (None: none); nullptr: as it was at the start

  Sources& sources() { return *segment_.sources; }
  GuardSet& guards() { return segment_.guards; }
  trace::Tracer& tracer() { return *segment_.tracer; }
  bool anchored(SourceId s);                  // below something that is fixed
  void guard_identity(SourceId s, PyObject* o);
  PyObject* intern(const char* s);            // borrowed, kept
  const char* intern_text(const std::string& s);
  PyObject* keep(Ref o) { kept_.push_back(o); return o.get(); }
  void lifted(TensorVariable* v);             // noted as a possible graph input
  // The recipe's integer with this value; what is symbolic in it must be of this capture.
  int64_t recipe_integer(PyObject* sym);
  // Sizes and numbers that depend on data are to stay in the graph.
  bool may_be_unbacked() const { return view_.unbacked; }

 private:
  friend class Codegen;
  friend class Instructions;
  friend class Classifier;
  Variable* force_lazy(Variable*);
  Variable* classify(PyObject* o, SourceId s);
  Variable* step(Frame& f, const Instruction& ins);       // non-null: the value returned or yielded
  PyObject* raised_from(Frame& f, int at, PyObject** text);
  bool checks(Frame& f, const Instruction& ins, int& next);
  bool handle(Frame& f, PyRaise& raised);                 // finds the handler
  [[noreturn]] void stop_here(const Stop& stop);
  void refuse_open_generators();
  void finish(Variable* result);
  void emit_frames(Codegen& cg);
  void emit_effects(Codegen& cg);
  void emit_locks();
  void emit_gradients(Codegen& cg);
  Variable* record_call(PyObject* fn, const Args& args);
  Ref run_host(PyObject* fn, const Args& args, PyObject* noted, bool overridden);
  void shade(PyObject* fake, PyTypeObject* cls);   // PyTorch asks the capture for the torch functions of this fake
  Ref stand_in(Variable* v);                       // a real object with the torch function of v
  Ref mode_stand_in(Variable* mode);
  void adopt_function_modes();
  void restore_function_modes();
  void leave_devices();
  std::vector<Ref> function_modes() const;
  void emit_function_modes(Codegen& cg);
  graph::Location location() const;
  void finish_graph(Codegen& cg);
  void guard_distinct_objects();
  void start_frame();
  void undo_states();
  void bind_arguments(FunctionVariable* fn, Args& args, Frame& f);
  Variable* load_const(PyObject* o);
  Variable* load_global(Frame& f, PyObject* name);
  void make_function(Frame& f, int flags);
  Variable* annotations_dict(Variable* v);
  void raise_instruction(Frame& f, int n);
  void call_instruction(Frame& f, int n);
  void call_ex_instruction(Frame& f, bool keywords);
  void before_with(Frame& f);
  Variable* handled_at_start();                             // None within a generator
  int send_instruction(Frame& f, const Instruction& ins, int next);
  struct Finished {};                                     // thrown by stop_here when the segment is complete

  const FrameView& view_;
  const Options& options_;
  const std::map<uint64_t, Stop>& stops_;
  std::vector<std::unique_ptr<Variable>> arena_;
  std::vector<std::unique_ptr<Frame>> frames_;
  std::vector<Ref> kept_;
  std::unordered_map<std::string_view, PyObject*> interned_;
  std::unordered_map<uint32_t, Variable*> by_source_;
  std::unordered_map<PyObject*, Variable*> by_object_;     // mutable pre-existing objects that were forced
  bool tensor_keys_ = false;                               // a tensor of before was looked up in a dict or set
  std::unordered_map<PyObject*, Variable*> global_objects_;
  std::unordered_map<PyObject*, Variable*> consts_;        // constants of code objects
  std::unordered_map<const Variable*, uint64_t> origins_;   // of exceptions: the instruction that raised them first
  std::unordered_map<PyTypeObject*, TypeInfo> types_;
  std::unordered_map<PyTypeObject*, size_t> guarded_mros_;  // and the number of guards before
  std::unordered_map<uint32_t, bool> identities_;          // sources with an identity guard
  std::unordered_map<PyObject*, Variable*> made_classes_;
  struct TypeWrite { PyTypeObject* type; PyObject* name; Variable* value; };
  std::vector<TypeWrite> type_writes_;
  std::vector<Variable*> modified_;
  std::vector<TensorVariable*> lifted_;
  std::vector<SourceId> open_integers_;       // in the order of lifting
  struct Number { SourceId source; Ref tensor; Variable* variable; };
  std::vector<Number> numbers_;               // floats that are operands
  std::vector<UserLine> size_lines_;          // of decisions on sizes
  bool holds_no_tensor(Variable* v, int& budget, bool& object);
  void finish_sizes();
  void verify_grounds();
  void add_gradients();
  Variable* branch(Variable* predicate, bool when, Variable* fn, const std::vector<Variable*>& operands);
  bool selectable(Variable* a, Variable* b);
  uint64_t first_choice_ = 0;                 // the ordinal of the first both_branches()
  struct State { PyObject* get; std::vector<Ref> get_args; PyObject* set; std::vector<Ref> set_args; Ref before; };
  std::vector<State> states_;
  struct DeferredCall { Variable* callee; Args args; };
  std::vector<DeferredCall> deferred_;
  std::deque<HeldLock> locks_;               // addresses stay
  std::vector<Variable*> always_made_;
  std::unordered_set<Variable*> private_;
  std::vector<TensorVariable*> gradients_;   // tensors that were there before, whose .grad was read or written
  std::shared_ptr<Translator*> alive_;
  // Values go to or come from a call of call_host(). Said by Hosting, for as long as that lives; code that is evaluated meanwhile, an
  // iterator's that is unpacked for the call, say, is none of PyTorch's.
  bool hosting_ = false;
  class Hosting {
   public:
    Hosting(Translator& tr, bool on) : flag_(tr.hosting_), before_(std::exchange(tr.hosting_, on)) {}
    ~Hosting() { flag_ = before_; }
    Hosting(const Hosting&) = delete;
    Hosting& operator=(const Hosting&) = delete;

   private:
    bool &flag_, before_;
  };
  std::exception_ptr pending_;               // what ended a callback
  std::unordered_map<PyObject*, Variable*> hosts_;
  int callback_depth_ = 0;
  std::unordered_map<PyTypeObject*, TorchFunction> torch_functions_;
  std::unordered_map<PyTypeObject*, Ref> shadows_;          // classes of fakes in place of the user's
  std::unordered_map<PyObject*, Variable*> stand_ins_;      // what real objects and classes made for the capture stand for
  std::unordered_map<Variable*, PyObject*> ducks_;          // objects with a torch function, and theirs
  bool subclasses_ = false, own_modes_ = false;             // whether there are any in this capture
  std::vector<Ref> first_modes_;                            // of torch functions, at the start
  struct CachedCall { PyObject *cache, *key; SourceId source; };
  std::vector<CachedCall> cached_calls_;
  std::vector<Ref> devices_;                                // contexts of devices that are open
  size_t cached_deferred_ = 0;                              // of deferred_: calls of caches
  Variable *none_, *true_, *false_;
  std::unordered_map<int64_t, Variable*> integers_;
  Segment segment_;
  Frame* frame_ = nullptr;
  uint64_t ordinal_ = 0;
  bool dirty_ = false;
  size_t forgotten_ = SIZE_MAX;  // variables of arena_ from here on were made by the instruction that ended the capture
  std::vector<Variable*> generators_;  // that were made here
  bool yielded_ = false;
  Variable* handled_before_ = nullptr;                      // what the thread handles at the start, lazy
  int depth_ = 0;
  bool entered_ = false;
};

}  // namespace braze::capture

// Looks at real objects go through eval/native.h, which asks for their ground.
#pragma GCC poison PyObject_GetAttr PyObject_GetAttrString PyObject_HasAttr PyObject_HasAttrString _PyObject_LookupAttr _PyType_Lookup
#pragma GCC poison PyObject_IsInstance PyObject_IsSubclass PyDict_GetItem PyDict_GetItemString PyDict_GetItemWithError
