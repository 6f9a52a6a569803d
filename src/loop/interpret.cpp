#include "loop/interpret.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <unordered_map>

#include "base/check.h"
#include "loop/analysis.h"

namespace braze::loop {
namespace {

// A value of any dtype: floats in `f` (already rounded to the compute type), integers and Bool in `i`.
struct Scalar {
  double f = 0;
  int64_t i = 0;
};

float from_bits(uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
uint32_t bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return u;
}
float bf16_to_float(uint16_t h) { return from_bits(static_cast<uint32_t>(h) << 16); }
uint16_t float_to_bf16(float f) {
  if (std::isnan(f)) return 0x7fc0;
  uint32_t u = bits(f);
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
float f16_to_float(uint16_t h) {
  int sign = h >> 15, e = (h >> 10) & 31, m = h & 1023;
  double v = e == 31 ? (m ? std::nan("") : INFINITY) : e ? std::ldexp(1024 + m, e - 25) : std::ldexp(m, -24);
  return static_cast<float>(sign ? -v : v);
}
uint16_t float_to_f16(float f) {
  uint16_t sign = std::signbit(f) ? 0x8000 : 0;
  if (std::isnan(f)) return sign | 0x7e00;
  double a = std::fabs(static_cast<double>(f));
  if (a >= 65520) return sign | 0x7c00;
  if (a < 0x1p-14) return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(a, 24)));
  int e;
  std::frexp(a, &e);  // a = m * 2^e, m in [0.5, 1)
  auto q = static_cast<int>(std::nearbyint(std::ldexp(a, 11 - e)));  // 11 significant bits
  return static_cast<uint16_t>(sign + ((e + 13) << 10) + q);
}


// To the type that arithmetic on `t` uses.
double to_compute(DType t, double v) { return t == DType::F64 ? v : static_cast<double>(static_cast<float>(v)); }
double to_storage(DType t, double v) {
  if (t == DType::BF16) return bf16_to_float(float_to_bf16(static_cast<float>(v)));
  if (t == DType::F16) return f16_to_float(float_to_f16(static_cast<float>(v)));
  return to_compute(t, v);
}
int64_t wrap(DType t, int64_t v) {
  switch (t) {
    case DType::U8: return static_cast<uint8_t>(v);
    case DType::I8: return static_cast<int8_t>(v);
    case DType::I16: return static_cast<int16_t>(v);
    case DType::I32: return static_cast<int32_t>(v);
    case DType::Bool: return v != 0;
    default: return v;
  }
}

Scalar load(DType t, const uint8_t* p) {
  Scalar s;
  auto as = [&](auto z) {
    std::memcpy(&z, p, sizeof z);
    return z;
  };
  switch (t) {
    case DType::F64: s.f = as(double{}); break;
    case DType::F32: s.f = as(float{}); break;
    case DType::BF16: s.f = bf16_to_float(as(uint16_t{})); break;
    case DType::F16: s.f = f16_to_float(as(uint16_t{})); break;
    case DType::U8: s.i = as(uint8_t{}); break;
    case DType::Bool: s.i = as(uint8_t{}) != 0; break;
    case DType::I8: s.i = as(int8_t{}); break;
    case DType::I16: s.i = as(int16_t{}); break;
    case DType::I32: s.i = as(int32_t{}); break;
    case DType::I64: s.i = as(int64_t{}); break;
    default: throw InternalError("interpret: dtype without arithmetic");
  }
  return s;
}

void store(DType t, uint8_t* p, Scalar s) {
  auto put = [&](auto z) { std::memcpy(p, &z, sizeof z); };
  switch (t) {
    case DType::F64: put(s.f); break;
    case DType::F32: put(static_cast<float>(s.f)); break;
    case DType::BF16: put(float_to_bf16(static_cast<float>(s.f))); break;
    case DType::F16: put(float_to_f16(static_cast<float>(s.f))); break;
    case DType::U8: put(static_cast<uint8_t>(s.i)); break;
    case DType::Bool: put(static_cast<uint8_t>(s.i != 0)); break;
    case DType::I8: put(static_cast<int8_t>(s.i)); break;
    case DType::I16: put(static_cast<int16_t>(s.i)); break;
    case DType::I32: put(static_cast<int32_t>(s.i)); break;
    case DType::I64: put(s.i); break;
    default: throw InternalError("interpret: dtype without arithmetic");
  }
}

double float_op(OpCode c, double a, double b) {
  switch (c) {
    case OpCode::Add: return a + b;
    case OpCode::Sub: return a - b;
    case OpCode::Mul: return a * b;
    case OpCode::Div: return a / b;
    case OpCode::FloorDiv: {
      if (b == 0) return a / b;
      double m = std::fmod(a, b), d = (a - m) / b;
      if (m != 0 && (b < 0) != (m < 0)) d -= 1;
      if (d == 0) return std::copysign(0.0, a / b);
      double f = std::floor(d);
      return d - f > 0.5 ? f + 1 : f;
    }
    case OpCode::Mod: return std::fmod(a, b);
    case OpCode::Remainder: {
      double m = std::fmod(a, b);
      return m != 0 && (b < 0) != (m < 0) ? m + b : m;
    }
    case OpCode::Max: return std::isnan(a) || std::isnan(b) ? std::nan("") : a > b ? a : b;
    case OpCode::Min: return std::isnan(a) || std::isnan(b) ? std::nan("") : a < b ? a : b;
    case OpCode::Pow: return std::pow(a, b);
    case OpCode::Atan2: return std::atan2(a, b);
    case OpCode::Copysign: return std::copysign(a, b);
    case OpCode::Neg: return -a;
    case OpCode::Abs: return std::fabs(a);
    case OpCode::Sign: return std::isnan(a) ? a : (a > 0) - (a < 0);
    case OpCode::Floor: return std::floor(a);
    case OpCode::Ceil: return std::ceil(a);
    case OpCode::Trunc: return std::trunc(a);
    case OpCode::Round: return std::nearbyint(a);
    case OpCode::Sqrt: return std::sqrt(a);
    case OpCode::Rsqrt: return 1 / std::sqrt(a);
    case OpCode::Recip: return 1 / a;
    case OpCode::Exp: return std::exp(a);
    case OpCode::Exp2: return std::exp2(a);
    case OpCode::Expm1: return std::expm1(a);
    case OpCode::Log: return std::log(a);
    case OpCode::Log2: return std::log2(a);
    case OpCode::Log10: return std::log10(a);
    case OpCode::Log1p: return std::log1p(a);
    case OpCode::Sin: return std::sin(a);
    case OpCode::Cos: return std::cos(a);
    case OpCode::Tan: return std::tan(a);
    case OpCode::Asin: return std::asin(a);
    case OpCode::Acos: return std::acos(a);
    case OpCode::Atan: return std::atan(a);
    case OpCode::Sinh: return std::sinh(a);
    case OpCode::Cosh: return std::cosh(a);
    case OpCode::Tanh: return std::tanh(a);
    case OpCode::Asinh: return std::asinh(a);
    case OpCode::Acosh: return std::acosh(a);
    case OpCode::Atanh: return std::atanh(a);
    case OpCode::Erf: return std::erf(a);
    case OpCode::Erfc: return std::erfc(a);
    case OpCode::Sigmoid: return 1 / (1 + std::exp(-a));
    default: throw InternalError("interpret: not an operation on floats");
  }
}

int64_t floor_div(int64_t a, int64_t b) {
  BRAZE_CHECK(b != 0, "integer division by zero");
  int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

int64_t int_op(OpCode c, DType t, int64_t a, int64_t b) {
  auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (c) {
    case OpCode::Add: return t == DType::Bool ? a | b : static_cast<int64_t>(ua + ub);
    case OpCode::Sub: return static_cast<int64_t>(ua - ub);
    case OpCode::Mul: return t == DType::Bool ? a & b : static_cast<int64_t>(ua * ub);
    case OpCode::Div: BRAZE_CHECK(b != 0, "integer division by zero"); return b == -1 ? static_cast<int64_t>(0 - ua) : a / b;
    case OpCode::FloorDiv: return b == -1 ? static_cast<int64_t>(0 - ua) : floor_div(a, b);
    case OpCode::Mod: BRAZE_CHECK(b != 0, "integer division by zero"); return b == -1 ? 0 : a % b;
    case OpCode::Remainder: return b == -1 ? 0 : a - b * floor_div(a, b);
    case OpCode::Max: return std::max(a, b);
    case OpCode::Min: return std::min(a, b);
    case OpCode::Pow: {
      if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
      uint64_t r = 1;
      for (; b; b >>= 1, ua *= ua)
        if (b & 1) r *= ua;
      return static_cast<int64_t>(r);
    }
    case OpCode::And: return a & b;
    case OpCode::Or: return a | b;
    case OpCode::Xor: return a ^ b;
    case OpCode::Shl: return b >= 0 && b < 64 ? static_cast<int64_t>(ua << b) : 0;
    case OpCode::Shr: return a >> std::clamp<int64_t>(b, 0, 63);
    case OpCode::Not: return t == DType::Bool ? !a : ~a;
    case OpCode::Neg: return static_cast<int64_t>(0 - ua);
    case OpCode::Abs: return a < 0 ? static_cast<int64_t>(0 - ua) : a;
    case OpCode::Sign: return (a > 0) - (a < 0);
    case OpCode::Floor:
    case OpCode::Ceil:
    case OpCode::Trunc:
    case OpCode::Round: return a;
    default: throw InternalError("interpret: not an operation on integers");
  }
}

struct Accumulator {
  Scalar best;
  double mean = 0, m2 = 0, sum = 0, prod = 1;
  int64_t isum = 0, iprod = 1, count = 0, at = 0;
  bool any = false, all = true, nan = false;
};

class Interpreter {
 public:
  Interpreter(const Program& p, std::vector<HostTensor>& inputs, const ExternFn& call, const Arena* shared)
      : p_(p), arena_(*p.arena), inputs_(inputs), call_(call), shared_(shared), memory_(p.buffers.size()), allocated_(p.buffers.size(), 0) {
    for (const auto& [s, where] : p.size_symbols) {
      const HostTensor& t = inputs.at(where.first);
      int32_t d = where.second;
      env_[s.id] = d >= 0 ? t.sizes.at(static_cast<size_t>(d)) : t.strides.at(static_cast<size_t>(~d));
    }
    env_fn_ = [this](Expr s) {
      auto it = env_.find(s.id);
      BRAZE_CHECK(it != env_.end(), "interpret: symbol without a value: " + std::string(arena_.symbol_name(s)));
      return it->second;
    };
  }

  std::vector<HostTensor> run() {
    for (const Item& item : p_.items) {
      if (auto* n = std::get_if<Nest>(&item)) nest(*n);
      else extern_call(std::get<ExternCall>(item));
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

  // The bytes of a buffer. Input and Constant buffers live in the inputs; the arena is allocated once its size is known.
  std::span<uint8_t> bytes(BufferId b) {
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
    const Buffer& buf = p_.buffers[b];
    std::span<uint8_t> m = bytes(b);
    if (buf.kind == BufferKind::Input || buf.kind == BufferKind::Constant) index += eval(buf.offset) + inputs_.at(buf.input).offset;
    int64_t size = size_of(buf.dtype);
    BRAZE_CHECK(index >= 0 && (index + 1) * size <= static_cast<int64_t>(m.size()),
                "interpret: element " + std::to_string(index) + " is outside of buffer %" + std::to_string(b.index) + " (" + where_ + ")");
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

  void step(const LoopOp& op, std::vector<Scalar>& values, const std::vector<DType>& types, Accumulator& acc, int64_t point) {
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
          v.i = t == DType::Bool ? (old.i | v.i) : static_cast<int64_t>(static_cast<uint64_t>(old.i) + static_cast<uint64_t>(v.i));
        }
        store(t, at, v);
        return;
      }
      case OpCode::Const:
        if (is_floating(op.dtype)) r.f = to_compute(op.dtype, op.number);
        else r.i = wrap(op.dtype, op.integer);
        break;
      case OpCode::Index: r.i = wrap(op.dtype, eval(op.index)); break;
      case OpCode::Indirect: {
        int64_t bound = eval(op.bound), v = arg(0).i;
        BRAZE_CHECK(v >= -bound && v < bound, "index " + std::to_string(v) + " is out of bounds for dimension of size " + std::to_string(bound));
        env_[op.index.id] = v < 0 ? v + bound : v;
        return;
      }
      case OpCode::Reduce: accumulate(op, arg(0), type(0), acc, point); return;
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
          r.f = op.dtype == DType::F64 ? std::fma(arg(0).f, arg(1).f, arg(2).f)
                                       : static_cast<double>(std::fma(static_cast<float>(arg(0).f), static_cast<float>(arg(1).f), static_cast<float>(arg(2).f)));
        else r.i = wrap(op.dtype, arg(0).i * arg(1).i + arg(2).i);
        break;
      case OpCode::IsNan: r.i = is_floating(type(0)) && std::isnan(arg(0).f); break;
      case OpCode::IsInf: r.i = is_floating(type(0)) && std::isinf(arg(0).f); break;
      default:
        if (is_comparison(op.code)) {
          r.i = is_floating(type(0)) ? compare(op.code, arg(0).f, arg(1).f) : compare(op.code, arg(0).i, arg(1).i);
        } else {
          Scalar b = arity(op.code) > 1 ? arg(1) : Scalar{};
          if (is_floating(op.dtype)) r.f = to_compute(op.dtype, float_op(op.code, arg(0).f, b.f));
          else r.i = wrap(op.dtype, int_op(op.code, op.dtype, arg(0).i, b.i));
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
    if (is_floating(to)) r.f = to_storage(to, is_floating(from) ? v.f : static_cast<double>(v.i));
    else if (!is_floating(from)) r.i = wrap(to, v.i);
    else if (to == DType::Bool) r.i = v.f != 0;
    else r.i = std::isnan(v.f) || std::fabs(v.f) >= 0x1p63 ? std::numeric_limits<int64_t>::min() : wrap(to, static_cast<int64_t>(v.f));
    return r;
  }

  static void accumulate(const LoopOp& op, Scalar v, DType t, Accumulator& a, int64_t point) {
    bool fl = is_floating(t);
    bool better = a.count == 0;
    if (!better && !a.nan) {
      bool max = op.reduce == ReduceKind::Max || op.reduce == ReduceKind::ArgMax;
      better = fl ? (std::isnan(v.f) || (max ? v.f > a.best.f : v.f < a.best.f)) : (max ? v.i > a.best.i : v.i < a.best.i);
    }
    if (better) {
      a.best = v;
      a.at = point;
      a.nan = fl && std::isnan(v.f);
    }
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
      case ReduceKind::Any: r.i = a.any; break;
      case ReduceKind::All: r.i = a.all; break;
      case ReduceKind::ArgMax:
      case ReduceKind::ArgMin: r.i = a.at; break;
      case ReduceKind::WelfordMean: r.f = to_compute(op.dtype, a.count ? a.mean : 0); break;
      case ReduceKind::WelfordM2: r.f = to_compute(op.dtype, a.m2); break;
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

  static void scatter(const HostTensor& from, std::span<uint8_t> to, DType dtype, const std::vector<int64_t>& strides, int64_t offset) {
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
  if (is_floating(t.dtype)) s.f = value;
  else s.i = static_cast<int64_t>(value);
  store(t.dtype, t.storage.data() + element * size_of(t.dtype), s);
}

std::vector<HostTensor> run(const Program& program, std::vector<HostTensor>& inputs, const ExternFn& call, const Arena* arena) {
  return Interpreter(program, inputs, call, arena).run();
}

}  // namespace braze::loop
