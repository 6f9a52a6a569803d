#include "codegen/nvptx/shape.h"

#include <algorithm>
#include <bit>

#include "codegen/nvptx/local_rows.h"
#include "loop/product.h"
#include "loop/window.h"
#include "schedule/index.h"

namespace braze::codegen::nvptx {
namespace {

using loop::Axis;
using loop::LoopOp;
using loop::Nest;
using loop::OpCode;
using loop::Program;
using loop::Stage;
using sym::Expr;

// Waiting for what precedes it costs each block about a microsecond; a launch that comes early saves about as much
// once.
constexpr int64_t kEarlyBlocks = 4096;
constexpr int kLoopedElements = 16;        // in flight of a thread that takes turns: more cost more than they hide,
constexpr int kElementsAhead = 32;         // but of weights that are on their way before what precedes has ended
constexpr int64_t kSideBySide = 4;         // vectors of a row by threads that are neighbours,
constexpr int64_t kWorthAThread = 8;       // elements of one
constexpr int64_t kProductRegisters = 96;  // of a thread, for words of the factors
constexpr int kWindowLanes = 4, kWindowPoints = 8;  // of a thread, whose sums and factors are to fit its registers
constexpr int64_t kUnknown = 1 << 20;               // elements of an axis of whose size nothing is expected

class Chooser {
 public:
  Chooser(const Program& p, const Nest& n, const Target& t, const Beside& beside)
      : p_(p),
        n_(n),
        target_(t),
        arena_(*p.arena),
        most_columns_(t.most_product_columns()),
        processors_(t.multiprocessors),
        filling_(std::max<int64_t>(0, processors_ * (t.threads / 2) - beside.threads)),
        block_(beside.block) {}

  Shape run() {
    bool pointwise = std::all_of(n_.stages.begin(), n_.stages.end(), [](const Stage& s) { return s.axes.empty(); });
    if (auto product = loop::product_of(p_, n_, most_columns_))
      products(*product);
    else if (auto window = loop::window_of(p_, n_))
      windows(*window);
    else if (pointwise && n_.mapping.tile > 0 && n_.outer.size() >= 2)
      tiles();
    else if (pointwise)
      points();
    else if (n_.mapping.vector == loop::Mapping::Vector::Outer && !n_.outer.empty())
      columns();
    else
      rows();
    auto blocks = arena_.as_const(s_.blocks);
    s_.early = blocks && *blocks <= kEarlyBlocks;
    return s_;
  }

 private:
  int64_t size(Expr e) const { return arena_.likely(e, kUnknown); }
  int64_t volume(const std::vector<Axis>& axes) const {
    double v = 1;
    for (const Axis& a : axes) v *= static_cast<double>(size(a.extent));
    return static_cast<int64_t>(std::min(v, 1e15));
  }

  // Elements per 16-byte access where the stage runs along `axis`; 1 where its accesses mostly do not.
  int vector_of(const Stage& s, const Axis& axis) {
    int unit = 0, other = 0, widest = 1;
    for (const LoopOp& op : s.ops) {
      if ((op.code != OpCode::Load && op.code != OpCode::Store) || !arena_.contains(op.index, axis.var)) continue;
      auto f = arena_.affine_in(op.index, axis.var);
      bool along = !f || arena_.is_const(f->coefficient, 1);  // a division or remainder is often one along a piece
      ++(along ? unit : other);
      // What never leaves the registers does not narrow the others.
      if (along && p_.buffers[op.buffer].kind != loop::BufferKind::Local)
        widest = std::max(widest, size_of(p_.buffers[op.buffer].dtype));
    }
    if (unit == 0) return 0;
    if (other >= unit) return 1;
    int v = std::clamp(16 / widest, 1, 8);
    while (v > 1 && !arena_.known_multiple(axis.extent, v)) v /= 2;
    return v;
  }

  // Each element by itself, so that those of neighbouring threads lie side by side.
  bool adds_to_memory() const {
    for (const Stage& s : n_.stages)
      for (const LoopOp& op : s.ops)
        if (op.code == OpCode::Store && op.atomic_add) return true;
    return false;
  }

  void points() {
    s_.way = Shape::Way::Points;
    s_.threads = 256;
    int64_t all = volume(n_.outer);
    if (!n_.outer.empty() && !adds_to_memory()) {
      int v = 16;
      for (const Stage& s : n_.stages)
        if (int own = vector_of(s, n_.outer.back())) v = std::min(v, own);
      s_.vector = v == 16 ? 1 : v;
      while (s_.vector > 1 && all / s_.vector < filling_) s_.vector /= 2;
    }
    if (all / s_.vector < processors_ * 256) s_.threads = 128;
    if (block_) s_.threads = block_;
    Expr units = schedule::volume(arena_, n_.outer);
    if (s_.vector > 1) {
      std::vector<Axis> leading(n_.outer.begin(), n_.outer.end() - 1);
      units = arena_.mul(schedule::volume(arena_, leading),
                         arena_.floordiv(n_.outer.back().extent, arena_.constant(s_.vector)));
    }
    s_.blocks = arena_.ceildiv(units, arena_.constant(s_.threads));
  }

