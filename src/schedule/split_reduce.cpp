#include "schedule/split_reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "loop/analysis.h"
#include "loop/product.h"
#include "schedule/index.h"
#include "schedule/mapping.h"
#include "schedule/normalise.h"
#include "schedule/reduce_cut.h"

namespace braze::schedule {
namespace {

using loop::Buffer;
using loop::BufferId;
using loop::Item;
using loop::LoopOp;
using loop::Nest;
using loop::OpCode;
using loop::Program;
using loop::ReduceKind;
using loop::Stage;
using loop::ValId;

// Whether partial results of it can be made one: not of floats of few bits, where they would be rounded.
bool has_parts(const LoopOp& op) {
  switch (loop::reduce_row(op.reduce).family) {
    case loop::ReduceFamily::Fold:
    case loop::ReduceFamily::Exponent:
    case loop::ReduceFamily::Moment: return !is_rounded_float(op.dtype);
    case loop::ReduceFamily::Choice:
    case loop::ReduceFamily::Index: return true;
  }
  return false;
}

// What a reduction starts from, as a Const of `dtype`; nullopt: not said here.
std::optional<LoopOp> start_of(ReduceKind kind, DType dtype) {
  LoopOp c;
  c.code = OpCode::Const;
  c.dtype = dtype;
  bool fp = is_floating(dtype), one = false;
  switch (loop::reduce_row(kind).start) {
    case loop::ReduceStart::Zero: break;
    case loop::ReduceStart::One: one = true; break;
    case loop::ReduceStart::Lowest:
    case loop::ReduceStart::Highest:
      if (!fp) return std::nullopt;
      c.number = loop::reduce_row(kind).start == loop::ReduceStart::Lowest ? -HUGE_VAL : HUGE_VAL;
      return c;
  }
  if (fp)
    c.number = one;
  else
    c.integer = one;
  return c;
}

// Appends an operation to a stage of the nest.
ValId emit(Nest& nest, Stage& stage, LoopOp op) {
  op.result = ValId(static_cast<size_t>(nest.values++));
  stage.ops.push_back(op);
  return op.result;
}
ValId emit(Nest& nest, Stage& stage, OpCode code, DType dtype, ValId a, ValId b = {}, ValId c = {}) {
  return emit(nest, stage, {.code = code, .dtype = dtype, .args = {a, b, c}});
}
ValId index_of(Nest& nest, Stage& stage, Expr e) {
  return emit(nest, stage, {.code = OpCode::Index, .dtype = DType::I64, .index = e});
}
ValId number(Nest& nest, Stage& stage, int64_t n) {
  return emit(nest, stage, {.code = OpCode::Const, .dtype = DType::I64, .integer = n});
}

// Pieces of an axis that is open: the last ones end where it does. There the last element is read again, and what it
// gives is left out: `position` runs to the end of a piece, `size` is the axis's. False: a reduction has no start.
bool leave_out_what_is_beyond(Nest& n, Expr position, Expr size) {
  Stage out;
  ValId inside;
  for (LoopOp op : n.stages[0].ops) {
    if (op.code == OpCode::Reduce) {
      if (!inside.valid()) {
        ValId at = index_of(n, out, position), end = index_of(n, out, size);
        inside = emit(n, out, OpCode::Lt, DType::Bool, at, end);
      }
      DType operand = loop::dtype_of(n, op.args[0]).value_or(op.dtype);
      auto start = start_of(op.reduce, operand);
      if (!start) return false;
      ValId left_out = emit(n, out, *start);
      op.args[0] = emit(n, out, OpCode::Where, operand, inside, op.args[0], left_out);
    }
    out.ops.push_back(op);
  }
  n.stages[0].ops = std::move(out.ops);
  return true;
}

// Of the pieces of a nest's first stage: how many elements each has, and the nests that make them and that make the
// results of them.
class Pieces {
 public:
  // `slots`: the pieces and, with `rest_apart`, what is left over of a length as one more. Of `side` pieces side by
  // side (1: pieces follow one another) each has every side-th element of the share that they have in common.
  struct Geometry {
    Axis slot, inside;
    Expr piece, first;       // which of the pieces, and where along the axis it begins
    Expr size, rest, point;  // the axis; elements of a step along it; the number of the nest's result
    int64_t points, pieces, side;
    bool columns, rest_apart;
  };
  Pieces(Program& p, const Nest& n, const Geometry& g)
      : p_(p),
        arena_(*p.arena),
        n_(n),
        g_(g),
        partial(like("_partial")),
        left_over(like("_left_over")),
        total(like("")) {
    for (Nest* m : {&partial, &left_over}) m->stages = {n.stages[0], Stage{}};
    total.stages = {Stage{}, Stage{{g.slot}, {}}, Stage{}, Stage{{g.slot}, {}}};
    auto within = [&](Expr from, Expr length) {
      Expr last = arena_.max(arena_.sub(length, arena_.constant(1)), arena_.constant(0)),
           end = arena_.sub(g.size, arena_.constant(1));
      auto place = [&](Expr at) { return arena_.min(arena_.add(from, at), end); };
      return std::array<Expr, 3>{place(arena_.constant(0)), place(arena_.floordiv(last, arena_.constant(2))),
                                 place(last)};
    };
    makers_ = {{&partial, g.piece, g.first, g.side, within(g.first, g.inside.extent), {}}};
    if (g.rest_apart) {
      Expr pieces = arena_.constant(g.pieces), first = arena_.mul(pieces, g.inside.extent);
      makers_.push_back({&left_over, pieces, first, 1, within(first, arena_.mod(g.size, pieces)), {}});
    }
    for (const LoopOp& op : n.stages[0].ops)
      if (op.code == OpCode::Load) device_ = p.buffers[op.buffer].device;
  }

