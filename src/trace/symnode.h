// Symbolic sizes: c10::SymNodeImpl over the expression arena of one capture.
#pragma once
#include <c10/core/SymInt.h>
#include <c10/core/SymNodeImpl.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "symbolic/expr.h"

namespace braze::trace {

// The symbols of one capture, their hints (values in the call that is being captured), and the facts that tracing took
// for granted: each is a condition that held for the hints and must hold again for the graph to be valid.
class SizeEnv {
 public:
  explicit SizeEnv(std::shared_ptr<sym::ExprArena> arena) : arena_(std::move(arena)) {}
  sym::ExprArena& arena() const { return *arena_; }

  sym::Expr add_symbol(const std::string& name, sym::Range range, int64_t hint);
  int64_t hint(sym::Expr e) const;
  // The truth of a condition under the hints; recorded as a guard unless it is provable.
  bool decide(sym::Expr condition);
  const std::vector<sym::Expr>& guards() const { return guards_; }

 private:
  std::shared_ptr<sym::ExprArena> arena_;
  std::vector<std::pair<sym::Expr, int64_t>> hints_;
  std::vector<sym::Expr> guards_;
};

class SizeNode final : public c10::SymNodeImpl {
 public:
  enum class Type : uint8_t { Int, Bool };
  SizeNode(std::shared_ptr<SizeEnv> env, Type type, sym::Expr expr) : env_(std::move(env)), type_(type), expr_(expr) {}
  sym::ExprArena& arena() const { return env_->arena(); }
  sym::Expr expr() const { return expr_; }

  bool is_int() override { return type_ == Type::Int; }
  bool is_bool() override { return type_ == Type::Bool; }
  bool is_float() override { return false; }
  c10::SymNode add(const c10::SymNode& other) override;
  c10::SymNode sub(const c10::SymNode& other) override;
  c10::SymNode mul(const c10::SymNode& other) override;
  c10::SymNode floordiv(const c10::SymNode& other) override;
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
  int64_t guard_int(const char* file, int64_t line) override;
  bool guard_bool(const char* file, int64_t line) override;
  bool statically_known_true(const char* file, int64_t line) override;
  int64_t int_() override { return guard_int("", 0); }
  bool bool_() override { return guard_bool("", 0); }
  bool has_hint() override { return true; }
  std::string str() override { return arena().print(expr_); }
  std::optional<int64_t> constant_int() override;
  std::optional<bool> constant_bool() override;
  std::optional<int64_t> maybe_as_int() override { return constant_int(); }
  bool is_constant() override { return arena().as_const(expr_).has_value(); }

 private:
  using Binary = sym::Expr (sym::ExprArena::*)(sym::Expr, sym::Expr);
  c10::SymNode make(Type type, sym::Expr e) const;
  c10::SymNode binary(Type type, Binary op, const c10::SymNode& other) const;
  sym::Expr operand(const c10::SymNode& other) const;
  // Whether the strides are those of a dense tensor whose dimensions, outermost first, are `order`.
  c10::SymNode dense_in_order(c10::ArrayRef<c10::SymNode> sizes, c10::ArrayRef<c10::SymNode> strides,
                              const std::vector<size_t>& order) const;

  std::shared_ptr<SizeEnv> env_;
  Type type_;
  sym::Expr expr_;
};

// A constant becomes a plain integer.
c10::SymInt sym_int(const std::shared_ptr<SizeEnv>& env, sym::Expr e);

}  // namespace braze::trace
