// The end of a segment: what the frames, the effects and the results are made from, the graph with its inputs, and the
// guards that only the end knows of.
#pragma once
#include <vector>

#include "capture/eval/capture.h"
#include "capture/eval/variable.h"

namespace braze::capture {

struct Frame;

class SegmentEnd {
 public:
  explicit SegmentEnd(Translator& tr) : tr_(tr) {}

  // The outermost frame returned. Throws Restart where something of it cannot be had that late.
  void at_return(Variable* result);
  // Before the current instruction: the interpreter goes on with the frames as they are. Throws Restart likewise.
  void before_instruction(const BreakInfo& info);
  // What no code of the program is evaluated for any more: gradients, sizes, checks of our own.
  void complete();

 private:
  // The interpreter closes a generator that nobody holds any more: one that would then run code of the program's is
  // left to it. Asked when all is built that outlives the compiled code.
  void refuse_open_generators();
  bool holds_no_tensor(Variable* v, int& budget, bool& object);
  // Whether a generator that is not through, and may have an end to run by the time it is let go of, is held by this
  // value.
  bool holds_generator(Variable* v, int& budget);
  // Whether a local that can't be read any more stays in its frame. What was there before may be kept alive by that
  // frame alone; what a weak reference or a finalizer may tell the end of stays too, where that costs no tensor.
  bool stays(Variable* local);
  void emit_frames(Codegen& cg);
  void finish_graph(Codegen& cg);
  void guard_parameters();
  void guard_written_inputs();
  void guard_distinct_objects();
  void add_gradients();
  void stop_before(const trace::BackwardRefused& e);
  void without_gradients(const Unsupported& e);
  void finish_sizes();
  void refuse_fixed_marks(const trace::SizePlace& place, SourceId source);

  Translator& tr_;
  struct Input {
    SourceId source;
    PyObject* tensor;
    bool number;
  };  // of the graph, constants aside; a number stands for a float
  std::vector<Input> inputs_;
};

}  // namespace braze::capture
