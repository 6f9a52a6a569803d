// Calls whose results depend on values: sizes and numbers that only the run knows become unbacked symbols, and what is
// assumed of them an assertion of the graph.
#include <ATen/Functions.h>
#include <torch/csrc/Exceptions.h>

#include <limits>

#include "base/check.h"
#include "graph/shape.h"
#include "trace/convert.h"
#include "trace/recorder.h"
#include "trace/size_decider.h"

namespace braze::trace {

using graph::Arg;
using graph::ValueId;
using sym::Expr;

namespace {

constexpr int64_t kMostSize = int64_t{1} << 40;

sym::Range values_of(DType dtype) {
  switch (dtype) {
    case DType::Bool: return {0, 1};
    case DType::U8: return {0, UINT8_MAX};
    case DType::I8: return {INT8_MIN, INT8_MAX};
    case DType::I16: return {INT16_MIN, INT16_MAX};
    case DType::I32: return {INT32_MIN, INT32_MAX};
    case DType::I64: return {};
    default: throw Unsupported(Reason::ScalarFromTensor, "a number that is no integer");
  }
}

const char* relation(sym::Kind k) {
  switch (k) {
    case sym::Kind::Eq: return "==";
    case sym::Kind::Ne: return "!=";
    case sym::Kind::Lt: return "<";
    default: return "<=";
  }
}

bool is_mask(const at::Tensor& t) { return t.scalar_type() == at::kBool || t.scalar_type() == at::kByte; }

}  // namespace

void Recorder::record_assertions() {
  sizes_->set_assert([this](const sym::Assertion& a, const sym::Failure& f) {
    // Operands and schema: see _assert_scalar in graph/ops.def.
    std::string message = f.message.empty() ? "Expected " + arena().print(a.left) + " " + relation(a.relation) + " " +
                                                  arena().print(a.right)
                                            : f.message;
    graph_.add_node(
        graph::Op::_assert_scalar,
        {a.left, std::string(relation(a.relation)), a.right, f.exception, std::move(message), graph::IntList{f.values}},
        {}, origin());
  });
}

Expr Recorder::unbacked_symbol(const std::string& what, const std::vector<Arg>& args, sym::Range range) {
  for (const auto& [name, same, symbol] : made_symbols_)
    if (name == what && same == args) return symbol;
  std::string origin = what;
  if (pending_location_) origin += " in line " + std::to_string(pending_location_->line);
  Expr symbol = sizes_->add_unbacked(range, origin);
  made_symbols_.push_back({what, args, symbol});
  return symbol;
}

void Recorder::assume_sizes(const std::vector<TensorType>& types) {
  if (!sizes_->has_unbacked()) return;
  for (const TensorType& t : types)
    for (Expr e : t.sizes)
      if (arena().range(e).lo < 0 && arena().depends_on_data(e))
        sizes_->assume(arena().le(arena().constant(0), e),
                       {"RuntimeError", "Trying to create tensor with negative dimension {0}", {e}});
}

// The value that a literal of the program holds, if v is one: nothing of it depends on the run.
std::optional<c10::Scalar> Recorder::literal_value(ValueId v) const {
  const graph::Value& value = graph_.value(v);
  if (!value.node.valid()) return std::nullopt;
  const graph::Node& node = graph_.node(value.node);
  if (node.op != graph::Op::clone || literals_.count(v.index) == 0) return std::nullopt;
  const graph::Value& from = graph_.value(std::get<ValueId>(node.args[0]));
  const at::Tensor& real = slots[input_slots[from.index]].real;
  if (real.numel() != 1) return std::nullopt;
  c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKeySet(kFakeKey) |
                                           c10::DispatchKeySet(c10::DispatchKey::Functionalize));
  return real.item();
}

// A call whose result types depend on values: each handler answers whether it put results on the stack. What a handler
// does not take stays a graph break.
struct Recorder::OpenCall {
  Recorder& r;
  const OpInfo& info;
  const std::vector<Arg>& args;
  torch::jit::Stack* stack;
  sym::ExprArena& arena = r.arena();

  bool give(c10::IValue v) {
    torch::jit::drop(*stack, info.args.size());
    stack->push_back(std::move(v));
    return true;
  }
  bool results(std::vector<TensorType> types) {
    std::vector<int32_t> list_sizes(types.size(), -1);
    torch::jit::drop(*stack, info.args.size());
    r.record(info, args, std::move(types), list_sizes, stack);
    return true;
  }
  const at::Tensor& tensor(size_t i) { return torch::jit::peek(*stack, i, info.args.size()).toTensor(); }
  const TensorType& type(size_t i) { return r.graph_.type(std::get<ValueId>(args[i])); }
  bool flag(size_t i) { return std::get<bool>(args[i]); }
  sym::Range most(Expr n) { return {0, std::min(arena.range(n).hi, kMostSize)}; }
  Expr numel(const TensorType& t) { return arena.product(t.sizes); }
  TensorType fresh(DType dtype, Device device, std::vector<Expr> sizes) {
    TensorType t{dtype, device, std::move(sizes), {}, arena.constant(0)};
    t.strides = contiguous_strides(arena, t.sizes);
    return t;
  }

