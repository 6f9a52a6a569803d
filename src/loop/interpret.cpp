#include "loop/interpret.h"
#include "symbolic/given_symbol.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <unordered_map>

#include "base/check.h"
#include "loop/analysis.h"
#include "loop/scalar.h"

namespace braze::loop {
namespace {

struct Accumulator {
  Scalar best;
  double mean = 0, m2 = 0, sum = 0, prod = 1, exp_sum = 0, log_sum = 0;
  int64_t isum = 0, iprod = 1, count = 0, at = 0;
  bool any = false, all = true, nan = false;
};

class Interpreter {
 public:
  Interpreter(const Program& p, std::vector<HostTensor>& inputs, const ExternFn& call, const Arena* shared)
      : p_(p),
        arena_(*p.arena),
        inputs_(inputs),
        call_(call),
        shared_(shared),
        memory_(p.buffers.size()),
        allocated_(p.buffers.size(), 0) {
    for (const auto& [s, where] : p.size_symbols) {
      BRAZE_CHECK(where.first != sym::kGivenSymbol, "interpret: a symbol that only a caller knows");
      const HostTensor& t = inputs.at(where.first);
      int64_t d = where.second;
      env_[s.id] = d >= 0 ? t.sizes.at(static_cast<size_t>(d)) : t.strides.at(static_cast<size_t>(~d));
    }
    for (size_t i = 0; i < p.buffers.size(); ++i) lives_in_.emplace_back(i);
    for (const Writeback& w : p.writebacks)
      for (size_t i = 0; w.in_place && i < p.buffers.size(); ++i)
        if (const Buffer& b = p.buffers[BufferId(i)]; b.kind == BufferKind::Input && b.input == w.input)
          lives_in_[w.from.buffer.index] = BufferId(i);
    env_fn_ = [this](Expr s) {
      auto it = env_.find(s.id);
      BRAZE_CHECK(it != env_.end(), "interpret: symbol without a value: " + std::string(arena_.symbol_name(s)));
      return it->second;
    };
  }

  std::vector<HostTensor> run() {
    for (const Item& item : p_.items) {
      if (auto* n = std::get_if<Nest>(&item))
        nest(*n);
      else
        extern_call(std::get<ExternCall>(item));
    }
    std::vector<HostTensor> out;
    for (const Output& o : p_.outputs) {
      if (o.kind == Output::Kind::None) out.emplace_back();
      if (o.kind == Output::Kind::Input) out.push_back(inputs_.at(o.input));
      if (o.kind == Output::Kind::View) out.push_back(gather(o.view));
    }
    std::vector<HostTensor> written;
    for (const Writeback& w : p_.writebacks) written.push_back(gather(w.from));
    for (size_t i = 0; i < written.size(); ++i) {
      HostTensor& t = inputs_.at(p_.writebacks[i].input);
      scatter(written[i], t.storage, t.dtype, t.strides, t.offset);
    }
    return out;
  }

 private:
  int64_t eval(Expr e) const { return arena_.evaluate(e, env_fn_); }
  std::vector<int64_t> eval(const std::vector<Expr>& v) const {
    std::vector<int64_t> r;
    for (Expr e : v) r.push_back(eval(e));
    return r;
  }

  // The bytes of a buffer. Input and Constant buffers live in the inputs; the arena is allocated once its size is
  // known.
  std::span<uint8_t> bytes(BufferId b) {
    b = lives_in_[b.index];
    const Buffer& buf = p_.buffers[b];
    if (buf.kind == BufferKind::Input || buf.kind == BufferKind::Constant) return inputs_.at(buf.input).storage;
    auto& m = memory_[b.index];
    bool in_arena = shared_ && shared_->offsets[b.index];
    if (!allocated_[b.index]) {
      auto sizes = eval(buf.sizes), strides = eval(buf.strides);
      int64_t last = 0;
      bool empty = false;
      for (size_t d = 0; d < sizes.size(); ++d) {
        last += (sizes[d] - 1) * strides[d];
        empty |= sizes[d] == 0;
      }
      length_[b.index] = static_cast<size_t>(empty ? 0 : last + 1) * static_cast<size_t>(size_of(buf.dtype));
      if (!in_arena) m.assign(length_[b.index], 0xAA);  // garbage, not zero
      allocated_[b.index] = 1;
    }
    if (!in_arena) return m;
    if (arena_memory_.empty()) arena_memory_.assign(static_cast<size_t>(eval(shared_->bytes)), 0xAA);
    auto offset = static_cast<size_t>(eval(*shared_->offsets[b.index]));
    BRAZE_CHECK(offset + length_[b.index] <= arena_memory_.size(), "interpret: a buffer leaves the arena");
    return {arena_memory_.data() + offset, length_[b.index]};
  }