  void add(const LoopOp& r) {
    switch (loop::reduce_row(r.reduce).family) {
      case loop::ReduceFamily::Fold:
      case loop::ReduceFamily::Choice: fold(r); break;
      case loop::ReduceFamily::Index: index(r); break;
      case loop::ReduceFamily::Moment: moment(r); break;
      case loop::ReduceFamily::Exponent: exponent(r); break;
    }
  }

  // The stages that do something; of the total then what the nest did with the results.
  void finish() {
    for (Maker& m : makers_)
      if (!m.head.ops.empty()) m.nest->stages.insert(m.nest->stages.begin(), std::move(m.head));
    std::erase_if(total.stages, [](const Stage& s) { return s.ops.empty(); });
    if (n_.stages.size() == 2) total.stages.push_back(n_.stages[1]);
  }

 private:
  struct Maker {
    Nest* nest;
    Expr at;                     // its slot
    Expr first;                  // where its elements begin along the axis
    int64_t step;                // from one of them to the next
    std::array<Expr, 3> within;  // places along the axis in its piece, or others where it has none
    Stage head;                  // before its stages
  };
  enum : size_t { kBefore, kFirst, kBetween, kSecond };  // stages of the total
  Nest like(const char* suffix) const {
    Nest m;
    m.name = n_.name + suffix;
    m.locs = n_.locs;
    m.values = n_.values;
    m.outer = n_.outer;
    m.commits = n_.commits;
    return m;
  }

  // Where the slots of a partial result lie; where the results are the vector, they stay innermost.
  Expr place(Expr at) {
    if (g_.side > 1) {
      const Axis& column = n_.outer.back();
      Expr others = arena_.mul(arena_.sub(g_.point, column.var), g_.slot.extent);
      return arena_.add(others, arena_.add(arena_.mul(at, column.extent), column.var));
    }
    return g_.columns ? arena_.add(arena_.mul(at, arena_.constant(g_.points)), g_.point)
                      : arena_.add(arena_.mul(g_.point, g_.slot.extent), at);
  }