  bool number();
  bool nonzero();
  bool index();
  bool masked_select();
  bool repeat_interleave();
  bool ctc_loss();
  bool bincount();
  // Positions of arguments; 0: there is none.
  struct UniqueForm {
    size_t dim, inverse, counts;
  };
  bool unique(UniqueForm form);

  struct Row {
    const char* name;
    bool (*call)(OpenCall&);
  };
  static const Row kRows[];
};

bool Recorder::OpenCall::number() {
  auto v = std::get<ValueId>(args[0]);
  if (auto literal = r.literal_value(v)) return give(*literal);
  DType dtype = r.graph_.type(v).dtype;
  sym::Range range = values_of(dtype);
  size_t before = r.made_symbols_.size();
  Expr symbol = r.unbacked_symbol("the value that is read", {v}, range);
  if (r.made_symbols_.size() != before)
    r.graph_.add_node(graph::Op::_local_scalar_dense, {v, symbol}, {}, r.origin(), {}, {0});
  if (dtype != DType::Bool) return give(c10::Scalar(sym_int(r.sizes_, symbol)));
  return give(c10::Scalar(c10::SymBool(c10::SymNode(
      c10::make_intrusive<SizeNode>(r.sizes_, SizeNode::Type::Bool, arena.ne(symbol, arena.constant(0)))))));
}

bool Recorder::OpenCall::nonzero() {
  TensorType t = type(0);
  Expr n = r.unbacked_symbol("the number of elements that are not zero", {args[0]}, most(numel(t)));
  Expr one = arena.constant(1);
  return results({TensorType{
      DType::I64, t.device, {n, arena.constant(static_cast<int64_t>(t.dim()))}, {one, n}, arena.constant(0)}});
}

bool Recorder::OpenCall::index() {
  at::Tensor self = tensor(0);
  c10::List<std::optional<at::Tensor>> indices;
  auto given = torch::jit::peek(*stack, 1, info.args.size()).toOptionalTensorVector();
  size_t at = 0;
  for (const auto& index : given) {
    if (!index || !index->defined() || !is_mask(*index)) {
      indices.push_back(index);
      ++at;
      continue;
    }
    if (at + static_cast<size_t>(index->dim()) > static_cast<size_t>(self.dim()))
      throw Unsupported(Reason::DynamicOutput, "a mask of more dimensions than its tensor");
    for (int64_t d = 0; d < index->dim(); ++d) {
      c10::SymInt want = self.sym_size(static_cast<int64_t>(at) + d), have = index->sym_size(d);
      Expr a = expr_of(arena, have), b = expr_of(arena, want);
      auto message = "The shape of the mask at index " + std::to_string(d) +
                     " ({0}) does not match the shape of the indexed tensor ({1})";
      if (arena.depends_on_data(a) || arena.depends_on_data(b))
        r.sizes_->assume(arena.eq(a, b), {"IndexError", message, {a, b}});
      else
        TORCH_CHECK_INDEX(have == want, "The shape of the mask ", index->sym_sizes(), " at index ", d,
                          " does not match the shape of the indexed tensor ", self.sym_sizes(), " at index ",
                          static_cast<int64_t>(at) + d);
    }
    at::Tensor where = at::nonzero(*index);
    for (int64_t d = 0; d < index->dim(); ++d) indices.push_back(at::select(where, 1, d));
    at += static_cast<size_t>(index->dim());
  }
  return give(at::index(self, indices));
}

bool Recorder::OpenCall::masked_select() {
  at::Tensor self = tensor(0), mask = tensor(1);
  if (mask.scalar_type() != at::kBool) return false;
  if (type(0).sizes != type(1).sizes) {
    SizeDecider decider(*r.sizes_);
    auto sizes = graph::broadcast_sizes(arena, type(0).sizes, type(1).sizes, &decider);
    if (!sizes) return false;
    decider.commit();
    std::vector<c10::SymInt> wide;
    for (Expr e : *sizes) wide.push_back(sym_int(r.sizes_, e));
    self = self.expand_symint(wide);
    mask = at::clone(mask.expand_symint(wide), at::MemoryFormat::Contiguous);
  }
  if (self.dim() == 0) return false;
  c10::List<std::optional<at::Tensor>> indices;  // a gather, which fuses
  indices.push_back(mask);
  return give(at::index(self, indices));
}