  void tiles() {
    s_.way = Shape::Way::Tiles;
    s_.threads = kTile * kTileRows;
    size_t n = n_.outer.size();
    std::vector<Axis> leading(n_.outer.begin(), n_.outer.end() - 2);
    Expr side = arena_.constant(kTile);
    s_.blocks = arena_.mul(schedule::volume(arena_, leading), arena_.mul(arena_.ceildiv(n_.outer[n - 2].extent, side),
                                                                         arena_.ceildiv(n_.outer[n - 1].extent, side)));
  }

  void rows() {
    s_.way = Shape::Way::Rows;
    int64_t longest = 1, points = volume(n_.outer);
    int v = 16;
    for (const Stage& s : n_.stages) {
      if (s.axes.empty()) continue;
      longest = std::max(longest, volume(s.axes));
      if (int own = vector_of(s, s.axes.back())) v = std::min(v, own);
    }
    s_.vector = v == 16 || adds_to_memory() ? 1 : v;
    int64_t vectors = (longest + s_.vector - 1) / s_.vector;
    s_.most_copies = std::max(1, 32 / s_.vector / (s_.vector == 1 ? 2 : 1));
    s_.most_copies = std::min(s_.most_copies, 16);
    // As few threads per row as keep the row in their registers, so that several rows are in flight on a
    // multiprocessor. Rows of more than 2048 vectors: two blocks of 512 threads, which wait at barriers of their own,
    // not one of 1024. Of weights that are read ahead no more blocks than may start early.
    const bool few = (vectors <= 256 && !n_.mapping.ahead) || (vectors > 2048 && s_.vector > 4);
    int64_t per_thread = few ? 4 : 8;
    int64_t group = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>((vectors + per_thread - 1) / per_thread)));
    if (vectors > 32 && group < 32) group = 32;
    group = std::clamp<int64_t>(group, 1, 1024);
    // Neighbours read what lies side by side, each enough to be worth its start.
    while (group < std::min(kSideBySide, vectors) && longest >= 2 * group * kWorthAThread) group *= 2;
    if (vectors > 1024 * s_.most_copies) group = 512;  // looped: several blocks per multiprocessor
    while (group < 1024 && points * group < filling_ && vectors >= 2 * group) group *= 2;
    s_.group = static_cast<int>(group);
    // Groups of several warps are blocks of their own: they meet at the block's barrier.
    s_.threads = s_.group > 32 ? s_.group : points * group < processors_ * 128 ? 32 : 128;
    if (s_.group <= 32 && block_) s_.threads = block_;
    // Fewer rows to a block where its memory does not hold the private buffers of so many.
    while (s_.group <= 32 && s_.threads > 32 && !fits_block(p_, n_, s_, target_)) s_.threads /= 2;
    while (s_.group < s_.threads && !fits_block(p_, n_, s_, target_)) s_.group *= 2;
    s_.copies = std::max(2, std::min(4, (n_.mapping.ahead ? kElementsAhead : kLoopedElements) / s_.vector));
    s_.blocks = arena_.ceildiv(schedule::volume(arena_, n_.outer), arena_.constant(s_.threads / s_.group));
  }