  // A buffer of partial results, which each maker stores as its value `of` says.
  template <class Of>
  BufferId keep(DType dtype, Of of) {
    Buffer b;
    b.name = "partial";
    b.dtype = dtype;
    b.device = device_;
    b.sizes = {arena_.mul(arena_.constant(g_.points), g_.slot.extent)};
    b.strides = {arena_.constant(1)};
    b.offset = arena_.constant(0);
    BufferId id = p_.buffers.add(std::move(b));
    for (const Maker& m : makers_) {
      LoopOp store;
      store.code = OpCode::Store;
      store.dtype = dtype;
      store.buffer = id;
      store.args[0] = of(m);
      store.index = place(m.at);
      m.nest->stages[1].ops.push_back(store);
    }
    return id;
  }
  ValId load(Stage& stage, BufferId id) { return load(stage, id, g_.slot.var); }
  ValId load(Stage& stage, BufferId id, Expr slot) {
    return emit(total, stage,
                {.code = OpCode::Load, .dtype = p_.buffers[id].dtype, .buffer = id, .index = place(slot)});
  }
  ValId reduce(Stage& stage, ReduceKind kind, DType dtype, ValId of, ValId result = {}) {
    LoopOp op;
    op.code = OpCode::Reduce;
    op.reduce = kind;
    op.dtype = dtype;
    op.args[0] = of;
    if (!result.valid()) return emit(total, stage, op);
    op.result = result;
    stage.ops.push_back(op);
    return result;
  }
  // The value in each maker of another reduction of the same operand, which is made where there is none.
  ValId beside(const LoopOp& r, ReduceKind kind, DType dtype) {
    for (const LoopOp& op : n_.stages[0].ops)
      if (op.code == OpCode::Reduce && op.reduce == kind && op.args[0] == r.args[0] && op.dtype == dtype)
        return op.result;
    ValId v;
    for (const Maker& m : makers_) {
      LoopOp op;
      op.code = OpCode::Reduce;
      op.reduce = kind;
      op.dtype = dtype;
      op.args[0] = r.args[0];
      v = emit(*m.nest, m.nest->stages[0], op);
    }
    return v;
  }

  BufferId fold(const LoopOp& r) {
    auto [known, fresh] = folded_.try_emplace(r.result.index);
    if (!fresh) return known->second;
    BufferId parts = known->second = keep(r.dtype, [&](const Maker&) { return r.result; });
    reduce(total.stages[kFirst], r.reduce, r.dtype, load(total.stages[kFirst], parts), r.result);
    return parts;
  }

  // The best value of all pieces, then the least of the indices where it, or with a NaN the first NaN, is.
  void index(const LoopOp& r) {
    DType dtype = loop::dtype_of(n_, r.args[0]).value_or(DType::F32);
    ReduceKind kind = r.reduce == ReduceKind::ArgMax ? ReduceKind::Max : ReduceKind::Min;
    ValId best_here = beside(r, kind, dtype);
    BufferId values = keep(dtype, [&](const Maker&) { return best_here; });
    constexpr int64_t kNone = int64_t{1} << 62;  // a piece without elements has an index that is no less
    BufferId places = keep(DType::I64, [&](const Maker& m) {
      Nest& nest = *m.nest;
      Stage& stage = nest.stages[1];
      ValId most = number(nest, stage, kNone), here = emit(nest, stage, OpCode::Min, DType::I64, r.result, most);
      ValId first = index_of(nest, stage, arena_.mul(m.first, g_.rest));
      if (m.step > 1) here = emit(nest, stage, OpCode::Mul, DType::I64, here, number(nest, stage, m.step));
      return emit(nest, stage, OpCode::Add, DType::I64, here, first);
    });
    Stage &first = total.stages[kFirst], &second = total.stages[kSecond];
    ValId best = reduce(first, kind, dtype, load(first, values));
    ValId value = load(second, values);
    ValId is_best = emit(total, second, OpCode::Eq, DType::Bool, value, best);
    if (is_floating(dtype)) {
      ValId nan = emit(total, second, OpCode::IsNan, DType::Bool, value);
      is_best = emit(total, second, OpCode::Or, DType::Bool, is_best, nan);
    }
    ValId at = load(second, places), none = number(total, second, kNone);
    reduce(second, ReduceKind::Min, DType::I64, emit(total, second, OpCode::Where, DType::I64, is_best, at, none),
           r.result);
  }