  uint8_t* element(BufferId b, int64_t index) {
    b = lives_in_[b.index];
    const Buffer& buf = p_.buffers[b];
    std::span<uint8_t> m = bytes(b);
    if (buf.kind == BufferKind::Input || buf.kind == BufferKind::Constant)
      index += eval(buf.offset) + inputs_.at(buf.input).offset;
    int64_t size = size_of(buf.dtype);
    BRAZE_CHECK(index >= 0 && (index + 1) * size <= static_cast<int64_t>(m.size()),
                "interpret: element " + std::to_string(index) + " is outside of buffer %" + std::to_string(b.index) +
                    " (" + where_ + ")");
    return m.data() + index * size;
  }

  template <class F>
  void loop(const std::vector<Axis>& axes, size_t depth, bool reverse, F&& f) {
    if (depth == axes.size()) return f();
    int64_t n = eval(axes[depth].extent);
    for (int64_t i = 0; i < n; ++i) {
      env_[axes[depth].var.id] = reverse ? n - 1 - i : i;
      loop(axes, depth + 1, reverse, f);
    }
  }

  void nest(const Nest& n) {
    where_ = n.name;
    std::vector<Scalar> values(n.values);
    std::vector<DType> types(n.values, DType::I64);
    for (const Stage& s : n.stages)
      for (const LoopOp& op : s.ops)
        if (op.result.valid()) types[op.result.index] = op.dtype;
    loop(n.outer, 0, shared_ && shared_->reverse, [&] {
      for (const Stage& s : n.stages) {
        std::vector<Accumulator> acc(s.ops.size());
        int64_t point = 0;
        loop(s.axes, 0, false, [&] {
          for (size_t i = 0; i < s.ops.size(); ++i) step(s.ops[i], values, types, acc[i], point);
          ++point;
        });
        for (size_t i = 0; i < s.ops.size(); ++i)
          if (s.ops[i].code == OpCode::Reduce) values[s.ops[i].result.index] = finish(s.ops[i], acc[i]);
      }
    });
  }

  void step(const LoopOp& op, std::vector<Scalar>& values, const std::vector<DType>& types, Accumulator& acc,
            int64_t point) {
    auto arg = [&](size_t i) -> const Scalar& { return values[op.args[i].index]; };
    auto type = [&](size_t i) { return types[op.args[i].index]; };
    Scalar r;
    switch (op.code) {
      case OpCode::Load: r = load(op.dtype, element(op.buffer, eval(op.index))); break;
      case OpCode::Store: {
        DType t = p_.buffers[op.buffer].dtype;
        uint8_t* at = element(op.buffer, eval(op.index));
        Scalar v = arg(0);
        if (op.atomic_add) {
          Scalar old = load(t, at);
          v.f = to_compute(t, old.f + v.f);
          v.i = t == DType::Bool ? (old.i | v.i)
                                 : static_cast<int64_t>(static_cast<uint64_t>(old.i) + static_cast<uint64_t>(v.i));
        }
        store(t, at, v);
        return;
      }
      case OpCode::Const:
        if (is_floating(op.dtype))
          r.f = to_compute(op.dtype, op.number);
        else
          r.i = wrap(op.dtype, op.integer);
        break;
      case OpCode::Index: r.i = wrap(op.dtype, eval(op.index)); break;
      case OpCode::Indirect: {
        int64_t bound = eval(op.bound), v = arg(0).i;
        if (v >= bound || v < (op.check.wrap ? -bound : 0)) throw FaultError({op.check.fault, v, bound, op.check.dim});
        env_[op.index.id] = v < 0 ? v + bound : v;
        return;
      }
      case OpCode::Reduce: accumulate(op, arg(0), type(0), acc, point); return;
      case OpCode::Scan:
        accumulate(op, arg(0), type(0), acc, point);
        r = finish(op, acc);
        break;
      case OpCode::Cast: r = cast(arg(0), type(0), op.dtype); break;
      case OpCode::Bitcast: {
        uint8_t raw[8] = {};
        store(type(0), raw, arg(0));
        r = load(op.dtype, raw);
        break;
      }
      case OpCode::Where: r = arg(0).i ? arg(1) : arg(2); break;
      case OpCode::Fma:
        if (is_floating(op.dtype))
          r.f = op.dtype == DType::F64
                    ? std::fma(arg(0).f, arg(1).f, arg(2).f)
                    : static_cast<double>(std::fma(static_cast<float>(arg(0).f), static_cast<float>(arg(1).f),
                                                   static_cast<float>(arg(2).f)));
        else
          r.i = wrap(op.dtype, arg(0).i * arg(1).i + arg(2).i);
        break;
      case OpCode::IsNan: r.i = is_floating(type(0)) && std::isnan(arg(0).f); break;
      case OpCode::IsInf: r.i = is_floating(type(0)) && std::isinf(arg(0).f); break;
      default:
        if (is_comparison(op.code)) {
          r.i = is_floating(type(0)) ? compare(op.code, arg(0).f, arg(1).f) : compare(op.code, arg(0).i, arg(1).i);
        } else {
          Scalar b = arity(op.code) > 1 ? arg(1) : Scalar{};
          if (op.code == OpCode::Sigmoid)
            r.f = to_compute(op.dtype, 1 / (1 + to_compute(op.dtype, std::exp(-arg(0).f))));
          else if (is_floating(op.dtype))
            r.f = to_compute(op.dtype, float_op(op.code, arg(0).f, b.f));
          else
            r.i = wrap(op.dtype, int_op(op.code, op.dtype, arg(0).i, b.i));
        }
    }
    values[op.result.index] = r;
  }

