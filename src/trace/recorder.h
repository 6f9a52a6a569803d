// Records the dispatcher's calls on fake tensors as nodes of a graph.
//
// install_recorder() puts one boxed kernel under every operator for kFakeKey. It finds the recorder of its fake
// operands, or, for a factory, the one that records on this thread. A real tensor that meets fakes becomes a constant
// of the graph; a wrapped Python number becomes a bare scalar argument.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DefaultDtype.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"
#include "trace/checkpoints.h"
#include "trace/fake_tensor.h"
#include "trace/lazy_bits.h"
#include "trace/mutable_op.h"
#include "trace/op_info.h"
#include "trace/symnode.h"

namespace braze::trace {

class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  Recorder();
  ~Recorder() { sizes_->set_assert({}); }

  // A fake for a real tensor; an input of the graph once its value is asked for.
  at::Tensor lift(const at::Tensor& real, graph::InputKind kind, std::string name, TensorType type);
  // Its elements. Where it is lazily conjugated or negated, a node computes them from its memory.
  graph::ValueId value_of(const FakeTensor& fake);
  // Its memory, whatever bits it carries.
  graph::ValueId memory_of(const FakeTensor& fake);
  // The graph's value for a real tensor met while recording.
  graph::ValueId constant(const at::Tensor& real);
  // Makes the input of this slot part of the graph.
  graph::ValueId use_slot(uint32_t slot);

  void call(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack);
  // Of an operator that writes to arguments: the node works on copies of them. Answers what they hold then, in order.
  std::vector<at::Tensor> call_writing(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack);
  // What fails in `calls` becomes a graph break, an InternalError `failure` as well.
  void guarded(const OpInfo& info, const std::function<void()>& calls);
  // The recorder of this thread; nullptr: none.
  static Recorder* current();

  // The tensor that a value is whatever the run brings: computed from literals of the program, on the CPU, and small.
  // nullptr: not known.
  const at::Tensor* known(graph::ValueId value) const {
    auto it = known_.find(value.index);
    return it == known_.end() ? nullptr : &it->second;
  }
  // Whether a tensor is kept as known().
  static bool is_small(const at::Tensor& t) {
    return t.device().is_cpu() && t.layout() == c10::kStrided && t.numel() <= 64;
  }
  // Of as_strided: throws Unsupported where it reads beyond the elements of what owns the memory; guarded.
  void check_extent(const std::vector<graph::Arg>& args);
  // Of as_strided after resize: throws Unsupported where eager's resize_ gives what is not contiguous, as this is.
  void check_resized(const std::vector<graph::Arg>& args);
  // The slot of the input that a value is a view of, or of which it is the tensor itself; kNoSlot: of none.
  uint32_t root_slot(graph::ValueId value) const;

  sym::ExprArena& arena() const { return graph_.arena(); }
  const std::shared_ptr<SizeEnv>& sizes() const { return sizes_; }
  // Puts what was learnt of the sizes into all types, so that equal sizes are equal expressions again. Cheap when
  // nothing new was learnt. `arguments`: into the nodes' arguments, too.
  void refresh_sizes(bool arguments = false);
  graph::Graph& graph() { return graph_; }
  // What becomes an unbacked symbol, where it would else end the graph: numbers that are read from tensors (at first
  // they do not), and sizes of results that depend on values (at first they do).
  void allow_numbers(bool on) { numbers_ = on; }
  void refuse_open_results() { open_results_ = false; }
  // The line that the next nodes belong to; the pointer must stay valid while it is set.
  void set_location(const graph::Location* location);
  // Calls on fakes of a closed recorder end in a graph break: they outlived their capture.
  void close() { closed_ = true; }
  void reopen() { closed_ = false; }

  struct Slot {
    at::Tensor real;
    graph::InputKind kind;
    std::string name;
    TensorType type;
    graph::ValueId value;
    bool literal = false;  // of a Constant: written in the program as numbers
  };
  // A fake with these values and the sizes, strides and dtype of `layout`, gaps included.
  at::Tensor copied_into(const FakeTensor& layout, const FakeTensor& values);
  // Where the next nodes come from.
  graph::Origin origin() { return {location(), checkpoints.current()}; }
  // The value of a fake that has one.
  graph::ValueId known_value(const FakeTensor& fake) const {
    return fake.value().valid() ? fake.value() : slots[fake.slot()].value;
  }
  // Tangents of forward-mode differentiation that are zeros because there are none.
  void note_zero_tangent(const at::Tensor& fake);
  bool is_zero_tangent(const at::Tensor& fake) const;
  Checkpoints checkpoints;
  std::vector<Slot> slots;             // in order of lifting; slots of constants too
  std::vector<uint32_t> input_slots;   // per graph input: its slot
  std::vector<uint32_t> offset_slots;  // of inputs whose storage offset the graph relies on; has duplicates
  std::vector<at::Tensor> reshaped;    // bases, without a history then, of which one of the views changed its geometry
  // Nodes whose arguments only PyTorch's Meta kernels have looked at, which ask less than those that compute; in order.
  std::vector<graph::NodeId> typed_by_kernels;
  std::string failure;                // what an InternalError said that a call ended with; empty: none
  bool python_kernel_raised = false;  // a Meta kernel in Python, in the last call