bool Recorder::OpenCall::repeat_interleave() {
  if (std::holds_alternative<Expr>(args[1])) return false;
  Expr n = r.unbacked_symbol("the sum of the repetitions", {args[0]}, {0, kMostSize});
  return results({fresh(type(0).dtype, type(0).device, {n})});
}

bool Recorder::OpenCall::ctc_loss() {
  TensorType t = type(0);
  if (t.dim() != 3) return false;
  Expr n = r.unbacked_symbol("the states of the longest target", args, {1, kMostSize});
  return results({fresh(t.dtype, t.device, {t.sizes[1]}), fresh(t.dtype, t.device, {t.sizes[1], t.sizes[0], n})});
}

bool Recorder::OpenCall::bincount() {
  auto least = std::get<Expr>(args[2]);
  Expr n = r.unbacked_symbol("the number of bins", args, {std::max<int64_t>(arena.range(least).lo, 0), kMostSize});
  auto* weights = std::get_if<ValueId>(&args[1]);
  DType dtype = !weights ? DType::I64 : r.graph_.type(*weights).dtype == DType::F32 ? DType::F32 : DType::F64;
  return results({fresh(dtype, type(0).device, {n})});
}

bool Recorder::OpenCall::unique(UniqueForm form) {
  TensorType t = type(0);
  std::optional<int64_t> dim;
  if (form.dim && std::holds_alternative<Expr>(args[form.dim])) dim = arena.as_const(std::get<Expr>(args[form.dim]));
  if (dim && *dim < 0) *dim += static_cast<int64_t>(t.dim());
  if (dim && (*dim < 0 || static_cast<size_t>(*dim) >= t.dim())) return false;
  Expr all = dim ? t.sizes[static_cast<size_t>(*dim)] : numel(t), zero = arena.constant(0);
  // Of nothing there is nothing that is unique; of something at least one.
  Expr n = r.unbacked_symbol("the number of unique elements", args, {arena.range(all).lo > 0 ? 1 : 0, most(all).hi});
  std::vector<Expr> values{n}, inverse = dim ? std::vector<Expr>{all} : t.sizes;
  if (dim) {
    values = t.sizes;
    values[static_cast<size_t>(*dim)] = n;
  }
  TensorType result = fresh(t.dtype, t.device, values);
  if (dim && *dim > 0) {  // it was in front while they were compared
    auto at = static_cast<ptrdiff_t>(*dim);
    std::vector<Expr> moved = values;
    std::rotate(moved.begin(), moved.begin() + at, moved.begin() + at + 1);
    result.strides = contiguous_strides(arena, moved);
    std::rotate(result.strides.begin(), result.strides.begin() + 1, result.strides.begin() + at + 1);
  }
  std::vector<TensorType> types{std::move(result),
                                fresh(DType::I64, t.device, flag(form.inverse) ? inverse : std::vector<Expr>{zero})};
  if (form.counts) types.push_back(fresh(DType::I64, t.device, {flag(form.counts) ? n : zero}));
  return results(std::move(types));
}

const Recorder::OpenCall::Row Recorder::OpenCall::kRows[] = {
    {"aten::nonzero", [](OpenCall& c) { return c.nonzero(); }},
    {"aten::index.Tensor", [](OpenCall& c) { return c.index(); }},
    {"aten::masked_select", [](OpenCall& c) { return c.masked_select(); }},
    {"aten::repeat_interleave.Tensor", [](OpenCall& c) { return c.repeat_interleave(); }},
    {"aten::_ctc_loss.Tensor", [](OpenCall& c) { return c.ctc_loss(); }},
    {"aten::bincount", [](OpenCall& c) { return c.bincount(); }},
    {"aten::_unique", [](OpenCall& c) { return c.unique({0, 2, 0}); }},
    {"aten::_unique2", [](OpenCall& c) { return c.unique({0, 2, 3}); }},
    {"aten::unique_consecutive", [](OpenCall& c) { return c.unique({3, 1, 2}); }},
    {"aten::unique_dim", [](OpenCall& c) { return c.unique({1, 3, 4}); }},
    {"aten::unique_dim_consecutive", [](OpenCall& c) { return c.unique({1, 2, 3}); }},
};

bool Recorder::call_data_dependent(const OpInfo& info, const std::vector<Arg>& args, torch::jit::Stack* stack) {
  OpenCall call{*this, info, args, stack};
  if (info.name == "aten::_local_scalar_dense" || info.name == "aten::item") return numbers_ && call.number();
  if (!open_results_) return false;
  for (const OpenCall::Row& row : OpenCall::kRows)
    if (info.name == row.name) return row.call(call);
  return false;
}

}  // namespace braze::trace