  template <class T>
  static bool compare(OpCode c, T a, T b) {
    switch (c) {
      case OpCode::Eq: return a == b;
      case OpCode::Ne: return a != b;
      case OpCode::Lt: return a < b;
      case OpCode::Le: return a <= b;
      case OpCode::Gt: return a > b;
      default: return a >= b;
    }
  }

  static Scalar cast(Scalar v, DType from, DType to) {
    Scalar r;
    if (is_floating(to))
      r.f = to_storage(to, is_floating(from) ? v.f : static_cast<double>(v.i));
    else if (!is_floating(from))
      r.i = wrap(to, v.i);
    else if (to == DType::Bool)
      r.i = v.f != 0;
    else
      r.i = std::isnan(v.f) || std::fabs(v.f) >= 0x1p63 ? std::numeric_limits<int64_t>::min()
                                                        : wrap(to, static_cast<int64_t>(v.f));
    return r;
  }

  static void accumulate(const LoopOp& op, Scalar v, DType t, Accumulator& a, int64_t point) {
    bool fl = is_floating(t);
    bool better = a.count == 0;
    const double before = a.count ? a.best.f : -INFINITY;
    if (!better && !a.nan) {
      bool max = op.reduce == ReduceKind::Max || op.reduce == ReduceKind::ArgMax || is_exponent(op.reduce);
      better =
          fl ? (std::isnan(v.f) || (max ? v.f > a.best.f : v.f < a.best.f)) : (max ? v.i > a.best.i : v.i < a.best.i);
    }
    if (better) {
      a.best = v;
      a.at = point;
      a.nan = fl && std::isnan(v.f);
    }
    if (fl && a.best.f > -INFINITY) a.exp_sum = a.exp_sum * std::exp(before - a.best.f) + std::exp(v.f - a.best.f);
    if (op.reduce == ReduceKind::LogAdd) a.log_sum = a.count ? log_add(a.log_sum, v.f) : v.f;
    ++a.count;
    a.sum += v.f;
    a.prod *= v.f;
    a.isum = static_cast<int64_t>(static_cast<uint64_t>(a.isum) + static_cast<uint64_t>(v.i));
    a.iprod = static_cast<int64_t>(static_cast<uint64_t>(a.iprod) * static_cast<uint64_t>(v.i));
    double d = v.f - a.mean;
    a.mean += d / static_cast<double>(a.count);
    a.m2 += d * (v.f - a.mean);
    a.any |= v.i != 0;
    a.all &= v.i != 0;
  }

  static double log_add(double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return NAN;
    const double top = std::max(a, b), low = std::min(a, b);
    return std::isinf(top) && low == top ? top : top + std::log1p(std::exp(low - top));
  }

  static Scalar finish(const LoopOp& op, const Accumulator& a) {
    Scalar r;
    bool fl = is_floating(op.dtype);
    switch (op.reduce) {
      case ReduceKind::Sum: fl ? void(r.f = to_compute(op.dtype, a.sum)) : void(r.i = wrap(op.dtype, a.isum)); break;
      case ReduceKind::Prod: fl ? void(r.f = to_compute(op.dtype, a.prod)) : void(r.i = wrap(op.dtype, a.iprod)); break;
      case ReduceKind::Max:
      case ReduceKind::Min:
        if (a.count) {
          r = a.best;
        } else if (fl) {  // the identity
          r.f = op.reduce == ReduceKind::Max ? -INFINITY : INFINITY;
        }
        break;
      case ReduceKind::LogAdd: r.f = to_compute(op.dtype, a.log_sum); break;
      case ReduceKind::Any: r.i = a.any; break;
      case ReduceKind::All: r.i = a.all; break;
      case ReduceKind::ArgMax:
      case ReduceKind::ArgMin: r.i = a.at; break;
      case ReduceKind::WelfordMean: r.f = to_compute(op.dtype, a.count ? a.mean : 0); break;
      case ReduceKind::WelfordM2: r.f = to_compute(op.dtype, a.m2); break;
      case ReduceKind::ExpSum: r.f = std::isfinite(a.best.f) && a.count ? to_compute(op.dtype, a.exp_sum) : NAN; break;
    }
    return r;
  }