 private:
  std::vector<graph::ValueId> zero_tangents_;
  graph::Arg convert(ArgKind kind, const c10::IValue& value, const OpInfo& info);
  graph::Arg convert_tensor(const at::Tensor& tensor, const OpInfo& info);
  // What the bits say of this memory, as a value of its own.
  graph::ValueId resolved(graph::ValueId memory, LazyBits bits);
  // A fake that shows the elements of `values` through these bits.
  at::Tensor under_bits(const at::Tensor& values, LazyBits bits);
  void note_plain_call(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack, bool lazy);
  void pass_on(const OpInfo& info, torch::jit::Stack* stack);
  // Appends a node and makes its results; a type of dtype Opaque stands for an undefined one.
  std::vector<at::Tensor> append(const OpInfo& info, std::vector<graph::Arg> args, std::vector<TensorType> types,
                                 std::vector<int32_t> list_sizes);
  void record(const OpInfo& info, std::vector<graph::Arg> args, std::vector<TensorType> types,
              const std::vector<int32_t>& list_sizes, torch::jit::Stack* stack);
  // `written`: operands of which the node gives copies after its results; answered.
  std::vector<at::Tensor> run_meta(const c10::OperatorHandle& op, const OpInfo& info, std::vector<graph::Arg> args,
                                   torch::jit::Stack* stack, const std::vector<graph::ValueId>& written = {});
  // Of an operator whose result depends on values. False: not taken.
  bool call_data_dependent(const OpInfo& info, const std::vector<graph::Arg>& args, torch::jit::Stack* stack);
  struct OpenCall;
  // The same for the same arguments: what is read twice is equal.
  sym::Expr unbacked_symbol(const std::string& what, const std::vector<graph::Arg>& args, sym::Range range);
  void record_assertions();
  void assume_sizes(const std::vector<TensorType>& types);
  std::optional<c10::Scalar> literal_value(graph::ValueId v) const;
  void check_treatment(const OpInfo& info, std::vector<graph::Arg>& args);
  std::optional<torch::jit::Stack> known_operands(const c10::OperatorHandle& op, const OpInfo& info,
                                                  const torch::jit::Stack& stack) const;
  void note_call(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack);
  void compute_known(const c10::OperatorHandle& op, torch::jit::Stack operands, const torch::jit::Stack& results);
  graph::LocId location();

  graph::Graph graph_;
  std::shared_ptr<SizeEnv> sizes_;
  std::unordered_map<const c10::TensorImpl*, uint32_t> constant_slots_;
  std::map<std::pair<uint32_t, bool>, graph::ValueId> resolved_;  // by memory: conjugated (true), negated
  const graph::Location* pending_location_ = nullptr;
  graph::LocId location_, last_location_;
  size_t refreshed_ = 0;  // replaced symbols that the types know of
  const c10::ScalarType default_dtype_ = c10::get_default_dtype_as_scalartype();
  bool closed_ = false;
  bool numbers_ = false, open_results_ = true;
  struct MadeSymbol {
    std::string what;
    std::vector<graph::Arg> args;
    sym::Expr symbol;
  };
  std::vector<MadeSymbol> made_symbols_;
  std::unordered_map<uint32_t, at::Tensor> known_;  // by value
  std::unordered_set<uint32_t> literals_;           // values of tensors that the program writes down
};

// Whether a wrapped number may stand for a symbol, which is on its Python object.
bool wrapped_symbol(const at::Tensor& number);

// Once at import. Throws std::runtime_error when kFakeKey is taken.
void install_recorder();
// Waits until that is done, which every capture does first.
void require_recorder();

// Records on this thread while it lives: fakes are made by factories too, and writes are functionalised with views
// kept.
class RecordingScope {
 public:
  explicit RecordingScope(Recorder* recorder);
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  FunctionalForms forms_;
  Recorder* recorder_;
  bool fake_, front_, functionalize_, reapply_views_;
};

}  // namespace braze::trace
