// Operations as text: the casts, arithmetic, comparisons, selections, loads and stores of loop/opcodes.def.
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/float8.h"
#include "codegen/cpp/printer.h"
#include "loop/analysis.h"
#include "loop/value_range.h"

namespace braze::codegen::cpp {

using loop::OpCode;

std::string register_type(DType dtype) {
  switch (dtype) {
    case DType::Bool: return "bool";
    case DType::F16:
    case DType::BF16: return "float";
    default: return memory_type(dtype);
  }
}

std::string memory_type(DType dtype) {
  switch (dtype) {
    case DType::Bool: return "boolean";
    case DType::I8: return "int8_t";
    case DType::I16: return "int16_t";
    case DType::I32: return "int32_t";
    case DType::I64: return "int64_t";
    case DType::F16: return "half";
    case DType::BF16: return "bfloat16";
    case DType::F32: return "float";
    case DType::F64: return "double";
    case DType::U8: return "uint8_t";
    default:
      if (float8(dtype)) return "uint8_t";
      throw InternalError("the C++ code generator has no dtype " + std::string(name(dtype)));
  }
}

namespace {

std::string format_of(DType dtype) {
  switch (dtype) {
    case DType::F8E4M3: return "e4m3fn";
    case DType::F8E5M2: return "e5m2";
    case DType::F8E4M3fnuz: return "e4m3fnuz";
    case DType::F8E5M2fnuz: return "e5m2fnuz";
    default: return "e8m0fnu";
  }
}

std::string call(const std::string& f, const std::string& x) { return f + "(" + x + ")"; }
std::string call(const std::string& f, const std::string& x, const std::string& y) {
  return f + "(" + x + ", " + y + ")";
}

std::string number(DType dtype, double value) {
  bool wide = dtype == DType::F64;
  if (std::isnan(value)) return wide ? "__builtin_nan(\"\")" : "__builtin_nanf(\"\")";
  std::string infinite = wide ? "__builtin_inf()" : "__builtin_inff()";
  if (std::isinf(value)) return value > 0 ? infinite : "-" + infinite;
  char text[40];
  auto end = wide ? std::to_chars(text, text + sizeof text, value)
                  : std::to_chars(text, text + sizeof text, static_cast<float>(value));
  std::string s(text, end.ptr);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return wide ? s : s + "f";
}

std::string constant(const LoopOp& op) {
  if (const Float8* format = float8(op.dtype))
    return "uint8_t(" + std::to_string(to_float8(*format, static_cast<float>(op.number))) + ")";
  if (is_floating(op.dtype)) {
    float f = static_cast<float>(op.number);
    bool overflows = op.dtype != DType::F64 && std::isinf(f);
    return number(op.dtype, overflows ? static_cast<double>(f) : op.number);
  }
  if (op.dtype == DType::Bool) return op.integer ? "true" : "false";
  return register_type(op.dtype) + "(" + literal(op.integer) + ")";
}

}  // namespace

void Printer::set(const LoopOp& op, const std::string& text, bool vec) {
  std::string name = "v" + std::to_string(op.result.index);
  line("const auto " + name + " = " + text + ";");
  values_[op.result.index] = {name, op.dtype, vec, nullptr};
}

std::string Printer::cast(const Val& v, DType to) const {
  DType from = v.dtype;
  if (from == to) return v.text;
  if (float8(from)) return cast({call("from_float8<" + format_of(from) + ">", v.text), DType::F32, v.vec, nullptr}, to);
  if (float8(to)) return call("to_float8<" + format_of(to) + ">", cast(v, DType::F32));
  std::string have = register_type(from), want = register_type(to);
  std::string s = have == want ? v.text : call("cast<" + want + ">", v.text);
  bool exact = !is_floating(from) && size_of(from) == 1;
  return (to == DType::F16 || to == DType::BF16) && !exact ? call("rounded<" + memory_type(to) + ">", s) : s;
}

void Printer::print_op(const LoopOp& op) {
  switch (op.code) {
    case OpCode::Load: print_load(op); return;
    case OpCode::Store: print_store(op); return;
    case OpCode::Const:
      set(op, constant(op), false);
      values_[op.result.index].constant = &op;
      return;
    case OpCode::Index: {
      Val v{lane_numbers(op.index), DType::I64, varies(op.index), nullptr};
      set(op, cast(v, op.dtype), v.vec);
      return;
    }
    case OpCode::Indirect: {
      const Val& v = values_[op.args[0].index];
      int kind = static_cast<int>(op.check.fault) | op.check.dim << 8;
      std::string name = fresh("at");
      if (loop::is_inside(program_, nest_, op)) {
        line("const auto " + name + " = " + cast(v, DType::I64) + ";");
        symbols_[op.index.id] = {name, v.vec};
        return;
      }
      line("const auto " + name + " = checked<" + std::to_string(kind) + ", " + (op.check.wrap ? "true" : "false") +
           ">(" + cast(v, DType::I64) + ", " + index(op.bound) + ");");
      symbols_[op.index.id] = {name, v.vec};
      return;
    }
    default: break;
  }
  std::array<Val, 3> v;
  bool vec = false;
  for (size_t i = 0; i < 3 && op.args[i].valid(); ++i) v[i] = values_[op.args[i].index], vec |= v[i].vec;
  if (loop::divides_integers(op) && !(v[1].constant && v[1].constant->integer != 0))
    line("check_divisor<" + std::to_string(static_cast<int>(loop::Fault::Division)) + ">(" + cast(v[1], op.dtype) +
         ");");
  set(op, arithmetic(op, v), vec);
}

void Printer::print_load(const LoopOp& op) {
  const loop::Buffer& buffer = program_.buffers[op.buffer];
  const std::string& p = buffers_.at(op.buffer.index);
  std::string text;
  auto s = step(op.index);
  bool vec = varies(op.index) && s != 0;
  if (!vec)
    text = "load_one(" + p + " + " + index(op.index) + ")";
  else if (s == 1)
    text = "load(" + lanes_ + ", " + p + " + " + index(op.index) + ")";
  else
    text = "gather(" + lanes_ + ", " + p + ", " + each(op.index) + ")";
  set(op, cast({text, buffer.dtype, vec, nullptr}, op.dtype), vec);
}

void Printer::print_store(const LoopOp& op) {
  const loop::Buffer& buffer = program_.buffers[op.buffer];
  const std::string& p = buffers_.at(op.buffer.index);
  const Val& v = values_[op.args[0].index];
  std::string x = cast(v, buffer.dtype), at = p + " + " + index(op.index);
  if (op.atomic_add)
    line("add_each(" + lanes_ + ", " + p + ", " + each(op.index) + ", " + x + ");");
  else if (!varies(op.index))
    line("store_one(" + at + ", " + x + ");");
  else if (step(op.index) == 1)
    line("store(" + lanes_ + ", " + at + ", " + x + ");");
  else
    line("scatter(" + lanes_ + ", " + p + ", " + each(op.index) + ", " + x + ");");
}

std::string Printer::arithmetic(const LoopOp& op, const std::array<Val, 3>& v) const {
  auto as = [&](size_t i, DType t) { return cast(v[i], t); };
  DType first = v[0].dtype;
  auto compare = [&](const char* f) { return call(f, v[0].text, as(1, first)); };
  switch (op.code) {
    case OpCode::Cast: return as(0, op.dtype);
    case OpCode::Bitcast: return call("bitcast<" + memory_type(op.dtype) + ", " + memory_type(first) + ">", v[0].text);
    case OpCode::Where: return "where(" + as(0, DType::Bool) + ", " + as(1, op.dtype) + ", " + as(2, op.dtype) + ")";
    case OpCode::Fma: return "multiply_add(" + as(0, op.dtype) + ", " + as(1, op.dtype) + ", " + as(2, op.dtype) + ")";
    case OpCode::Eq: return compare("equal");
    case OpCode::Ne: return compare("not_equal");
    case OpCode::Lt: return compare("less");
    case OpCode::Le: return compare("less_equal");
    case OpCode::Gt: return compare("greater");
    case OpCode::Ge: return compare("greater_equal");
    case OpCode::IsNan: return is_floating(first) ? call("is_nan", v[0].text) : "false";
    case OpCode::IsInf: return is_floating(first) ? call("is_inf", v[0].text) : "false";
    default: break;
  }
  std::string x = as(0, op.dtype), y = loop::arity(op.code) > 1 ? as(1, op.dtype) : "";
  return is_floating(op.dtype) ? float_op(op, x, y, v[1]) : integer_op(op, x, y);
}

std::string Printer::float_op(const LoopOp& op, const std::string& x, const std::string& y, const Val& right) const {
  if (op.code == OpCode::Pow && right.constant && is_floating(right.dtype)) {  // as eager has them
    double n = right.constant->number;
    if (n == 1) return x;
    std::string square = call("mul", x, x);
    if (n == 2) return square;
    if (n == 3) return call("mul", square, x);
    if (n == -1) return call("recip", x);
    if (n == -2) return call("recip", square);
  }
  switch (op.code) {
    case OpCode::Div: return call("div", x, y);
    case OpCode::FloorDiv: return call("floor_div", x, y);
    case OpCode::Mod: return call("fmod", x, y);
    case OpCode::And:
    case OpCode::Or:
    case OpCode::Xor:
    case OpCode::Not:
    case OpCode::Shl:
    case OpCode::Shr: throw InternalError("no such arithmetic on floats");
    default: break;
  }
  std::string f;  // the others are called as their rows are
  for (const char* c = loop::op_row(op.code).name; *c; ++c) f += static_cast<char>(std::tolower(*c));
  return y.empty() ? call(f, x) : call(f, x, y);
}

std::string Printer::integer_op(const LoopOp& op, const std::string& x, const std::string& y) const {
  if (op.dtype == DType::Bool) switch (op.code) {
      case OpCode::Add:
      case OpCode::Max:
      case OpCode::Or: return call("bit_or", x, y);
      case OpCode::Mul:
      case OpCode::Min:
      case OpCode::And: return call("bit_and", x, y);
      case OpCode::Xor:
      case OpCode::Sub: return call("bit_xor", x, y);
      case OpCode::Not: return call("bit_not", x);
      case OpCode::Abs:
      case OpCode::Sign: return x;
      default: throw InternalError("no such arithmetic on bool");
    }
  switch (op.code) {
    case OpCode::Add: return call("add", x, y);
    case OpCode::Sub: return call("sub", x, y);
    case OpCode::Mul: return call("mul", x, y);
    case OpCode::Div: return call("int_div", x, y);
    case OpCode::Mod: return call("int_mod", x, y);
    case OpCode::FloorDiv: return call("int_floor_div", x, y);
    case OpCode::Remainder: return call("int_remainder", x, y);
    case OpCode::Max: return call("max", x, y);
    case OpCode::Min: return call("min", x, y);
    case OpCode::Pow: return call("int_pow", x, y);
    case OpCode::And: return call("bit_and", x, y);
    case OpCode::Or: return call("bit_or", x, y);
    case OpCode::Xor: return call("bit_xor", x, y);
    case OpCode::Shl: return call("shift_left", x, y);
    case OpCode::Shr: return call("shift_right", x, y);
    case OpCode::Not: return call("bit_not", x);
    case OpCode::Neg: return call("neg", x);
    case OpCode::Abs: return call("int_abs", x);
    case OpCode::Sign: return call("sign", x);
    case OpCode::Floor:
    case OpCode::Ceil:
    case OpCode::Trunc:
    case OpCode::Round: return x;
    default: throw InternalError("no such arithmetic on integers");
  }
}

}  // namespace braze::codegen::cpp