  void columns() {
    s_.way = Shape::Way::Columns;
    const Axis& last = n_.outer.back();
    int64_t columns = size(last.extent), length = 1, all = volume(n_.outer);
    int v = 16;
    for (const Stage& s : n_.stages) {
      if (!s.axes.empty()) length = std::max(length, volume(s.axes));
      if (int own = vector_of(s, last)) v = std::min(v, own);
    }
    s_.vector = v == 16 ? 1 : v;
    auto across = [&](int64_t most = 32) {
      int64_t need = (columns + s_.vector - 1) / s_.vector;
      return std::clamp<int64_t>(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(need, 1)))),
                                 4, most);
    };
    while (s_.vector > 1 && all / (across() * s_.vector) < 2 * processors_) s_.vector /= 2;
    s_.group = static_cast<int>(across());
    int64_t workers = std::clamp<int64_t>(
        static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(length / 4, 1)))), 1,
        512 / s_.group);
    while (s_.vector > 1 && workers * s_.group > 256) workers /= 2;
    s_.threads = static_cast<int>(workers) * s_.group;
    if (workers == 1) s_.group = s_.threads = static_cast<int>(across(128));  // short columns
    if (s_.threads < 32) s_.threads = 32, s_.group = std::max(s_.group, static_cast<int>(32 / workers));
    std::vector<Axis> leading(n_.outer.begin(), n_.outer.end() - 1);
    s_.blocks = arena_.mul(schedule::volume(arena_, leading),
                           arena_.ceildiv(last.extent, arena_.constant(static_cast<int64_t>(s_.group) * s_.vector)));
  }

  void products(const loop::Product& product) {
    s_.way = Shape::Way::Products;
    const int64_t wide = volume(product.wide), k = size(product.k.extent);
    const auto terms = static_cast<int64_t>(product.terms.size());
    s_.vector = product.bytes && k % 64 == 0 ? 16 : 8;
    const int64_t steps = k / (4 * s_.vector), blocks = (wide + kTileWide - 1) / kTileWide;
    int64_t warps = blocks < 2 * processors_ && terms == 1 ? 16 : 8;
    warps = std::min(warps, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(steps))));
    s_.threads = static_cast<int>(warps) * 32;
    // As many loads in flight as there are registers for: those of the next round, too.
    const int64_t strips = (product.columns + kTileNarrow - 1) / kTileNarrow;
    const int64_t words = terms * s_.vector * (product.bytes ? 1 + strips : 2 + strips) / 2;
    int64_t turns = (steps + warps - 1) / warps;
    if (words * turns > kProductRegisters)
      turns = std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, kProductRegisters / 2 / words)));
    s_.copies = static_cast<int>(turns);
    s_.blocks = arena_.ceildiv(schedule::volume(arena_, product.wide), arena_.constant(kTileWide));
  }

  void windows(const loop::Window& window) {
    s_.way = Shape::Way::Windows;
    const Axis& last = n_.outer.back();
    int v = kWindowLanes;
    for (const Stage& s : n_.stages)
      if (int own = vector_of(s, last)) v = std::min(v, own);
    while (v > 1 && !arena_.known_multiple(last.extent, v)) v /= 2;
    const int64_t all = volume(n_.outer);
    // The strip of least loads for each point; the last one of a row that it does not divide does some points again.
    auto strips = [&](int64_t length) { return (window.points + length - 1) / length; };
    auto choose = [&](int64_t most) {
      int64_t best = 1;
      auto loads = [&](int64_t length) { return strips(length) * (window.step * (length - 1) + window.taps); };
      for (int64_t length = 2; length <= std::min(most, window.points); ++length)
        if (loads(length) < loads(best)) best = length;
      return best;
    };
    int64_t strip = choose(kWindowPoints);
    auto threads = [&] { return all / window.points * strips(strip) / v; };
    while (threads() < processors_ * 256 && v > 2) v /= 2;
    while (threads() < processors_ * 128 && strip > 2) strip = choose(strip / 2);
    s_.vector = v;
    s_.copies = static_cast<int>(strip);
    s_.threads = 128;
    std::vector<Axis> units = n_.outer;
    units.back().extent = arena_.floordiv(last.extent, arena_.constant(v));
    units[window.strip].extent = arena_.constant(strips(strip));
    s_.blocks = arena_.ceildiv(schedule::volume(arena_, units), arena_.constant(s_.threads));
  }

  const Program& p_;
  const Nest& n_;
  const Target& target_;
  sym::ExprArena& arena_;
  const int64_t most_columns_;          // of a product in the tensor cores
  const int64_t processors_, filling_;  // threads that hide memory latency on all of them
  const int block_;                     // as in Beside
  Shape s_;
};

}  // namespace

int lanes_of(sym::ExprArena& arena, const Stage& stage, const Shape& shape) {
  return arena.known_multiple(stage.axes.back().extent, shape.vector) ? shape.vector : 1;
}

bool is_straight(sym::ExprArena& arena, const Stage& stage, const Shape& shape) {
  if (shape.way != Shape::Way::Rows || stage.axes.empty()) return false;
  auto total = arena.as_const(schedule::volume(arena, stage.axes));
  const int lanes = lanes_of(arena, stage, shape);
  const int64_t step = static_cast<int64_t>(shape.group) * lanes;
  return total && (*total + step - 1) / step <= shape.most_copies * (shape.vector / lanes);
}

Shape choose_shape(const Program& program, const Nest& nest, const Target& target, const Beside& beside) {
  return Chooser(program, nest, target, beside).run();
}

bool fits_any_block(const Shape& shape) {
  return shape.way == Shape::Way::Points || (shape.way == Shape::Way::Rows && shape.group <= 32);
}

}  // namespace braze::codegen::nvptx
