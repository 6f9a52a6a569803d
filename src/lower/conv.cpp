// Convolutions as nests of sums, in float: of each channel by itself (graph/depthwise.h) over the window's rows and the
// places of a row, and those with windows of one element (graph/pointwise_convolution.h) over the channels.
#include <array>
#include <utility>

#include "lower/window.h"

namespace braze::lower {
namespace {

std::vector<graph::LocId> locs_of(const graph::Node& node) {
  return node.loc.valid() ? std::vector{node.loc} : std::vector<graph::LocId>();
}

Val load(Lowering& low, Body& body, const View& from, std::span<const Expr> index) {
  return {&body, body.load(from.buffer, low.indexing.dot(index, from.strides, from.offset))};
}

// The end of every convolution's nest: the products of the stage at hand added up, with the bias.
void finish(Lowering& low, const graph::Node& node, Body& body, std::vector<loop::Axis> outer, std::span<const Expr> at,
            const View& target, const Val& product) {
  Val sum{&body, body.reduce(ReduceKind::Sum, DType::F32, product.id)};
  body.begin_stage({});
  if (auto* bias = std::get_if<graph::ValueId>(&node.args[2]))
    sum = sum + Val{&body, low.emit(body, *bias, at.subspan(1, 1))};
  body.store(target.buffer, low.indexing.dot(at, target.strides, target.offset), sum.id);
  low.add(body.finish(low.nest_name(node), std::move(outer)), locs_of(node));
}

// A buffer with zeros around the image, whose elements lie where `place` says. What makes the image is computed there,
// if nobody else reads it.
template <class Place>
View bordered(Lowering& low, const graph::Node& node, graph::ValueId image, const TensorType& type,
              const std::vector<int64_t>& by, Place place_of) {
  sym::ExprArena& a = low.arena;
  View to = low.fresh_buffer(type, /*exact=*/true);
  low.pointwise_nest(low.nest_name(node) + "_padded", to, locs_of(node), [&](Body& body, std::span<const Expr> at) {
    std::vector<Expr> place = place_of(at);
    std::optional<Val> inside;
    for (size_t k = 0; k < 2; ++k)
      place[2 + k] = place_inside(low, body, a.sub(place[2 + k], a.constant(by[k])), sizes(low, image)[2 + k], inside);
    Val element{&body, low.emit(body, image, place)};
    return (inside ? where(*inside, element, 0.0) : element).id;
  });
  return to;
}

// The factors with those of neighbouring channels next to each other, as the images have them: a copy of a few
// kilobytes.
View by_place(Lowering& low, const graph::Node& node, graph::ValueId factors) {
  TensorType t = low.source.type(factors);
  sym::ExprArena& a = low.arena;
  const Expr channels = t.sizes[0];
  t.strides = {a.constant(1), channels, a.mul(channels, t.sizes[3]), channels};
  View to = low.fresh_buffer(t, /*exact=*/true);
  low.pointwise_nest(low.nest_name(node) + "_factors", to, locs_of(node),
                     [&](Body& body, std::span<const Expr> at) { return low.emit(body, factors, at); });
  return to;
}

// The image with zeros around it, so that every place of every window is one of its own.
View padded(Lowering& low, const graph::Node& node, graph::ValueId image, const std::vector<int64_t>& by) {
  TensorType t = low.source.type(image);
  sym::ExprArena& a = low.arena;
  for (size_t k = 0; k < 2; ++k) t.sizes[2 + k] = a.add(t.sizes[2 + k], a.constant(2 * by[k]));
  const Expr row = a.mul(t.sizes[3], t.sizes[1]);
  t.strides = {a.mul(t.sizes[2], row), a.constant(1), row, t.sizes[1]};
  return bordered(low, node, image, t, by,
                  [](std::span<const Expr> at) { return std::vector<Expr>(at.begin(), at.end()); });
}

// The same in planes, with what a row has at each place of the stride by itself: neighbours along the result read
// neighbours. Sizes: images, channels, rows, places of the stride, the row's part at each.
View padded_planes(Lowering& low, const graph::Node& node, graph::ValueId image, const std::vector<int64_t>& by,
                   int64_t stride) {
  const TensorType& from = low.source.type(image);
  TensorType t = from;
  sym::ExprArena& a = low.arena;
  auto around = [&](size_t k) { return a.add(from.sizes[2 + k], a.constant(2 * by[k])); };
  t.sizes = {from.sizes[0], from.sizes[1], around(0), a.constant(stride), a.ceildiv(around(1), a.constant(stride))};
  t.strides = contiguous_strides(a, t.sizes);
  return bordered(low, node, image, t, by, [&](std::span<const Expr> at) {
    return std::vector{at[0], at[1], at[2], a.add(a.mul(at[4], a.constant(stride)), at[3])};
  });
}

// Of planes: the taps of a row outside those of a column, so that rows of the result that run at once share rows of the
// image.
void lower_planes(Lowering& low, graph::NodeId n) {
  const graph::Node& node = low.source.node(n);
  sym::ExprArena& a = low.arena;
  const graph::ValueId result = node.outputs[0], image = tensor(node, 0), factors = tensor(node, 1);
  const auto stride = *numbers(a, node.args[3], 2), padding = *numbers(a, node.args[4], 2),
             dilation = *numbers(a, node.args[5], 2);
  const bool copied = padding[0] || padding[1] || stride[1] > 1;
  View x = copied ? padded_planes(low, node, image, padding, stride[1]) : low.realise(image), w = low.realise(factors);
  View target = low.allocate(result);
  std::vector<Expr> at;
  std::vector<loop::Axis> outer = low.axes(target.sizes, target.strides, at), inner;
  std::array<Expr, 2> tap{};
  for (size_t k : {1, 0}) {
    const Expr places = sizes(low, factors)[2 + k];
    tap[k] = a.constant(0);
    if (low.indexing.is_one(places)) continue;
    tap[k] = low.symbols.loop_var('r', static_cast<int>(inner.size()), places);
    inner.push_back({tap[k], places});
  }
  const Expr down = a.add(a.mul(at[2], a.constant(stride[0])), a.mul(tap[0], a.constant(dilation[0]))),
             along = a.mul(tap[1], a.constant(dilation[1])), step = a.constant(stride[1]);
  std::vector<Expr> place{at[0], at[1], down};
  if (copied) place.push_back(a.mod(along, step));
  place.push_back(a.add(at[3], copied ? a.floordiv(along, step) : along));
  Body body = low.body();
  body.begin_stage(std::move(inner));
  const Expr factor[] = {at[1], a.constant(0), tap[0], tap[1]};
  Val product = load(low, body, x, place) * load(low, body, w, factor);
  finish(low, node, body, std::move(outer), at, target, product);
}

}  // namespace

void lower_depthwise(Lowering& low, graph::NodeId n) {
  const graph::Node& node = low.source.node(n);
  sym::ExprArena& a = low.arena;
  if (!a.is_const(low.source.type(tensor(node, 0)).strides[1], 1)) {
    lower_planes(low, n);
    return;
  }
  const graph::ValueId result = node.outputs[0], image = tensor(node, 0), factors = tensor(node, 1);
  const auto stride = *numbers(a, node.args[3], 2), dilation = *numbers(a, node.args[5], 2);
  auto padding = *numbers(a, node.args[4], 2);
  std::vector<Expr> extents = sizes(low, image);
  View x, w;
  if (!low.targets.of(low.source.type(result).device).is_gpu() && (padding[0] || padding[1])) {
    x = padded(low, node, image, padding);
    for (size_t k = 0; k < 2; ++k) extents[2 + k] = a.add(extents[2 + k], a.constant(2 * std::exchange(padding[k], 0)));
  } else {
    x = low.realise(image);
  }
  w = by_place(low, node, factors);
  View target = low.allocate(result);
  std::vector<Expr> at;
  std::vector<loop::Axis> outer = low.axes(target.sizes, target.strides, at), inner;
  std::vector<Expr> place = at, factor = {at[1], a.constant(0)};
  Body body = low.body();
  std::vector<std::pair<WindowDim, Expr>> taps;
  for (size_t k = 0; k < 2; ++k) {
    const Expr places = sizes(low, factors)[2 + k];
    Expr tap = a.constant(0);
    if (!low.indexing.is_one(places)) {
      tap = low.symbols.loop_var('r', static_cast<int>(inner.size()), places);
      inner.push_back({tap, places});
    }
    taps.push_back({{*a.as_const(places), stride[k], padding[k], dilation[k], extents[2 + k]}, tap});
    factor.push_back(tap);
  }
  body.begin_stage(std::move(inner));
  std::optional<Val> inside;
  for (size_t k = 0; k < 2; ++k) {
    const auto& [window, tap] = taps[k];
    place[2 + k] = place_inside(low, body, window.at(a, at[2 + k], tap), window.size, inside);
  }
  Val element = load(low, body, x, place).to(DType::F32);
  if (inside) element = where(*inside, element, 0.0);
  finish(low, node, body, std::move(outer), at, target, element * load(low, body, w, factor).to(DType::F32));
}

void lower_pointwise_convolution(Lowering& low, graph::NodeId n) {
  const graph::Node& node = low.source.node(n);
  const graph::ValueId result = node.outputs[0];
  View x = low.realise(tensor(node, 0)), w = low.realise(tensor(node, 1)), target = low.allocate(result);
  std::vector<Expr> at;
  std::vector<loop::Axis> outer = low.axes(target.sizes, target.strides, at);
  const Expr channels = sizes(low, tensor(node, 1))[1], k = low.symbols.loop_var('r', 0, channels),
             zero = low.arena.constant(0);
  Body body = low.body();
  body.begin_stage({{k, channels}});
  const Expr place[] = {at[0], k, at[2], at[3]}, factor[] = {at[1], k, zero, zero};
  Val product = load(low, body, x, place) * load(low, body, w, factor);
  finish(low, node, body, std::move(outer), at, target, product);
}

}  // namespace braze::lower
