// Checks of values: nests that store nothing.
#include <optional>

#include "base/check.h"
#include "graph/raises.h"
#include "lower/rules.h"

namespace braze::lower {

using loop::Fault;

namespace {

Fault fault_named(std::string_view name) {
  auto fault = loop::fault_of(name);
  BRAZE_CHECK(fault.has_value(), "no fault " + std::string(name));
  return *fault;
}

// What a value must not be; nullopt: it is an index.
std::optional<Val> refused(Fault fault, Val x) {
  switch (fault) {
    case Fault::Division: return x == 0.0;
    case Fault::UnitInput:
    case Fault::UnitTarget: return ~((x >= 0.0) & (x <= 1.0));  // neither is NaN
    default: return std::nullopt;
  }
}

}  // namespace

Expr checked_index(Lowering& low, Body& body, const graph::Node& node, ValId value, size_t k) {
  const graph::IndexCheck c = graph::index_checks(low.source, node).at(k);
  return body.indirect(value, c.size, {fault_named(c.fault), c.wrap, c.dim});
}

void lower_check(Lowering& low, graph::NodeId n) {
  const graph::Node& node = low.source.node(n);
  graph::ValueId values = tensor(node, 0);
  const Fault fault = fault_named(std::get<std::string>(node.args.at(1)));
  const std::vector<Expr>& size = sizes(low, values);
  std::vector<Expr> index;
  auto outer = low.axes(size, contiguous_strides(low.arena, size), index);
  Body body = low.body();
  body.begin_stage({});
  Val x{&body, low.emit(body, values, index)};
  if (auto bad = refused(fault, x)) {
    body.indirect(bad->to(DType::I64).id, low.arena.constant(1), {fault, false, 0});
  } else {
    auto dim = static_cast<uint8_t>(low.arena.as_const(std::get<Expr>(node.args.at(4))).value());
    body.indirect(x.id, std::get<Expr>(node.args.at(2)), {fault, std::get<bool>(node.args.at(3)), dim});
  }
  loop::Nest nest = body.finish("check", std::move(outer));
  if (nest.stages[0].ops.empty()) return;  // it holds whatever the data
  std::vector<graph::LocId> locs = low.locs_of(values);
  if (node.loc.valid()) locs.push_back(node.loc);
  low.add(std::move(nest), std::move(locs));
}

}  // namespace braze::lower
