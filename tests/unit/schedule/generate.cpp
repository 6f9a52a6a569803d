#include "generate.h"

#include <algorithm>

namespace braze::schedule::testing {
namespace {

using namespace loop;

class Generator {
 public:
  explicit Generator(uint64_t seed) : rng_(seed), p_(std::make_shared<sym::ExprArena>()), a_(*p_.arena) {}

  Generated run() {
    size_t rank = 1 + pick(4);
    bool symbolic = chance(3), large = rank <= 3 && chance(4);
    // Sizes that coincide, and whose products do: two axes of one extent must not be taken for one another.
    static const int64_t kSizes[] = {1, 2, 3, 4, 8, 16};
    const int64_t few[] = {kSizes[pick(6)], kSizes[pick(6)]};
    bool coincide = chance(2);
    for (size_t d = 0; d < rank; ++d) {
      int64_t n = chance(8)                ? 1
                  : coincide               ? few[pick(2)]
                  : large && d + 2 >= rank ? 16 + static_cast<int64_t>(pick(20))
                                           : 2 + static_cast<int64_t>(pick(5));
      if (rank == 4) n = std::min<int64_t>(n, 8);
      real_.push_back(n);
      if (symbolic && n > 1 && chance(2)) {
        Expr s = a_.symbol("s" + std::to_string(d), sym::SymbolKind::Size, {2, 64});
        p_.size_symbols.push_back({s, {0, static_cast<int32_t>(d)}});
        dims_.push_back(s);
      } else {
        dims_.push_back(a_.constant(n));
      }
    }
    size_t inputs = 1 + pick(3);
    for (size_t i = 0; i < inputs; ++i) input(i == 0);
    size_t nests = 2 + pick(9);
    for (size_t i = 0; i < nests; ++i) {
      switch (pick(8)) {
        case 0:
        case 1: reduction(); break;
        case 2: chance(2) ? call() : gather(); break;
        default: pointwise(); break;
      }
    }
    // Some results leave the program, always the last one.
    for (size_t t = 0; t < tensors_.size(); ++t) {
      Buffer& b = p_.buffers[tensors_[t].buffer];
      if (b.kind != BufferKind::Temp || (t + 1 != tensors_.size() && !chance(5))) continue;
      b.kind = BufferKind::Output;
      Output o;
      o.view = view(tensors_[t]);
      p_.outputs.push_back(o);
    }
    return {std::move(p_), std::move(data_)};
  }

 private:
  size_t pick(size_t n) { return static_cast<size_t>(rng_() % n); }
  bool chance(size_t n) { return pick(n) == 0; }

  struct Tensor {  // of the common rank; a dimension is whole or 1
    BufferId buffer;
    std::vector<bool> whole;
    std::vector<Expr> strides;
  };

  Expr extent(const std::vector<bool>& whole, size_t d) { return whole[d] ? dims_[d] : a_.constant(1); }

  std::vector<bool> random_shape(bool full) {
    std::vector<bool> w(dims_.size(), true);
    if (!full)
      for (size_t d = 0; d < w.size(); ++d) w[d] = !chance(3);
    return w;
  }

