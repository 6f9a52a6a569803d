// Symbolic evaluation of bytecode: one attempt at one segment.
//
// A Translator goes through frames, one instruction at a time. What it knows and does has parts with one duty each: the
// variables, Python's protocols on them and the exceptions of the program are what every handler speaks in, and are
// reached through the translator itself; the others by their names.
//
// The evaluation is deterministic; a break that can't be taken where it was met (state was already changed by the
// instruction, or a frame between could not be continued) restarts the capture with the order to stop before an earlier
// instruction, named by its ordinal.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "capture/eval/attributes.h"
#include "capture/eval/branches.h"
#include "capture/eval/callback.h"
#include "capture/eval/capture.h"
#include "capture/eval/effects.h"
#include "capture/eval/frame.h"
#include "capture/eval/native.h"
#include "capture/eval/protocols.h"
#include "capture/eval/raising.h"
#include "capture/eval/real_calls.h"
#include "capture/eval/symbolic_floats.h"
#include "capture/eval/torch_function.h"
#include "capture/eval/values.h"
#include "capture/eval/variable.h"

namespace braze::capture {

class DictVariable;
class TensorVariable;

// Thrown to start the capture again with one more place to stop at.
struct Restart {
  uint64_t ordinal;
  Stop stop;
};

// Thrown to start the capture again with one more call of a functools.lru_cache, by its number (eval/real_calls.h),
// that is made for real.
struct MakeCall {
  uint64_t number;
};

// Thrown to start the capture again as if nothing were being captured: the program raised an exception after it had
// asked, which it may not raise where it runs as it is.
struct HideCompiling {};

// What earlier attempts found out: where to stop, which calls of caches are made for real, and what the program is told
// when it asks whether it is being compiled.
struct Decisions {
  bool compiling = true;
  std::map<uint64_t, Stop> stops;
  std::set<uint64_t> made_calls;
};

class Translator : public Values, public Protocols, public Raising {
 public:
  Translator(const FrameView& view, const Options& options, const Decisions& decisions);
  ~Translator();
  Segment run();

  Attributes attributes;
  RealCalls real;
  SymbolicFloats floats;
  Branches branches;
  HostCalls host;
  TorchFunctions torch_functions;
  Effects effects;

  // ---- the capture ----
  Segment& segment() { return segment_; }
  Sources& sources() { return *segment_.sources; }
  GuardSet& guards() { return segment_.guards; }
  trace::Tracer& tracer() { return *segment_.tracer; }
  const FrameView& view() const { return view_; }
  // Sizes and numbers that depend on data are to stay in the graph.
  // In a function of attention's scores (builtins/attention.cpp): tensors without dimensions stand for all of them.
  bool in_score_function = false;
  // In the context_fn of a checkpoint (builtins/checkpoint.cpp).
  bool in_context_fn = false;
  bool may_be_unbacked() const { return view_.unbacked || open_numbers_; }

  // ---- tensors and sizes that were there before ----
  void lifted(TensorVariable* v) { lifted_.push_back(v); }  // noted as a possible graph input
  const std::vector<TensorVariable*>& lifted_tensors() const { return lifted_; }
  void tensor_is_key() { tensor_keys_ = true; }  // one of them was looked up in a dict or set
  bool has_tensor_keys() const { return tensor_keys_; }
  void opened_integer(SourceId s) { open_integers_.push_back(s); }
  SourceId open_integer(size_t i) const { return open_integers_[i]; }  // in the order of lifting
  // The recipe's integer with this value; what is symbolic in it must be of this capture.
  int64_t recipe_integer(PyObject* sym);
  // The user's line where the tracer decided on a size, by the number that it noted.
  const UserLine& size_line(size_t where) const { return size_lines_[where]; }

