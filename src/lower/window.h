// Where pools, pads and resampling read. Internal to lower/.
#pragma once
#include <array>
#include <optional>
#include <vector>

#include "lower/rules.h"

namespace braze::lower {

// Numbers given once for all, or one per dimension; absent where they are no constants.
std::optional<std::vector<int64_t>> numbers(const sym::ExprArena&, const graph::Arg&, size_t dims);

// A pool's window along one dimension.
struct WindowDim {
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
  Expr size;               // of the operand
  std::optional<Expr> to;  // adaptive pools, whose windows differ in length: their number; `kernel` is the longest,
                           // `least` the shortest
  int64_t least = 0;
  Expr at(sym::ExprArena& a, Expr out, Expr tap) const;  // the operand's place, perhaps outside
  Expr start(sym::ExprArena& a, Expr out) const;         // the first tap's
  Expr end(sym::ExprArena& a, Expr out) const;           // of adaptive pools: after the last tap
};
// e, a place along a dimension, moved into it: where it may lie outside, `inside` says, along with what it said, that
// it does not.
Expr place_inside(Lowering&, Body&, Expr e, Expr size, std::optional<Val>& inside);
// Of a pool over the last two or three dimensions: `from` its operand's sizes, `to` its result's. (kernel_size, stride,
// padding[, dilation]) stand in this order from argument 1 of forward operators on, 2 of backward ones. Absent for
// other operators and where they are no constants.
std::optional<std::vector<WindowDim>> window_of(sym::ExprArena&, const graph::Node&, const std::vector<Expr>& from,
                                                const std::vector<Expr>& to);

// Of averages: how many elements the window at `out` counts.
Expr counted(sym::ExprArena&, const WindowDim&, Expr out, bool include_padding);

// A padded tensor's place in the tensor: reflected at its ends, or clamped to them.
Expr padded_place(sym::ExprArena&, Expr out, Expr before, Expr size, bool reflect);

// One tap of an interpolation along one dimension.
struct Tap {
  Expr place;
  std::optional<Val> weight;  // absent: 1
};
// Keys' cubic convolution with a = -3/4: the weights of the four places around one that lies t after the second.
std::array<Val, 4> cubic_weights(Val t);

// What `out` (an index into `to` places over `size`) reads. Scale: of the output against the operand, if the user gave
// one.
struct Resample {
  enum class Kind : uint8_t { Nearest, NearestExact, Linear, LinearCorners, Cubic, CubicCorners } kind = Kind::Nearest;
  Expr size, to;
  std::optional<double> scale;
};
std::vector<Tap> taps(Lowering&, Body&, const Resample&, Expr out, DType weights);

// Per resampled dimension; the last ones of the operand with these sizes. Absent for other operators.
std::optional<std::vector<Resample>> resample_of(const sym::ExprArena&, const graph::Node&,
                                                 const std::vector<Expr>& from, const std::vector<Expr>& to);

}  // namespace braze::lower