  // The pieces' sums are relative to their own maxima. One whose maximum is -inf has a sum that is NaN and counts for
  // nothing, unless that is the maximum of all.
  void exponent(const LoopOp& r) {
    const DType t = r.dtype;
    Stage &first = total.stages[kFirst], &second = total.stages[kSecond];
    BufferId tops;
    ValId top, top_here = beside(r, ReduceKind::Max, t);
    for (const LoopOp& op : n_.stages[0].ops)
      if (op.result == top_here) tops = fold(op), top = op.result;
    if (!top.valid()) {
      tops = keep(t, [&](const Maker&) { return top_here; });
      top = reduce(first, ReduceKind::Max, t, load(first, tops));
    }
    BufferId sums = keep(t, [&](const Maker&) { return r.result; });
    ValId here = load(second, tops), sum = load(second, sums);
    ValId share = emit(total, second, OpCode::Exp, t, emit(total, second, OpCode::Sub, t, here, top));
    ValId scaled = emit(total, second, OpCode::Mul, t, sum, share);
    ValId lowest = emit(total, second, {.code = OpCode::Const, .dtype = t, .number = -HUGE_VAL});
    ValId zero = emit(total, second, {.code = OpCode::Const, .dtype = t, .number = 0});
    ValId none = emit(total, second, OpCode::Eq, DType::Bool, here, lowest);
    ValId same = emit(total, second, OpCode::Eq, DType::Bool, here, top);
    ValId part = emit(total, second, OpCode::Where, t, none, zero, scaled);
    reduce(second, ReduceKind::Sum, t, emit(total, second, OpCode::Where, t, same, sum, part), r.result);
  }

  // The number of elements of a slot, or of all.
  ValId count(Stage& stage, DType dtype, bool of_all) {
    Expr all = arena_.mul(g_.size, g_.rest), each = arena_.mul(g_.inside.extent, g_.rest);
    ValId n = index_of(total, stage, of_all ? all : each);
    if (!of_all && g_.rest_apart) {
      ValId slot = index_of(total, stage, g_.slot.var), last = number(total, stage, g_.pieces);
      ValId is_piece = emit(total, stage, OpCode::Lt, DType::Bool, slot, last);
      ValId few = index_of(total, stage, arena_.mul(arena_.mod(g_.size, arena_.constant(g_.pieces)), g_.rest));
      n = emit(total, stage, OpCode::Where, DType::I64, is_piece, n, few);
    }
    return emit(total, stage, OpCode::Cast, dtype, n);
  }

  static ValId median(Nest& nest, Stage& s, DType t, const std::array<ValId, 3>& v) {
    auto make = [&](OpCode code, ValId a, ValId b) { return emit(nest, s, code, t, a, b); };
    ValId low = make(OpCode::Min, v[0], v[1]), high = make(OpCode::Max, v[0], v[1]);
    return make(OpCode::Max, low, make(OpCode::Min, high, v[2]));
  }

  // The middle one of three elements of a maker's piece, which is subtracted from each before moments of it are
  // computed: far from zero, means would be rounded by more than they differ.
  ValId shift(const LoopOp& r) {
    ValId middle;
    for (Maker& m : makers_) {
      std::array<ValId, 3> some;
      for (size_t k = 0; k < 3; ++k) some[k] = element(m, r.args[0], m.within[k]);
      middle = median(*m.nest, m.head, r.dtype, some);
      auto& ops = m.nest->stages[0].ops;
      auto takes = [&](const LoopOp& op) {
        return op.code == OpCode::Reduce && is_moment(op.reduce) && op.args[0] == r.args[0];
      };
      LoopOp less{.code = OpCode::Sub, .dtype = r.dtype, .args = {r.args[0], middle, ValId()}};
      less.result = ValId(static_cast<size_t>(m.nest->values++));
      const auto at = std::find_if(ops.begin(), ops.end(), takes) - ops.begin();
      for (LoopOp& op : ops)
        if (takes(op)) op.args[0] = less.result;
      ops.insert(ops.begin() + at, less);
    }
    return middle;
  }

