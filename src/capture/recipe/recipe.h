// A recipe rebuilds Python values after a compiled graph ran: what the code returns, or the frames as they must be
// where capture stopped; side effects are replayed in program order. A flat program over registers, run natively. A
// register is written once: one tracker, one register, one object, so identity and aliasing are as in the source
// program.
#pragma once
#include <string>
#include <vector>

#include "capture/code/bytecode.h"
#include "capture/guards/source.h"

namespace braze::capture {

using Reg = int32_t;
constexpr Reg kNoReg = -1;
constexpr Reg kAsBefore = -2;  // of a local: what the frame has there

enum class StepKind : uint8_t {
  Load,         // dst = value of source `source` as it was when guards were checked
  GraphOutput,  // dst = output number `number` of the graph
  Const,        // dst = object
  Integer,      // dst = the entry's size value `number`, an int
  Truth,        // the same as a bool
  Tuple,
  List,  // dst = of args
  Set,
  FrozenSet,  // dst = of args[1:] with the table of a0 (set_table.h)
  Dict,       // dst = of args: key, value, key, value...
  Slice,      // dst = slice(a0, a1, a2)
  NewObject,  // dst = object.__new__-like instance of the type a0, without calling __init__ (tp_alloc-level base's
              // __new__)
  NewCell,    // dst = a cell, empty, or holding a0
  Function,  // dst = function: a0 code, a1 globals, a2 name/qualname (or none), a3 defaults, a4 kwdefaults, a5 closure,
             // a6 annotations (kNoReg: none)
  BoundMethod,  // dst = method(a0 function, a1 self)
  Call,         // dst = a0(args...); object: tuple of keyword names for the last arguments, or null
  // Side effects.
  SetAttr,     // setattr(a0, object, a1), with the type's own __setattr__
  SetAttrRaw,  // object.__setattr__(a0, object, a1)
  DelAttr,     // delattr(a0, object), raw
  SetItem,     // a0[a1] = a2, raw for dicts (PyDict_SetItem) and lists
  DelItem,     // del a0[a1], raw for dicts and lists
  ListAssign,  // a0[:] = args[1:]
  DictAssign,  // a0 (a dict) becomes exactly args[1:] (key, value, ...), in that order
  SetAssign,   // a0 (a set) becomes exactly args[2:] with the table of a1
  CellSet,     // cell a0 holds a1 (kNoReg: empty)
};

struct Step {
  StepKind kind;
  Reg dst = kNoReg;
  SourceId source;
  int64_t number = 0;
  LooseRef object;
  std::vector<Reg> args;
};

// A frame as it must be where capture stopped.
struct FrameImage {
  PyCodeObject* code = nullptr;
  Reg function = kNoReg;    // the function object; kNoReg for the outermost frame (the one that is being run)
  int32_t instruction = 0;  // innermost: the instruction that was not captured, its operands still on the stack.
                            // outer frames: the call in progress; its callable and arguments are already popped, its
                            // result is to be pushed, and the frame goes on after it
  std::vector<Reg>
      locals;              // localsplus (cells as cell objects); kNoReg: unbound; kAsBefore only in the outermost frame
  std::vector<Reg> stack;  // bottom first; kNoReg: NULL
  Reg handled = kNoReg;    // innermost: the exception being handled there (None: none); kNoReg: as it was at the start
  Reg kw_names = kNoReg;   // innermost, when a KwNames came before the Call: the tuple
  bool raises = false;     // innermost: the instruction raised an exception while it was captured
};

class Recipe {
 public:
  Reg load(SourceId source);       // the same register for the same source
  Reg graph_output(int64_t i);     // the same register for the same output
  Reg constant(PyObject* object);  // the same register for the same object
  Reg integer(int64_t i, bool truth);
  Reg make(StepKind kind, std::vector<Reg> args, PyObject* object = nullptr);     // a step with a result
  void effect(StepKind kind, std::vector<Reg> args, PyObject* object = nullptr);  // a step without

  Reg result = kNoReg;  // whole capture: the value to return
  std::vector<int>
      released;  // whole capture from within a frame: its local variables that are unbound or bound anew at the end
  Reg handled = kNoReg;            // whole capture: as in FrameImage
  std::vector<FrameImage> frames;  // break: outermost first
  // Tensors that get another geometry at the end, and how many writes to them that makes: counted before the graph
  // runs, so that what it saves of them is found unchanged by the backward.
  std::vector<std::pair<SourceId, int>> written;

  const std::vector<Step>& steps() const { return steps_; }
  // Of a recipe that was written down: nothing is added to it any more.
  void restore(std::vector<Step> steps, int32_t registers) { steps_ = std::move(steps), next_ = registers; }
  // Gives up what is in `objects`: the recipe is not run any more once one of them is gone.
  void loosen(const std::unordered_set<PyObject*>& objects);
  int32_t num_registers() const { return next_; }
  std::string print(const Sources& sources) const;

 private:
  std::vector<Step> steps_;
  int32_t next_ = 0;
  std::unordered_map<uint32_t, Reg> loads_;
  std::unordered_map<int64_t, Reg> outputs_;
  std::unordered_map<PyObject*, Reg> constants_;
};

// Runs the steps. loads: values for the Load steps in the order of their appearance, borrowed. outputs: the graph's,
// borrowed. integers: the entry's size values. regs: num_registers() entries, zeroed, receives new references. False:
// an exception is set (what was made stays in regs).
bool run(const Recipe& recipe, PyObject* const* loads, PyObject* const* outputs, const int64_t* integers,
         PyObject** regs);

}  // namespace braze::capture
