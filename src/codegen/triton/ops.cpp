// Arithmetic as text: the casts, operations, comparisons and selections of loop/opcodes.def.
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "codegen/triton/printer.h"
#include "loop/analysis.h"

namespace braze::codegen::triton {

using loop::OpCode;

std::string storage_type(DType dtype) {
  switch (dtype) {
    case DType::Bool: return "tl.int1";
    case DType::F8E4M3:
    case DType::F8E5M2:  // helpers tell its bits: Triton's conversions saturate, and not every GPU has them
    case DType::U8: return "tl.uint8";
    case DType::I8: return "tl.int8";
    case DType::I16: return "tl.int16";
    case DType::I32: return "tl.int32";
    case DType::I64: return "tl.int64";
    case DType::F16: return "tl.float16";
    case DType::BF16: return "tl.bfloat16";
    case DType::F32: return "tl.float32";
    case DType::F64: return "tl.float64";
    default: throw Inexpressible("dtype " + std::string(name(dtype)));
  }
}

std::string compute_type(DType dtype) {
  return dtype == DType::F16 || dtype == DType::BF16 ? "tl.float32" : storage_type(dtype);
}

std::string literal(DType dtype, double value) {
  if (std::isnan(value)) return "float(\"nan\")";
  if (std::isinf(value)) return value > 0 ? "float(\"inf\")" : "float(\"-inf\")";
  char text[40];
  auto end = dtype == DType::F64 ? std::to_chars(text, text + sizeof text, value)
                                 : std::to_chars(text, text + sizeof text, static_cast<float>(value));
  std::string s(text, end.ptr);
  return s.find_first_of(".e") == std::string::npos ? s + ".0" : s;
}

std::string Printer::constant(const LoopOp& op) const {
  std::string value = is_floating(op.dtype)     ? literal(op.dtype, op.number)
                      : op.dtype == DType::Bool ? (op.integer ? "True" : "False")
                                                : std::to_string(op.integer);
  return std::string("tl.full(") + (blocks_.way == Blocks::Way::Points ? "[1], " : "[1, 1], ") + value + ", " +
         compute_type(op.dtype) + ")";
}

std::string Printer::cast(const Val& v, DType to) {
  DType from = v.dtype;
  if (from == to) return v.s;
  auto name_of = [](DType d) { return d == DType::F8E4M3 ? "e4m3fn" : "e5m2"; };
  if (float8(from))
    return cast({helper(std::string("from_") + name_of(from)) + "(" + v.s + ")", v.dims, DType::F32}, to);
  if (float8(to)) return helper(std::string("to_") + name_of(to)) + "(" + cast(v, DType::F32) + ")";
  std::string have = compute_type(from), want = compute_type(to);
  auto as = [](const std::string& type) { return ".to(" + type + ")"; };
  if (to == DType::Bool) return "(" + v.s + " != 0)";
  if (is_floating(to)) {
    std::string s = have == want ? v.s : v.s + as(want);
    return want == storage_type(to) ? s : s + as(storage_type(to)) + as(want);
  }
  // Narrow integers by way of i32, as the machine's conversion does.
  if (is_floating(from)) return size_of(to) < 4 ? v.s + as("tl.int32") + as(want) : v.s + as(want);
  return v.s + as(want);
}

void Printer::emit_op(const LoopOp& op) {
  switch (op.code) {
    case OpCode::Load: emit_load(op); return;
    case OpCode::Store: emit_store(op); return;
    case OpCode::Indirect: emit_indirect(op); return;
    case OpCode::Const: set(op, constant(op), 0); return;
    case OpCode::Index: {
      Text t = index(op.index);
      LoopOp number = op;
      if (auto c = arena_.as_const(op.index)) {
        number.integer = *c;
        set(op, constant(number), 0);
        return;
      }
      Val v{assign("n" + std::to_string(op.result.index), t.s), t.dims, wide_ ? DType::I64 : DType::I32};
      // Attention's indices stay narrow until arithmetic asks for more: conversions of 64 bits are slow.
      bool narrow = !prefix_.empty() && is_integral(op.dtype) && size_of(op.dtype) >= size_of(v.dtype);
      values_[op.result.index] = narrow ? v : Val{cast(v, op.dtype), t.dims, op.dtype};
      return;
    }
    default: break;
  }
  std::array<Val, 3> v;
  unsigned dims = 0;
  for (size_t i = 0; i < 3 && op.args[i].valid(); ++i) v[i] = values_[op.args[i].index], dims |= v[i].dims;
  set(op, arithmetic(op, v), dims);
}

void Printer::set(const LoopOp& op, const std::string& value, unsigned dims) {
  values_[op.result.index] = {assign("v" + std::to_string(op.result.index), value), dims, op.dtype};
}

std::string Printer::arithmetic(const LoopOp& op, const std::array<Val, 3>& v) {
  auto as = [&](size_t i, DType t) { return cast(v[i], t); };
  DType first = v[0].dtype, common = first;  // of a comparison
  if (is_integral(first) && is_integral(v[1].dtype) && size_of(v[1].dtype) > size_of(first)) common = v[1].dtype;
  switch (op.code) {
    case OpCode::Cast: return as(0, op.dtype);
    case OpCode::Bitcast: {
      std::string s = v[0].s;
      if (compute_type(first) != storage_type(first)) s += ".to(" + storage_type(first) + ")";
      s += ".to(" + storage_type(op.dtype) + ", bitcast=True)";
      return compute_type(op.dtype) == storage_type(op.dtype) ? s : s + ".to(" + compute_type(op.dtype) + ")";
    }
    case OpCode::Where: return "tl.where(" + as(0, DType::Bool) + ", " + as(1, op.dtype) + ", " + as(2, op.dtype) + ")";
    case OpCode::Fma:
      if (is_floating(op.dtype))
        return "tl.fma(" + as(0, op.dtype) + ", " + as(1, op.dtype) + ", " + as(2, op.dtype) + ")";
      return as(0, op.dtype) + " * " + as(1, op.dtype) + " + " + as(2, op.dtype);
    case OpCode::Eq: return as(0, common) + " == " + as(1, common);
    case OpCode::Ne: return as(0, common) + " != " + as(1, common);
    case OpCode::Lt: return as(0, common) + " < " + as(1, common);
    case OpCode::Le: return as(0, common) + " <= " + as(1, common);
    case OpCode::Gt: return as(0, common) + " > " + as(1, common);
    case OpCode::Ge: return as(0, common) + " >= " + as(1, common);
    case OpCode::IsNan: return v[0].s + " != " + v[0].s;  // never for integers
    case OpCode::IsInf:
      if (!is_floating(first)) return v[0].s + " != " + v[0].s;
      return "tl.abs(" + v[0].s + ") == float(\"inf\")";
    default: break;
  }
  std::string x = as(0, op.dtype), y = loop::arity(op.code) > 1 ? as(1, op.dtype) : "";
  return is_floating(op.dtype) ? float_op(op, x, y) : integer_op(op, x, y);
}

namespace {

// The function of Triton's libdevice that computes an op as it is.
const char* library_name(OpCode code) {
  switch (code) {
    case OpCode::Mod: return "fmod";
    case OpCode::Pow: return "pow";
    case OpCode::Atan2: return "atan2";
    case OpCode::Copysign: return "copysign";
    case OpCode::Trunc: return "trunc";
    case OpCode::Round: return "rint";
    case OpCode::Rsqrt: return "rsqrt";
    case OpCode::Exp: return "exp";
    case OpCode::Exp2: return "exp2";
    case OpCode::Expm1: return "expm1";
    case OpCode::Log: return "log";
    case OpCode::Log2: return "log2";
    case OpCode::Log10: return "log10";
    case OpCode::Log1p: return "log1p";
    case OpCode::Sin: return "sin";
    case OpCode::Cos: return "cos";
    case OpCode::Tan: return "tan";
    case OpCode::Asin: return "asin";
    case OpCode::Acos: return "acos";
    case OpCode::Atan: return "atan";
    case OpCode::Sinh: return "sinh";
    case OpCode::Cosh: return "cosh";
    case OpCode::Tanh: return "tanh";
    case OpCode::Asinh: return "asinh";
    case OpCode::Acosh: return "acosh";
    case OpCode::Atanh: return "atanh";
    case OpCode::Erf: return "erf";
    case OpCode::Erfc: return "erfc";
    default: return nullptr;
  }
}

}  // namespace

std::string Printer::float_op(const LoopOp& op, const std::string& x, const std::string& y) {
  std::string type = compute_type(op.dtype);
  bool twice = op.dtype == DType::F64;
  // f32's own operators of these names are approximations: good enough beside products (attention's scores, say).
  auto divide = [&](const std::string& a, const std::string& b) {
    return twice || quick_ ? "(" + a + ") / (" + b + ")" : "tl.div_rn(" + a + ", " + b + ")";
  };
  if (const char* function = library_name(op.code))
    return std::string("libdevice.") + function + "(" + x + (y.empty() ? "" : ", " + y) + ")";
  switch (op.code) {
    case OpCode::Add: return x + " + " + y;
    case OpCode::Sub: return x + " - " + y;
    case OpCode::Mul: return x + " * " + y;
    case OpCode::Div: return divide(x, y);
    case OpCode::FloorDiv:
      return helper("float_floor_div") + "(" + x + ", " + y + ", libdevice.fmod(" + x + ", " + y + "), " +
             divide(x, y) + ")";
    case OpCode::Remainder: return helper("float_remainder") + "(libdevice.fmod(" + x + ", " + y + "), " + y + ")";
    case OpCode::Max: return "tl.maximum(" + x + ", " + y + ", propagate_nan=tl.PropagateNan.ALL)";
    case OpCode::Min: return "tl.minimum(" + x + ", " + y + ", propagate_nan=tl.PropagateNan.ALL)";
    case OpCode::Neg: return x + " * -1.0";  // Triton's minus is 0 - x, which loses the sign of zero
    case OpCode::Abs: return "tl.abs(" + x + ")";
    case OpCode::Sign: return "(" + x + " > 0).to(" + type + ") - (" + x + " < 0).to(" + type + ")";
    case OpCode::Floor: return "tl.floor(" + x + ")";
    case OpCode::Ceil: return "tl.ceil(" + x + ")";
    case OpCode::Sqrt: return twice ? "libdevice.sqrt(" + x + ")" : "tl.sqrt_rn(" + x + ")";
    case OpCode::Recip: return divide("tl.full([1], 1.0, " + type + ")", x);
    case OpCode::Sigmoid: return divide("tl.full([1], 1.0, " + type + ")", "libdevice.exp(" + x + " * -1.0) + 1.0");
    default: throw Inexpressible("the operation " + std::to_string(static_cast<int>(op.code)) + " on floats");
  }
}

std::string Printer::integer_op(const LoopOp& op, const std::string& x, const std::string& y) {
  if (op.dtype == DType::Bool) switch (op.code) {
      case OpCode::Add:
      case OpCode::Max:
      case OpCode::Or: return x + " | " + y;
      case OpCode::Mul:
      case OpCode::Min:
      case OpCode::And: return x + " & " + y;
      case OpCode::Xor:
      case OpCode::Sub: return x + " ^ " + y;
      case OpCode::Not: return x + " == 0";
      case OpCode::Abs:
      case OpCode::Sign: return x;
      default: throw Inexpressible("arithmetic on bool");
    }
  std::string type = compute_type(op.dtype), last = std::to_string(8 * size_of(op.dtype) - 1);
  bool sign = op.dtype != DType::U8;
  auto call = [&](const char* name) { return helper(name) + "(" + x + ", " + y + ")"; };
  switch (op.code) {
    case OpCode::Add: return x + " + " + y;
    case OpCode::Sub: return x + " - " + y;
    case OpCode::Mul: return x + " * " + y;
    case OpCode::Div: return call("trunc_div");
    case OpCode::Mod: return call("trunc_mod");
    case OpCode::FloorDiv: return call(sign ? "floor_div" : "trunc_div");
    case OpCode::Remainder: return call(sign ? "floor_mod" : "trunc_mod");
    case OpCode::Max: return "tl.maximum(" + x + ", " + y + ")";
    case OpCode::Min: return "tl.minimum(" + x + ", " + y + ")";
    case OpCode::Pow:
      return helper("integer_pow") + "(" + x + ".to(tl.int64), " + y + ".to(tl.int64)).to(" + type + ")";
    case OpCode::And: return x + " & " + y;
    case OpCode::Or: return x + " | " + y;
    case OpCode::Xor: return x + " ^ " + y;
    case OpCode::Shl:
      return "tl.where((" + y + " >= 0) & (" + y + " <= " + last + "), " + x + " << (" + y + " & " + last + "), 0)";
    case OpCode::Shr:
      if (!sign) return "tl.where(" + y + " <= " + last + ", " + x + " >> (" + y + " & " + last + "), 0)";
      return x + " >> tl.where((" + y + " < 0) | (" + y + " > " + last + "), " + last + ", " + y + ")";
    case OpCode::Not: return "~" + x;
    case OpCode::Neg: return sign ? "-" + x : x + " * 255";
    case OpCode::Abs: return sign ? "tl.abs(" + x + ")" : x;
    case OpCode::Sign:
      return sign ? "(" + x + " > 0).to(" + type + ") - (" + x + " < 0).to(" + type + ")"
                  : "(" + x + " != 0).to(" + type + ")";
    case OpCode::Floor:
    case OpCode::Ceil:
    case OpCode::Trunc:
    case OpCode::Round: return x;
    default: throw Inexpressible("the operation " + std::to_string(static_cast<int>(op.code)) + " on integers");
  }
}

}  // namespace braze::codegen::triton
