// What shape functions ask of the sizes of a capture.
#pragma once
#include <utility>
#include <vector>

#include "graph/shape.h"
#include "trace/symnode.h"

namespace braze::trace {

class SizeDecider final : public graph::Decider {
 public:
  explicit SizeDecider(SizeEnv& env) : env_(env) {}
  std::optional<bool> decide(sym::Expr condition) override {
    for (const auto& [assumed, failure] : pending_) {
      if (assumed == condition) return true;
      if (assumed == env_.arena().logical_not(condition)) return false;
    }
    if (auto truth = env_.known(condition)) return truth;
    return env_.has_hint(env_.simplify(condition)) ? std::optional(env_.decide(condition)) : std::nullopt;
  }
  std::optional<bool> is_one(sym::Expr size) override {
    auto one = decide(env_.arena().eq(size, env_.arena().constant(1)));
    if (one == true) env_.pin(size);
    return one;
  }
  std::optional<int64_t> specialise(sym::Expr integer) override {
    if (!env_.has_hint(env_.simplify(integer))) return std::nullopt;
    env_.pin(integer);
    return env_.hint(integer);
  }
  std::optional<bool> usually(sym::Expr condition) override { return env_.usually(condition); }
  void assume(sym::Expr condition, const sym::Failure& failure) override {
    if (decide(condition) != true) pending_.emplace_back(condition, failure);
  }
  // The graph relies on what was assumed.
  void commit() {
    for (const auto& [condition, failure] : pending_) env_.assume(condition, failure);
  }

 private:
  SizeEnv& env_;
  std::vector<std::pair<sym::Expr, sym::Failure>> pending_;
};

}  // namespace braze::trace
