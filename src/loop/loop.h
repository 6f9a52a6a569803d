// Loop-level IR: a program is a list of items in execution order, each a loop nest that computes buffers, or an extern
// call.
//
// A nest runs its stages in order for every point of its outer axes; the outer points are independent of each other
// (any order, any thread). A stage runs its ops for every point of its own axes, in any order that keeps the
// reductions' meaning (float reductions may be re-associated); a stage with a Scan has one axis and runs along it in
// order. An op's value may be used
//   - later in the same stage (same point), or
//   - in later stages, if it is a Reduce (its result is a scalar per outer point), or was computed in a stage without
//   axes.
// Loads and stores address elements of a buffer by an index expression over the outer axes' variables, the stage's own
// variables, size symbols and Indirect symbols. A stage may load what an earlier stage of the same nest stored at the
// same outer point. Buffers of kind Local live for one outer point and are private to the thread. After lower/, each
// nest has one stage (pointwise), or two (reduction and its store); schedule/ merges nests.
//
// Arithmetic: integers wrap, and dividing one by zero is a Fault; floats are IEEE without contraction unless the op
// says so (Fma); f16 and bf16 values are computed in f32 and rounded where a Cast says so or when stored. Floats of a
// byte are only moved: loaded, stored, cast, bit-cast and chosen. Bool is 0 or 1. Comparisons yield Bool.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "graph/graph.h"  // DType, Device, Arg vocabulary
#include "loop/fault.h"
#include "loop/rows.h"
#include "symbolic/expr.h"

namespace braze::loop {

using sym::Expr;

struct BufferTag;
struct ValTag;
using BufferId = Id<BufferTag>;
using ValId = Id<ValTag>;

enum class BufferKind : uint8_t { Input, Constant, Temp, Output, Local };

// One allocation. Temp and Output buffers have the strides that their writer chose.
struct Buffer {
  std::string name;
  DType dtype = DType::F32;
  Device device;
  BufferKind kind = BufferKind::Temp;
  std::vector<Expr> sizes, strides;  // elements
  Expr offset;         // only Input/Constant: elements from the storage pointer that run time hands in (0: the tensor's
                       // data_ptr)
  uint32_t input = 0;  // Input, Constant: which graph input
};

// A strided window on a buffer: what extern calls and outputs see.
struct View {
  BufferId buffer;
  std::vector<Expr> sizes, strides;
  Expr offset;  // elements
  DType dtype = DType::F32;
};

struct Axis {
  Expr var;  // a LoopVar symbol with range [0, extent-1]
  Expr extent;
};

// What an Indirect asks of its value v for a dimension of size n: v < n, and v >= -n or, without `wrap`, v >= 0.
struct IndexCheck {
  Fault fault = Fault::Index;  // otherwise
  bool wrap = true;            // negative values count from the end
  uint8_t dim = 0;             // the dimension's number in the message
  bool operator==(const IndexCheck&) const = default;
};

struct LoopOp {
  OpCode code{};
  DType dtype = DType::F32;     // of the result
  std::array<ValId, 3> args{};  // invalid beyond the arity
  ValId result;                 // invalid for Store
  BufferId buffer;              // Load, Store
  Expr index;  // Load, Store: element index; Index: the expression; Indirect: the symbol bound to args[0]
  union {
    double number;        // Const of float dtype
    int64_t integer = 0;  // Const of int or bool dtype
  };
  ReduceKind reduce{};      // Reduce, Scan
  Expr bound;               // Indirect: size of the indexed dimension
  IndexCheck check;         // Indirect
  bool atomic_add = false;  // Store: accumulate instead of assign
};

struct Stage {
  std::vector<Axis> axes;  // empty: once per outer point
  std::vector<LoopOp> ops;
};

// How a nest is to be run; set by schedule/, read by codegen/. Meaning never depends on it.
struct Mapping {
  enum class Vector : uint8_t { None, Outer, Inner };
  Vector vector = Vector::None;  // which loop is vectorised: the last outer axis, or the last axis of each stage
  int tile = 0;                  // >0: 2-D tiles of the last two outer axes for transposed accesses
  int64_t grain = 1;             // least number of outer points (after vectorising) per task
  bool ahead =
      false;  // the inputs may be read while what precedes it in the program still runs (schedule/read_ahead.h)
};

struct Nest {
  std::string name;
  std::vector<Axis> outer;
  std::vector<Stage> stages;
  uint32_t values = 0;  // ValIds are 0 .. values-1, unique in the nest
  Mapping mapping;
  bool commits = false;  // not run where anything before it in the program has found a fault: what it writes is an
                         // input's own memory (schedule/check_updates.h)
  std::vector<graph::LocId> locs;  // the user's lines that this nest computes
};

// A call through PyTorch's dispatcher. Tensor arguments are indices into `views`.
struct ViewTag;
using ViewRef = Id<ViewTag>;
using ExternArg = std::variant<graph::NoneArg, ViewRef, std::vector<ViewRef>, bool, Expr, double, std::string, DType,
                               Device, graph::MemoryFormatArg, graph::LayoutArg, graph::IntList, graph::DoubleList,
                               graph::BoolList, graph::OpaqueArg>;
struct ExternCall {
  graph::Op op = graph::Op::Extern;  // with a row: runtime may have a direct out-variant for it
  std::string name;                  // ATen name with overload
  std::vector<ExternArg> args;       // schema order
  std::vector<View> views;
  std::vector<View> outputs;  // flattened results
  std::vector<int32_t> list_sizes;
  bool preallocated = false;  // true: results are written into `outputs`; false: the op allocates, and the outputs'
                              // buffers adopt its storage
  std::vector<graph::LocId> locs;
};

using Item = std::variant<Nest, ExternCall>;

struct Output {  // one graph output
  enum class Kind : uint8_t { None, View, Input } kind = Kind::View;
  View view;           // Kind::View: of an Output or Input buffer, with the promised strides
  uint32_t input = 0;  // Kind::Input: that input itself
};

struct Writeback {
  View from;
  uint32_t input;
  bool in_place = false;  // `from` is all of a Temp buffer that is the input's own memory from the start
};

struct Program {
  explicit Program(std::shared_ptr<sym::ExprArena> a) : arena(std::move(a)) {}
  std::shared_ptr<sym::ExprArena> arena;
  Store<BufferId, Buffer> buffers;
  std::vector<Item> items;
  std::vector<Output> outputs;
  std::vector<Writeback> writebacks;
  std::vector<std::pair<Expr, std::pair<uint32_t, int32_t>>> size_symbols;  // as in graph::Graph
  Store<graph::LocId, graph::Location> locations;
};

std::string print(const Program&);
std::string print(const Program&, const Nest&);
Program parse(std::string_view text);
void verify(const Program&);

}  // namespace braze::loop
