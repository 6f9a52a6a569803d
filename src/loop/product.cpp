#include "loop/product.h"

#include <algorithm>

#include "loop/analysis.h"

namespace braze::loop {
namespace {

constexpr int64_t kStepOfK = 32;  // elements of a row that a group of threads holds at once: whole vectors of 16 bytes

class Reader {
 public:
  Reader(const Program& p, const Nest& n) : p_(p), n_(n), arena_(*p.arena), uses_(n.values) {}

  std::optional<Product> read(int64_t most_columns) {
    if (n_.outer.empty() || n_.outer.size() > 64 || !find_stage() || !collect()) return std::nullopt;
    for (uint32_t i = 0; i < stage().ops.size(); ++i)
      if (stage().ops[i].code == OpCode::Reduce && !add_term(i)) return std::nullopt;
    if (out_.terms.empty() || !sort_axes(most_columns)) return std::nullopt;
    return out_;
  }

 private:
  const Stage& stage() const { return n_.stages[out_.stage]; }

  bool find_stage() {
    bool found = false;
    for (uint32_t s = 0; s < n_.stages.size(); ++s) {
      if (n_.stages[s].axes.empty()) continue;
      if (found || n_.stages[s].axes.size() != 1) return false;
      found = true;
      out_.stage = s;
      out_.k = n_.stages[s].axes[0];
    }
    return found;
  }

  // What each value up to the products is made of: on which outer axes it depends, as bits. The stage reads nothing
  // that the nest writes, and has no other effect than its sums.
  bool collect() {
    for (uint32_t s = 0; s <= out_.stage; ++s)
      for (const LoopOp& op : n_.stages[s].ops) {
        if (op.code == OpCode::Indirect || op.atomic_add) return false;
        if (op.code == OpCode::Store && s == out_.stage) return false;
        if (op.code == OpCode::Load)
          for (const Stage& t : n_.stages)
            for (const LoopOp& other : t.ops)
              if (other.code == OpCode::Store && other.buffer == op.buffer) return false;
        if (!op.result.valid()) continue;
        uint64_t uses = 0;
        for (int a = 0; a < arity(op.code); ++a) uses |= uses_[op.args[static_cast<size_t>(a)].index];
        if (op.code == OpCode::Load || op.code == OpCode::Index)
          for (size_t d = 0; d < n_.outer.size(); ++d)
            if (arena_.contains(op.index, n_.outer[d].var)) uses |= uint64_t{1} << d;
        uses_[op.result.index] = uses;
      }
    return true;
  }

  // The value of half type that `v` widens; `dtype` invalid until it is known. Integers of a byte are exact in both.
  bool factor(ValId v, std::optional<DType>& dtype, ValId& out) const {
    const LoopOp* op = op_of(n_, v);
    auto is_half = [](DType d) { return d == DType::BF16 || d == DType::F16; };
    auto is_byte = [](DType d) { return d == DType::I8 || d == DType::U8; };
    auto agree = [&](DType d) {
      if (!is_half(d)) return is_byte(d);
      if (!dtype) dtype = d;
      return *dtype == d;
    };
    while (op) {
      out = op->result;
      if (op->code == OpCode::Load && (op->dtype == DType::F32 || is_half(op->dtype)))
        return agree(p_.buffers[op->buffer].dtype);
      if (is_half(op->dtype) || is_byte(op->dtype)) return agree(op->dtype);
      if (op->code != OpCode::Cast || op->dtype != DType::F32) return false;
      op = op_of(n_, op->args[0]);
    }
    return false;
  }

  bool is_of_bytes(ValId v) const {
    const LoopOp* op = op_of(n_, v);
    while (op && op->code == OpCode::Cast && op->dtype != DType::Bool) op = op_of(n_, op->args[0]);
    return op && op->code == OpCode::Load && p_.buffers[op->buffer].dtype == DType::I8;
  }

  bool add_term(uint32_t index) {
    const LoopOp& sum = stage().ops[index];
    const LoopOp* product = op_of(n_, sum.args[0]);
    if (sum.reduce != ReduceKind::Sum || sum.dtype != DType::F32 || !product || product->code != OpCode::Mul ||
        product->dtype != DType::F32)
      return false;
    Product::Term t;
    t.op = index;
    if (!factor(product->args[0], dtype_, t.wide) || !factor(product->args[1], dtype_, t.narrow)) return false;
    out_.bytes = out_.bytes || is_of_bytes(t.wide) || is_of_bytes(t.narrow);
    if (out_.terms.empty()) {
      first_ = uses_[t.wide.index];
      second_ = uses_[t.narrow.index];
    } else if (uses_[t.wide.index] == second_ && uses_[t.narrow.index] == first_) {
      std::swap(t.wide, t.narrow);
    } else if (uses_[t.wide.index] != first_ || uses_[t.narrow.index] != second_) {
      return false;
    }
    out_.terms.push_back(t);
    return true;
  }

  // The narrow factor is the one of fewer points. An axis on which neither depends counts as wide.
  bool sort_axes(int64_t most_columns) {
    if (!dtype_ || (first_ & second_)) return false;
    out_.dtype = *dtype_;
    auto points = [&](uint64_t which) {
      int64_t n = 1;
      for (size_t d = 0; d < n_.outer.size(); ++d) {
        if (!(which >> d & 1)) continue;
        auto extent = arena_.as_const(n_.outer[d].extent);
        if (!extent || *extent > INT32_MAX / n) return int64_t{-1};
        n *= std::max<int64_t>(*extent, 1);
      }
      return n;
    };
    int64_t a = points(first_), b = points(second_);
    auto k = arena_.as_const(out_.k.extent);
    if (a < 0 || b < 0 || !k || *k == 0 || *k % kStepOfK || *k > INT32_MAX) return false;
    if (a < b) {
      std::swap(a, b);
      std::swap(first_, second_);
      for (Product::Term& t : out_.terms) std::swap(t.wide, t.narrow);
    }
    if ((b < 2 && !out_.bytes) || b > most_columns) return false;
    out_.columns = b;
    for (size_t d = 0; d < n_.outer.size(); ++d) (second_ >> d & 1 ? out_.narrow : out_.wide).push_back(n_.outer[d]);
    return true;
  }

  const Program& p_;
  const Nest& n_;
  const sym::ExprArena& arena_;
  std::vector<uint64_t> uses_;  // per value: outer axes
  std::optional<DType> dtype_;
  uint64_t first_ = 0, second_ = 0;
  Product out_;
};

}  // namespace

std::optional<Product> product_of(const Program& program, const Nest& nest, int64_t most_columns) {
  if (most_columns < 2) return std::nullopt;
  return Reader(program, nest).read(most_columns);
}

}  // namespace braze::loop
