// Copies parts of a graph into another that shares its arena.
#pragma once
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace braze::autodiff {

class Copier {
 public:
  // `to` receives the locations of `from`. `symbols`: what stands for symbols of `from` in `to`.
  Copier(const graph::Graph& from, graph::Graph& to, std::vector<std::pair<sym::Expr, sym::Expr>> symbols = {});
  bool has(graph::ValueId v) const { return map_[v.index].valid(); }
  graph::ValueId map(graph::ValueId v) const { return v.valid() ? map_[v.index] : v; }
  void set(graph::ValueId from, graph::ValueId to) { map_[from.index] = to; }
  void input(graph::ValueId v, graph::InputKind kind);
  // Operands that are not mapped are given by `missing` (called once for each such operand).
  template <class F>
  void node(const graph::Node& n, F&& missing) {
    std::vector<graph::Arg> args = n.args;
    auto mapped = [&](graph::ValueId v) { return !v.valid() || has(v) ? map(v) : missing(v); };
    for (graph::Arg& a : args) {
      if (auto* v = std::get_if<graph::ValueId>(&a)) *v = mapped(*v);
      if (auto* l = std::get_if<graph::TensorList>(&a))
        for (graph::ValueId& v : *l) v = mapped(v);
    }
    add(n, std::move(args));
  }
  void node(const graph::Node& n) {
    node(n, [](graph::ValueId v) { return v; });
  }

 private:
  void add(const graph::Node& n, std::vector<graph::Arg> args);
  sym::Expr renamed(sym::Expr e) const { return symbols_.empty() ? e : to_.arena().substitute(e, symbols_); }
  TensorType renamed(TensorType type) const;

  const graph::Graph& from_;
  graph::Graph& to_;
  std::vector<graph::ValueId> map_;
  std::vector<std::pair<sym::Expr, sym::Expr>> symbols_;
};

}  // namespace braze::autodiff