  // A value of the first stage at a place along its first axis, and at the start of the others; in the maker's head.
  ValId element(Maker& m, ValId value, Expr at) {
    Stage s;
    std::unordered_map<uint32_t, ValId> here;
    for (LoopOp op : n_.stages[0].ops) {
      if (op.code == OpCode::Reduce) continue;
      const uint32_t was = op.result.index;
      for (ValId& v : op.args)
        if (v.valid() && here.count(v.index)) v = here.at(v.index);
      here[was] = emit(*m.nest, s, op);
    }
    Substitution to;
    for (const Axis& a : n_.stages[0].axes) to.push_back({a.var, arena_.constant(0)});
    to[0].second = at;
    substitute(arena_, s, to);
    m.head.ops.insert(m.head.ops.end(), s.ops.begin(), s.ops.end());
    return here.at(value.index);
  }

  // Means are kept as an element of the piece and what they differ by, and seen from the middle one of three pieces',
  // which one element far from all others does not move.
  struct Centre {
    BufferId starts, means;
    ValId origin, mean;  // of the total; the mean as seen from the origin
  };
  ValId deviation(Stage& s, DType t, const Centre& c) {
    ValId from_origin = emit(total, s, OpCode::Sub, t, load(s, c.starts), c.origin);
    return emit(total, s, OpCode::Add, t, from_origin, load(s, c.means));
  }
  const Centre& centre(const LoopOp& r) {
    auto [known, fresh] = centres_.try_emplace(r.args[0].index);
    Centre& c = known->second;
    if (!fresh) return c;
    Stage &before = total.stages[kBefore], &first = total.stages[kFirst], &between = total.stages[kBetween];
    const DType t = r.dtype;
    ValId mean_here = beside(r, ReduceKind::WelfordMean, t), start_here = shift(r);
    c.starts = keep(t, [&](const Maker&) { return start_here; });
    c.means = keep(t, [&](const Maker&) { return mean_here; });
    auto mean_of = [&](int64_t slot) {
      Expr at = arena_.constant(slot);
      return emit(total, before, OpCode::Add, t, load(before, c.starts, at), load(before, c.means, at));
    };
    c.origin = median(total, before, t, {mean_of(0), mean_of(g_.pieces / 2), mean_of(g_.pieces - 1)});
    ValId part = emit(total, first, OpCode::Mul, t, deviation(first, t, c), count(first, t, false));
    ValId sum = reduce(first, ReduceKind::Sum, t, part);
    c.mean = emit(total, between, OpCode::Div, t, sum, count(between, t, true));
    return c;
  }

  // Chan, Golub and LeVeque (1979): the deviations of the pieces, and those of their means from the mean.
  void moment(const LoopOp& r) {
    const Centre& c = centre(r);
    const DType t = r.dtype;
    if (r.reduce == ReduceKind::WelfordMean) {
      Stage& between = total.stages[kBetween];
      emit(total, between, OpCode::Add, t, c.origin, c.mean);
      between.ops.back().result = r.result;
      return;
    }
    Stage& second = total.stages[kSecond];
    BufferId squares = keep(t, [&](const Maker&) { return r.result; });
    ValId off = emit(total, second, OpCode::Sub, t, deviation(second, t, c), c.mean);
    ValId square = emit(total, second, OpCode::Mul, t, off, off);
    square = emit(total, second, OpCode::Mul, t, square, count(second, t, false));
    reduce(second, ReduceKind::Sum, t, emit(total, second, OpCode::Add, t, load(second, squares), square), r.result);
  }

  Program& p_;
  sym::ExprArena& arena_;
  const Nest& n_;
  const Geometry g_;
  Device device_;
  std::vector<Maker> makers_;
  std::unordered_map<uint32_t, Centre> centres_;   // by the operand
  std::unordered_map<uint32_t, BufferId> folded_;  // by the result: where its parts are