  // --- strided copies
  template <class F>
  static void points(const std::vector<int64_t>& sizes, F&& f) {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    std::vector<int64_t> at(sizes.size(), 0);
    for (int64_t k = 0; k < n; ++k) {
      f(k, at);
      for (size_t d = sizes.size(); d-- > 0;) {
        if (++at[d] < sizes[d]) break;
        at[d] = 0;
      }
    }
  }

  HostTensor gather(const View& v) {
    HostTensor t = host_tensor(v.dtype, eval(v.sizes));
    auto strides = eval(v.strides);
    int64_t offset = eval(v.offset);
    auto size = static_cast<size_t>(size_of(v.dtype));
    points(t.sizes, [&](int64_t k, const std::vector<int64_t>& at) {
      int64_t index = offset;
      for (size_t d = 0; d < at.size(); ++d) index += at[d] * strides[d];
      std::memcpy(t.storage.data() + static_cast<size_t>(k) * size, element(v.buffer, index), size);
    });
    return t;
  }

  static void scatter(const HostTensor& from, std::span<uint8_t> to, DType dtype, const std::vector<int64_t>& strides,
                      int64_t offset) {
    auto size = static_cast<size_t>(size_of(dtype));
    points(from.sizes, [&](int64_t k, const std::vector<int64_t>& at) {
      int64_t index = offset;
      for (size_t d = 0; d < at.size(); ++d) index += at[d] * strides[d];
      size_t byte = static_cast<size_t>(index) * size;
      BRAZE_CHECK(index >= 0 && byte + size <= to.size(), "interpret: a copy leaves its tensor");
      std::memcpy(to.data() + byte, from.storage.data() + static_cast<size_t>(k) * size, size);
    });
  }

  void extern_call(const ExternCall& c) {
    where_ = c.name;
    BRAZE_CHECK(static_cast<bool>(call_), "interpret: nobody to run " + c.name);
    std::vector<HostTensor> views;
    for (const View& v : c.views) views.push_back(gather(v));
    std::vector<HostTensor> results = call_(c, views);
    BRAZE_CHECK(results.size() == c.outputs.size(), "interpret: wrong number of results from " + c.name);
    for (size_t i = 0; i < results.size(); ++i) {
      const View& v = c.outputs[i];
      if (!v.buffer.valid()) continue;
      for (size_t d = 0; d < v.sizes.size(); ++d)  // the result's size defines an unbacked symbol
        if (arena_.kind(v.sizes[d]) == sym::Kind::Symbol && arena_.symbol_kind(v.sizes[d]) == sym::SymbolKind::Unbacked)
          env_[v.sizes[d].id] = results[i].sizes.at(d);
      scatter(results[i], bytes(v.buffer), v.dtype, eval(v.strides), eval(v.offset));
    }
  }

  const Program& p_;
  const sym::ExprArena& arena_;
  std::vector<HostTensor>& inputs_;
  const ExternFn& call_;
  const Arena* shared_;
  std::vector<BufferId> lives_in_;  // per buffer: itself, or the input that it is written to in place
  std::vector<std::vector<uint8_t>> memory_;
  std::vector<uint8_t> arena_memory_;
  std::vector<char> allocated_;
  std::unordered_map<uint32_t, size_t> length_;
  std::unordered_map<uint32_t, int64_t> env_;
  sym::Env env_fn_;
  std::string where_;
};

}  // namespace

HostTensor host_tensor(DType dtype, std::vector<int64_t> sizes) {
  HostTensor t;
  t.dtype = dtype;
  t.sizes = std::move(sizes);
  t.strides.resize(t.sizes.size());
  int64_t n = 1;
  for (size_t d = t.sizes.size(); d-- > 0;) {
    t.strides[d] = n;
    n *= t.sizes[d];
  }
  t.storage.assign(static_cast<size_t>(n) * static_cast<size_t>(size_of(dtype)), 0);
  return t;
}

double get_number(const HostTensor& t, int64_t element) {
  Scalar s = load(t.dtype, t.storage.data() + element * size_of(t.dtype));
  return is_floating(t.dtype) ? s.f : static_cast<double>(s.i);
}

void set_number(HostTensor& t, int64_t element, double value) {
  Scalar s;
  if (is_floating(t.dtype))
    s.f = value;
  else
    s.i = static_cast<int64_t>(value);
  store(t.dtype, t.storage.data() + element * size_of(t.dtype), s);
}

std::vector<HostTensor> run(const Program& program, std::vector<HostTensor>& inputs, const ExternFn& call,
                            const Arena* arena) {
  return Interpreter(program, inputs, call, arena).run();
}

}  // namespace braze::loop