  Tensor make(BufferKind kind, DType t, std::vector<bool> whole, bool permute) {
    std::vector<size_t> order(dims_.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = d;
    if (permute) std::shuffle(order.begin(), order.end(), rng_);
    Tensor r;
    r.whole = std::move(whole);
    r.strides.resize(dims_.size());
    Expr s = a_.constant(1);
    for (size_t k = order.size(); k-- > 0;) {
      r.strides[order[k]] = s;
      s = a_.mul(s, extent(r.whole, order[k]));
    }
    Buffer b;
    b.name = "t" + std::to_string(p_.buffers.size());
    b.dtype = t;
    b.kind = kind;
    for (size_t d = 0; d < dims_.size(); ++d) b.sizes.push_back(extent(r.whole, d));
    b.strides = r.strides;
    b.offset = a_.constant(0);
    r.buffer = p_.buffers.add(std::move(b));
    return r;
  }

  View view(const Tensor& t) {
    const Buffer& b = p_.buffers[t.buffer];
    return {t.buffer, b.sizes, b.strides, a_.constant(0), b.dtype};
  }

  void input(bool full) {
    Tensor t = make(BufferKind::Input, DType::F32, random_shape(full), false);
    p_.buffers[t.buffer].input = static_cast<uint32_t>(data_.size());
    std::vector<int64_t> sizes;
    for (size_t d = 0; d < dims_.size(); ++d) sizes.push_back(t.whole[d] ? real_[d] : 1);
    data_.push_back(host_tensor(DType::F32, sizes));
    for (size_t i = 0; i < data_.back().storage.size() / 4; ++i)
      set_number(data_.back(), static_cast<int64_t>(i), static_cast<double>(pick(64)) / 16 - 2);
    tensors_.push_back(std::move(t));
  }

  // --- bodies
  Nest nest_;
  std::vector<Expr> vars_;

  ValId emit(LoopOp op) {
    op.result = ValId(static_cast<size_t>(nest_.values++));
    nest_.stages.back().ops.push_back(op);
    return op.result;
  }

  // Fresh variables each time, as lower/ may make them.
  Axis axis(Expr extent) {
    int64_t hi = a_.range(extent).hi;
    return {a_.symbol("q" + std::to_string(names_++), sym::SymbolKind::LoopVar, {0, hi - 1}), extent};
  }

  ValId load(const Tensor& t) {
    LoopOp op;
    op.code = OpCode::Load;
    op.dtype = p_.buffers[t.buffer].dtype;
    op.buffer = t.buffer;
    op.index = a_.constant(0);
    for (size_t d = 0; d < dims_.size(); ++d)
      if (t.whole[d]) op.index = a_.add(op.index, a_.mul(t.strides[d], vars_[d]));
    bool full = std::all_of(t.whole.begin(), t.whole.end(), [](bool b) { return b; });
    if (full && chance(8)) {  // read through a reshape: rotate the dimensions of the flat index
      Expr flat = a_.constant(0);
      for (size_t d = 0; d < dims_.size(); ++d) flat = a_.add(a_.mul(flat, dims_[d]), vars_[d]);
      op.index = a_.constant(0);
      for (size_t d = dims_.size(); d-- > 0;) {
        Expr i = d == 0 ? flat : a_.mod(flat, dims_[d]);
        op.index = a_.add(op.index, a_.mul(t.strides[d], i));
        flat = a_.floordiv(flat, dims_[d]);
      }
    }
    ValId v = emit(op);
    if (op.dtype == DType::F32) return v;
    LoopOp cast;
    cast.code = OpCode::Cast;
    cast.dtype = DType::F32;
    cast.args[0] = v;
    return emit(cast);
  }

  ValId arithmetic(std::vector<ValId> from) {
    while (from.size() > 1 || chance(2)) {
      LoopOp op;
      op.dtype = DType::F32;
      ValId x = from.back();
      if (from.size() > 1 && !chance(3)) {
        static const OpCode kBinary[] = {OpCode::Add, OpCode::Sub, OpCode::Mul, OpCode::Max, OpCode::Min};
        op.code = kBinary[pick(5)];
        from.pop_back();
        op.args[0] = from.back();
        op.args[1] = x;
      } else {
        static const OpCode kUnary[] = {OpCode::Tanh, OpCode::Sigmoid, OpCode::Abs, OpCode::Neg, OpCode::Sin};
        op.code = kUnary[pick(5)];
        op.args[0] = x;
      }
      from.back() = emit(op);
    }
    return from[0];
  }

  std::vector<ValId> operands(std::vector<bool>& whole) {
    std::vector<ValId> v;
    size_t n = 1 + pick(3);
    for (size_t i = 0; i < n; ++i) {
      // Recent tensors more often.
      size_t back = std::min(tensors_.size() - 1, chance(3) ? pick(tensors_.size()) : pick(3));
      v.push_back(load(tensors_[tensors_.size() - 1 - back]));
    }
    (void)whole;
    return v;
  }

  void store(const Tensor& t, ValId v) {
    DType d = p_.buffers[t.buffer].dtype;
    if (d != DType::F32) {
      LoopOp cast;
      cast.code = OpCode::Cast;
      cast.dtype = d;
      cast.args[0] = v;
      v = emit(cast);
    }
    LoopOp op;
    op.code = OpCode::Store;
    op.dtype = d;
    op.buffer = t.buffer;
    op.index = a_.constant(0);
    for (size_t k = 0; k < dims_.size(); ++k)
      if (t.whole[k]) op.index = a_.add(op.index, a_.mul(t.strides[k], vars_[k]));
    op.args[0] = v;
    nest_.stages.back().ops.push_back(op);
  }

  void finish(const char* name, Tensor t) {
    nest_.name = name;
    p_.items.push_back(std::move(nest_));
    nest_ = {};
    tensors_.push_back(std::move(t));
  }

  DType random_dtype() { return chance(6) ? DType::BF16 : DType::F32; }

  void pointwise() {
    std::vector<bool> whole = random_shape(!chance(4));
    // A smaller result only from operands that are as small: it loads at index 0 of what it lacks.
    nest_.stages.emplace_back();
    vars_.clear();
    for (size_t d = 0; d < dims_.size(); ++d) {
      if (!whole[d]) {
        vars_.push_back(a_.constant(0));
        continue;
      }
      nest_.outer.push_back(axis(dims_[d]));
      vars_.push_back(nest_.outer.back().var);
    }
    Tensor out = make(BufferKind::Temp, random_dtype(), whole, chance(4));
    store(out, arithmetic(operands(whole)));
    finish("pointwise", out);
  }

  void reduction() {
    std::vector<bool> kept(dims_.size(), true);
    switch (pick(3)) {
      case 0: kept.back() = false; break;
      case 1: kept.front() = false; break;
      default:
        for (size_t d = 0; d < kept.size(); ++d) kept[d] = chance(2);
    }
    nest_.stages.resize(1);
    vars_.clear();
    for (size_t d = 0; d < dims_.size(); ++d) {
      Axis x = axis(dims_[d]);
      (kept[d] ? nest_.outer : nest_.stages[0].axes).push_back(x);
      vars_.push_back(x.var);
    }
    static const ReduceKind kKinds[] = {ReduceKind::Sum,    ReduceKind::Sum,         ReduceKind::Max,
                                        ReduceKind::Min,    ReduceKind::WelfordMean, ReduceKind::WelfordM2,
                                        ReduceKind::ArgMax, ReduceKind::ExpSum};
    LoopOp op;
    op.code = OpCode::Reduce;
    op.reduce = kKinds[pick(8)];
    op.args[0] = arithmetic(operands(kept));
    op.dtype = op.reduce == ReduceKind::ArgMax ? DType::I64 : DType::F32;
    ValId v = emit(op);
    Tensor out = make(BufferKind::Temp, op.dtype, kept, false);
    nest_.stages.emplace_back();
    if (op.dtype == DType::F32 && chance(2)) v = arithmetic({v});
    for (size_t d = 0; d < dims_.size(); ++d)
      if (!kept[d]) vars_[d] = a_.constant(0);
    LoopOp st;
    st.code = OpCode::Store;
    st.dtype = op.dtype;
    st.buffer = out.buffer;
    st.index = a_.constant(0);
    for (size_t k = 0; k < dims_.size(); ++k)
      if (kept[k]) st.index = a_.add(st.index, a_.mul(out.strides[k], vars_[k]));
    st.args[0] = v;
    nest_.stages.back().ops.push_back(st);
    finish("reduction", out);
  }

  // Rows of one tensor chosen by a computed index.
  void gather() {
    const Tensor from = tensors_[pick(tensors_.size())];
    nest_.stages.emplace_back();
    vars_.clear();
    for (size_t d = 0; d < dims_.size(); ++d) {
      nest_.outer.push_back(axis(dims_[d]));
      vars_.push_back(nest_.outer.back().var);
    }
    LoopOp index;
    index.code = OpCode::Index;
    index.dtype = DType::I64;
    index.index = a_.mod(a_.add(vars_.back(), vars_.front()), dims_[0]);
    LoopOp bind;
    bind.code = OpCode::Indirect;
    bind.dtype = DType::I64;
    bind.args[0] = emit(index);
    bind.bound = dims_[0];
    int64_t hi = a_.range(dims_[0]).hi;
    bind.index = a_.symbol("y" + std::to_string(names_++), sym::SymbolKind::Indirect, {0, hi - 1});
    nest_.stages.back().ops.push_back(bind);
    Expr keep = vars_[0];
    vars_[0] = bind.index;
    ValId v = load(from);
    vars_[0] = keep;
    Tensor out = make(BufferKind::Temp, DType::F32, std::vector<bool>(dims_.size(), true), false);
    store(out, arithmetic({v, load(tensors_.back())}));
    finish("gather", out);
  }

  void open_nest() {
    nest_.stages.emplace_back();
    vars_.clear();
    for (size_t d = 0; d < dims_.size(); ++d) {
      nest_.outer.push_back(axis(dims_[d]));
      vars_.push_back(nest_.outer.back().var);
    }
  }

  // Two nests write the halves of one buffer, a third reads both.
  void cat() {
    Tensor both = make(BufferKind::Temp, DType::F32, std::vector<bool>(dims_.size(), true), false);
    Buffer& b = p_.buffers[both.buffer];
    b.sizes[0] = a_.add(dims_[0], dims_[0]);
    for (int half = 0; half < 2; ++half) {
      open_nest();
      ValId v = load(tensors_[pick(tensors_.size())]);
      Expr keep = vars_[0];
      if (half) vars_[0] = a_.add(vars_[0], dims_[0]);
      store(both, v);
      vars_[0] = keep;
      nest_.name = "half";
      p_.items.push_back(std::move(nest_));
      nest_ = {};
    }
    open_nest();
    ValId x = load_plain(both);
    vars_[0] = a_.add(vars_[0], dims_[0]);
    ValId y = load_plain(both);
    vars_[0] = a_.sub(vars_[0], dims_[0]);
    Tensor out = make(BufferKind::Temp, DType::F32, std::vector<bool>(dims_.size(), true), false);
    store(out, arithmetic({x, y}));
    finish("halves", out);
  }

  ValId load_plain(const Tensor& t) {
    LoopOp op;
    op.code = OpCode::Load;
    op.dtype = p_.buffers[t.buffer].dtype;
    op.buffer = t.buffer;
    op.index = a_.constant(0);
    for (size_t d = 0; d < dims_.size(); ++d) op.index = a_.add(op.index, a_.mul(t.strides[d], vars_[d]));
    return emit(op);
  }

  // Zeros, then rows added at computed places.
  void scatter() {
    Tensor out = make(BufferKind::Temp, DType::F32, std::vector<bool>(dims_.size(), true), false);
    open_nest();
    LoopOp zero;
    zero.code = OpCode::Const;
    zero.number = 0;
    store(out, emit(zero));
    nest_.name = "zeros";
    p_.items.push_back(std::move(nest_));
    nest_ = {};
    open_nest();
    ValId v = load(tensors_[pick(tensors_.size())]);
    LoopOp index;
    index.code = OpCode::Index;
    index.dtype = DType::I64;
    index.index = a_.floordiv(vars_[0], a_.constant(2));
    LoopOp bind;
    bind.code = OpCode::Indirect;
    bind.dtype = DType::I64;
    bind.args[0] = emit(index);
    bind.bound = dims_[0];
    bind.index = a_.symbol("y" + std::to_string(names_++), sym::SymbolKind::Indirect, {0, a_.range(dims_[0]).hi - 1});
    nest_.stages.back().ops.push_back(bind);
    vars_[0] = bind.index;
    store(out, v);
    nest_.stages.back().ops.back().atomic_add = true;
    finish("scatter", out);
  }

  void call() {
    const Tensor from = tensors_[pick(tensors_.size())];
    if (p_.buffers[from.buffer].dtype != DType::F32) return;
    Tensor out = make(BufferKind::Temp, DType::F32, from.whole, false);
    ExternCall c;
    c.name = "test::neg";
    c.args = {ViewRef(0)};
    c.views = {view(from)};
    c.outputs = {view(out)};
    c.list_sizes = {-1};
    c.preallocated = chance(2);
    p_.items.push_back(std::move(c));
    tensors_.push_back(std::move(out));
  }

  std::mt19937_64 rng_;
  Program p_;
  sym::ExprArena& a_;
  std::vector<Expr> dims_;
  std::vector<int64_t> real_;
  std::vector<Tensor> tensors_;
  std::vector<HostTensor> data_;
  size_t names_ = 0;
};

}  // namespace

Generated generate(uint64_t seed) { return Generator(seed).run(); }

std::vector<HostTensor> run_extern(const ExternCall&, const std::vector<HostTensor>& views) {
  HostTensor r = views[0];
  for (size_t i = 0; i < r.storage.size() / 4; ++i)
    set_number(r, static_cast<int64_t>(i), -get_number(r, static_cast<int64_t>(i)));
  return {r};
}

}  // namespace braze::schedule::testing