  // ---- frames ----
  Frame* frame() { return frame_; }
  Frame* new_frame();
  Variable* run_frame(Frame* f);  // to its return or next yield; nullptr never
  Variable* run_in(Frame* f, Frame* caller, bool resumable);
  bool yielded() const { return yielded_; }  // how the last run_frame ended
  void set_yielded(bool yes) { yielded_ = yes; }
  DictVariable* globals_dict(const Frame& f);
  Variable* load_global(Frame& f, PyObject* name);
  // The receiver of a Send returned: its value is pushed, and the frame goes on after the loop of the `yield from`.
  void finish_send(Frame& f, const Instruction& send, Variable* result);
  void made_generator(Variable* g) { generators_.push_back(g); }
  const std::vector<Variable*>& generators() const { return generators_; }
  uint64_t ordinal() const { return ordinal_; }  // of the current instruction, counted from the start
  // The ordinal of the instruction during which autograd made the node of this number; 0: none where a capture may
  // stop.
  uint64_t that_made(uint64_t node) const;
  UserLine line() const;
  // What is evaluated while one of these lives is only looked at.
  class Trial;
  bool makes_call(uint64_t number) const { return decisions_.made_calls.count(number) != 0; }

  // What torch.compiler.is_compiling() says to the captured program.
  bool is_compiling() { return asked_compiling_ = true, decisions_.compiling; }

  // To be called before any change that can't be taken back by forgetting the current instruction's operands.
  void mutate() { dirty_ = changed_ = true; }
  // The same of a call of PyTorch's, which, when it fails, has changed nothing but tensors.
  void call_of_torch() { dirty_ = true; }

 private:
  void start_frame();
  Variable* step(Frame& f, const Instruction& ins);  // non-null: the value returned or yielded
  bool handle(Frame& f, PyRaise& raised);            // finds the handler
  [[noreturn]] void stop_here(const Stop& stop);
  void look_at_raising(Frame& f, const Instruction& ins, const Stop& stop);
  void leave();
  void note_nodes();
  struct Finished {};  // thrown by stop_here when the segment is complete

  friend class OpenNumbers;
  bool open_numbers_ = false;
  const FrameView& view_;
  const Options& options_;
  const Decisions& decisions_;
  Segment segment_;
  std::vector<TensorVariable*> lifted_;
  bool tensor_keys_ = false;
  std::vector<SourceId> open_integers_;
  std::vector<UserLine> size_lines_;
  std::vector<std::pair<uint64_t, uint64_t>> nodes_;  // the number of autograd's next node, and from which ordinal on
  std::vector<std::unique_ptr<Frame>> frames_;
  std::vector<Variable*> generators_;  // that were made here
  Frame* frame_ = nullptr;
  uint64_t ordinal_ = 0;
  uint64_t last_ordinal_ = 20'000'000;
  bool dirty_ = false, changed_ = false, yielded_ = false;
  bool entered_ = false;  // the tracer
  bool asked_compiling_ = false;
};

// While it lives, numbers that depend on data become symbols whatever the options say: for checks of them.
class OpenNumbers {
 public:
  explicit OpenNumbers(Translator& tr) : tr_(tr), before_(tr.open_numbers_) { set(true); }
  ~OpenNumbers() { set(before_); }
  OpenNumbers(const OpenNumbers&) = delete;

 private:
  void set(bool on) {
    tr_.open_numbers_ = on;
    tr_.tracer().allow_numbers(tr_.may_be_unbacked());
  }
  Translator& tr_;
  bool before_;
};

// Its instructions are not counted among those of the capture, which another attempt may go through without the trial.
// A Restart that it ends in is for whoever makes the trial; a long one ends in Unsupported.
class Translator::Trial {
 public:
  explicit Trial(Translator&);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

 private:
  Translator& tr_;
  uint64_t ordinal_, last_ordinal_;
  size_t known_;  // variables that were there before
};

}  // namespace braze::capture

// Looks at real objects go through eval/native.h, which asks for their ground.
#pragma GCC poison PyObject_GetAttr PyObject_GetAttrString PyObject_HasAttr PyObject_HasAttrString _PyObject_LookupAttr _PyType_Lookup
#pragma GCC poison PyObject_IsInstance PyObject_IsSubclass PyDict_GetItem PyDict_GetItemString PyDict_GetItemWithError