 public:
  Nest partial, left_over, total;
};

bool split(Program& p, const Nest& n, const Target& target, bool open, std::vector<Item>& out) {
  sym::ExprArena& arena = *p.arena;
  if (n.stages.empty() || n.stages[0].axes.empty() || n.stages.size() > 2) return false;
  if (n.stages.size() == 2 && !n.stages[1].axes.empty()) return false;
  const Stage& body = n.stages[0];
  std::vector<const LoopOp*> reductions;
  for (const LoopOp& op : body.ops) {
    if (op.code == OpCode::Store || op.code == OpCode::Scan) return false;
    if (op.code != OpCode::Reduce) continue;
    if (!has_parts(op)) return false;
    reductions.push_back(&op);
  }
  const auto chosen = choose_cut(arena, n, target, open);
  if (!chosen) return false;
  const auto& [points, rest, first, pieces, side, columns] = *chosen;

  // An open length: a GPU's last pieces end where it does, where that can be; else, and on a CPU, where loads are to be
  // whole vectors, what no piece has is one more.
  const Expr size = body.axes[0].extent;
  const bool plain = std::all_of(reductions.begin(), reductions.end(),
                                 [](const LoopOp* r) { return !is_index(r->reduce) && !is_moment(r->reduce); });
  const bool cut = !first && target.is_gpu() && plain, rest_apart = first ? *first % pieces != 0 : !cut;
  Pieces::Geometry g;
  g.side = side;
  const Axis share = fresh_axis(arena, arena.constant(pieces / side));
  const Axis wide =
      fresh_axis(arena, side > 1 ? arena.mul(n.outer.back().extent, arena.constant(side)) : arena.constant(1));
  const Expr beside = side > 1 ? arena.floordiv(wide.var, n.outer.back().extent) : arena.constant(0);
  g.slot = fresh_axis(arena, arena.constant(pieces + (rest_apart ? 1 : 0)));
  g.inside = fresh_axis(
      arena, arena.floordiv(cut ? arena.add(size, arena.constant(pieces - 1)) : size, arena.constant(pieces)));
  auto along = [&](Expr in_share) {
    Expr at = arena.add(arena.mul(share.var, g.inside.extent), in_share);
    return arena.add(arena.mul(at, arena.constant(g.side)), beside);
  };
  g.piece = arena.add(arena.mul(share.var, arena.constant(g.side)), beside);
  g.first = along(arena.constant(0));
  g.size = size;
  g.rest = arena.constant(rest);
  g.point = arena.constant(0);
  for (const Axis& a : n.outer) g.point = arena.add(arena.mul(g.point, a.extent), a.var);
  g.points = points;
  g.pieces = pieces;
  g.columns = columns;
  g.rest_apart = rest_apart;

  Pieces nests(p, n, g);
  Nest &partial = nests.partial, &left_over = nests.left_over;
  partial.outer.insert(columns ? partial.outer.begin() : partial.outer.end(), share);
  partial.stages[0].axes[0] = g.inside;
  Expr position = along(g.inside.var);
  substitute(arena, partial.stages[0],
             {{body.axes[0].var, cut ? arena.min(position, arena.sub(size, arena.constant(1))) : position}});
  if (cut && !leave_out_what_is_beyond(partial, position, size)) return false;
  if (rest_apart) {
    Axis few = fresh_axis(arena, arena.mod(size, arena.constant(pieces)));
    left_over.stages[0].axes[0] = few;
    Expr from = arena.mul(arena.constant(pieces), g.inside.extent);
    substitute(arena, left_over.stages[0], {{body.axes[0].var, arena.add(from, few.var)}});
  }
  for (const LoopOp* r : reductions) nests.add(*r);
  nests.finish();
  if (side > 1) {  // the columns of rows side by side are one axis
    const Axis column = std::exchange(partial.outer.back(), wide);
    for (Stage& s : partial.stages) substitute(arena, s, {{column.var, arena.mod(wide.var, column.extent)}});
  }
  for (Nest* m : {&partial, &left_over, &nests.total}) {
    if (m == &left_over && !rest_apart) continue;
    normalise(arena, *m);
    out.push_back(std::move(*m));
  }
  return true;
}

}  // namespace

void split_reductions(Program& p, const Targets& targets, bool open) {
  std::vector<Item> out;
  out.reserve(p.items.size());
  for (Item& item : p.items) {
    auto* n = std::get_if<Nest>(&item);
    const Target* target = n ? &target_of(targets, p, *n) : nullptr;
    // A product is cut by the code generator.
    bool whole = !n || loop::product_of(p, *n, target->most_product_columns());
    if (whole || !split(p, *n, *target, open, out)) out.push_back(std::move(item));
  }
  p.items = std::move(out);
}

}  // namespace braze::schedule
