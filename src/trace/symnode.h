// Symbolic sizes: c10::SymNodeImpl over the expression arena of one capture.
#pragma once
#include <c10/core/SymInt.h>
#include <c10/core/SymNodeImpl.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "symbolic/shape_env.h"

namespace braze::trace {

using SizeEnv = sym::ShapeEnv;

// While it lives, where `on`, no size becomes a number: who asks for one gets a c10::Error. For code of which it is not
// known whether it takes symbols, where another way is tried after it.
class NumbersRefused {
 public:
  explicit NumbersRefused(bool on);
  ~NumbersRefused();
  NumbersRefused(const NumbersRefused&) = delete;
  NumbersRefused& operator=(const NumbersRefused&) = delete;

 private:
  bool before_;
};

// An int or bool over the symbols of a capture. Floats are computed from the hints: what they were computed from is
// specialised to the value at hand.
class SizeNode final : public c10::SymNodeImpl {
 public:
  enum class Type : uint8_t { Int, Bool, Float };
  SizeNode(std::shared_ptr<SizeEnv> env, Type type, sym::Expr expr) : env_(std::move(env)), type_(type), expr_(expr) {}
  SizeNode(std::shared_ptr<SizeEnv> env, double number) : env_(std::move(env)), type_(Type::Float), number_(number) {}
  sym::ExprArena& arena() const { return env_->arena(); }
  // With what was learnt since it was made.
  sym::Expr expr() const { return env_->simplify(expr_); }
  double number() const { return number_; }

  bool is_int() override { return type_ == Type::Int; }
  bool is_bool() override { return type_ == Type::Bool; }
  bool is_float() override { return type_ == Type::Float; }
  c10::SymNode add(const c10::SymNode& other) override;
  c10::SymNode sub(const c10::SymNode& other) override;
  c10::SymNode mul(const c10::SymNode& other) override;
  c10::SymNode floordiv(const c10::SymNode& other) override;
  c10::SymNode int_floordiv(const c10::SymNode& other) override { return floordiv(other); }
  c10::SymNode truediv(const c10::SymNode& other) override;
  c10::SymNode int_truediv(const c10::SymNode& other) override { return truediv(other); }
  c10::SymNode float_truediv(const c10::SymNode& other) override { return truediv(other); }
  c10::SymNode pow(const c10::SymNode& other) override;
  c10::SymNode float_pow(const c10::SymNode& other) override { return pow(other); }
  c10::SymNode pow_by_natural(const c10::SymNode& other) override;
  c10::SymNode ceil() override;
  c10::SymNode floor() override;
  c10::SymNode sym_float() override;
  c10::SymNode mod(const c10::SymNode& other) override;
  c10::SymNode eq(const c10::SymNode& other) override;
  c10::SymNode ne(const c10::SymNode& other) override;
  c10::SymNode gt(const c10::SymNode& other) override;
  c10::SymNode lt(const c10::SymNode& other) override;
  c10::SymNode le(const c10::SymNode& other) override;
  c10::SymNode ge(const c10::SymNode& other) override;
  c10::SymNode neg() override;
  c10::SymNode sym_min(const c10::SymNode& other) override;
  c10::SymNode sym_max(const c10::SymNode& other) override;
  c10::SymNode sym_or(const c10::SymNode& other) override;
  c10::SymNode sym_and(const c10::SymNode& other) override;
  c10::SymNode sym_not() override;
  c10::SymNode is_contiguous(c10::ArrayRef<c10::SymNode> sizes, c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode is_channels_last_contiguous_2d(c10::ArrayRef<c10::SymNode> sizes,
                                              c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode is_channels_last_contiguous_3d(c10::ArrayRef<c10::SymNode> sizes,
                                              c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode is_channels_last_strides_2d(c10::ArrayRef<c10::SymNode> sizes,
                                           c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode is_channels_last_strides_3d(c10::ArrayRef<c10::SymNode> sizes,
                                           c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode is_non_overlapping_and_dense(c10::ArrayRef<c10::SymNode> sizes,
                                            c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode clone() override;
  c10::SymNode wrap_int(int64_t value) override;
  c10::SymNode wrap_bool(bool value) override;
  c10::SymNode wrap_float(double value) override;
  double guard_float(const char* file, int64_t line) override;
  bool guard_size_oblivious(const char* file, int64_t line) override;
  bool guard_or_false(const char* file, int64_t line) override;
  bool guard_or_true(const char* file, int64_t line) override;
  bool expect_true(const char* file, int64_t line) override;
  int64_t guard_int(const char* file, int64_t line) override;
  bool guard_bool(const char* file, int64_t line) override;
  bool statically_known_true(const char* file, int64_t line) override;
  int64_t int_() override { return guard_int("", 0); }
  bool bool_() override { return guard_bool("", 0); }
  int64_t hint() const { return env_->hint(expr()); }
  bool has_hint() override { return type_ == Type::Float || env_->has_hint(expr()); }
  std::string str() override;
  std::optional<int64_t> constant_int() override;
  std::optional<bool> constant_bool() override;
  std::optional<int64_t> maybe_as_int() override { return constant_int(); }
  bool is_constant() override { return type_ == Type::Float || arena().as_const(expr()).has_value(); }

 private:
  using Binary = sym::Expr (sym::ExprArena::*)(sym::Expr, sym::Expr);
  c10::SymNode make(Type type, sym::Expr e) const;
  c10::SymNode binary(Type type, Binary op, const c10::SymNode& other) const;
  sym::Expr operand(const c10::SymNode& other) const;
  double real(const c10::SymNode& other) const;
  int64_t fixed(sym::Expr e) const;
  bool decide(sym::Expr condition) const;
  void note_one(const c10::SymNode& other) const;
  // Whether the strides are those of a dense tensor whose dimensions, outermost first, are `order`.
  c10::SymNode dense_in_order(c10::ArrayRef<c10::SymNode> sizes, c10::ArrayRef<c10::SymNode> strides,
                              const std::vector<size_t>& order) const;

  std::shared_ptr<SizeEnv> env_;
  Type type_;
  sym::Expr expr_;
  double number_ = 0;
};

// A constant becomes a plain integer.
c10::SymInt sym_int(const std::shared_ptr<SizeEnv>& env, sym::Expr e);

// The value in the call that is captured, without a guard; nullopt: only the run knows.
std::optional<int64_t> hint_of(const c10::SymInt& s);

}  // namespace braze::trace
