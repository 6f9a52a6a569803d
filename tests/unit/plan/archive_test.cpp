// Plans as bytes: what comes back, and what damaged bytes end in.
#include "plan/archive.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/check.h"

namespace braze::plan {
namespace {

struct Symbolic {
  std::shared_ptr<sym::ExprArena> arena = std::make_shared<sym::ExprArena>();
  Expr rows = arena->symbol("s0", sym::SymbolKind::Size, {2, 1000}),
       found = arena->symbol("u0", sym::SymbolKind::Unbacked, {0, 1 << 20});
  std::vector<Expr> symbols() const { return {rows, found}; }
};

// Something of everything that a plan can hold.
Plan large_plan(const Symbolic& s) {
  Plan p;
  sym::ExprArena& a = *(p.arena = s.arena);
  auto c = [&](int64_t v) { return a.constant(v); };
  Expr zero = c(0), one = c(1), bytes = a.mul(c(4), s.rows), dense = a.mul(c(4), s.found);
  Expr padded = a.mul(c(64), a.floordiv(a.add(bytes, c(63)), c(64)));
  p.inputs = 2;
  p.size_symbols = {{s.rows, {0, 0}}};
  p.buffers.push_back({"x", Where::Input, DType::F32, {}, 0, zero, bytes, {s.rows}, {one}});
  p.buffers.push_back({"t", Where::Arena, DType::F32, {}, 0, zero, padded, {s.rows}, {one}});
  p.buffers.push_back({"y", Where::Output, DType::F32, {}, 0, zero, dense, {s.found}, {one}});
  p.buffers.push_back(
      {"z", Where::Adopted, DType::I64, {}, 0, zero, dense, {s.found, a.min(s.rows, c(9))}, {one, one}});
  p.buffers.push_back({"w", Where::Input, DType::F32, {}, 1, zero, c(64), {c(16)}, {one}});
  p.kernels = {{"first", 0, 2, 1}, {"second", 1, 1, 0}};
  p.blobs = {std::string("\0code", 5), "more code"};
  p.arena_bytes = padded;
  p.steps.emplace_back(Launch{"rows", 0, {0, 1}, {s.rows}, zero});
  loop::ExternCall call;
  call.name = "aten::nonzero";
  call.views = {{loop::BufferId(size_t{1}), {s.rows}, {one}, zero, DType::F32}};
  call.outputs = {{loop::BufferId(size_t{3}), {s.found, one}, {one, one}, zero, DType::I64}, {}};
  call.args = {graph::NoneArg{},
               loop::ViewRef(size_t{0}),
               std::vector<loop::ViewRef>{loop::ViewRef(size_t{0}), loop::ViewRef()},
               true,
               a.mod(s.rows, c(7)),
               -0.0,
               std::string("text \"quoted\""),
               DType::BF16,
               Device{DeviceType::CUDA, 1},
               graph::MemoryFormatArg{-1},
               graph::LayoutArg{2},
               graph::IntList{{c(-5), s.rows, c(INT64_MAX)}},
               graph::DoubleList{{1.5, std::numeric_limits<double>::infinity()}},
               graph::BoolList{{true, false, true}},
               graph::OpaqueArg{3}};
  call.list_sizes = {-1, 1};
  p.steps.emplace_back(Extern{call});
  p.steps.emplace_back(Allocate{2});
  p.steps.emplace_back(Launch{"second", 1, {2}, {}, a.ceildiv(s.found, c(128))});
  p.steps.emplace_back(Release{3});
  p.outputs.push_back({loop::Output::Kind::View, {loop::BufferId(size_t{2}), {s.found}, {one}, zero}, 0});
  p.outputs.push_back({loop::Output::Kind::Input, {}, 1});
  p.outputs.push_back({loop::Output::Kind::None, {}, 0});
  p.writebacks.push_back({{{loop::BufferId(size_t{4}), {c(16)}, {one}, zero}, 1}, true});
  Tuned tuned;
  tuned.steps = {1, 3};
  tuned.written = {2};
  tuned.key = "product";
  tuned.work = 1e9;
  tuned.kernels.push_back({"64x64", "def f(): pass", "f", {{"x", "*fp32"}, {"e", "*i32"}}, 8, 3, 90, {0}, 12});
  p.tuned.push_back(tuned);
  p.tuning_seconds = 7;
  p.keeps_choices = false;
  return p;
}

std::string packed(const Plan& p, const Symbolic& s) {
  sym::Packer out(*s.arena, s.symbols());
  pack(out, p);
  return out.take();
}

Plan unpacked(std::string_view bytes, const Symbolic& s) {
  sym::Unpacker in(bytes, *s.arena, s.symbols());
  Plan p = unpack(in, s.arena);
  in.finish();
  return p;
}

TEST(PlanArchive, GivesBackWhatWasPacked) {
  Symbolic here, there;
  there.arena->mul(there.found, there.rows);  // an arena that holds other expressions, too
  Plan before = large_plan(here);
  std::string bytes = packed(before, here);
  Plan after = unpacked(bytes, there);
  EXPECT_EQ(after.describe(), before.describe());
  EXPECT_EQ(after.blobs, before.blobs);
  EXPECT_EQ(after.kernels[1].symbol, "second");
  EXPECT_EQ(after.kernels[0].sizes, 1u);
  EXPECT_EQ(after.size_symbols[0].first, there.rows);
  EXPECT_EQ(after.tuned[0].kernels[0].text, "def f(): pass");
  EXPECT_EQ(after.tuned[0].work, 1e9);
  EXPECT_EQ(after.tuning_seconds, 7);
  EXPECT_FALSE(after.keeps_choices);
  auto& call = std::get<Extern>(after.steps[1]).call;
  EXPECT_TRUE(std::signbit(std::get<double>(call.args[5])));
  EXPECT_EQ(std::get<Device>(call.args[8]), (Device{DeviceType::CUDA, 1}));
  EXPECT_EQ(std::get<graph::OpaqueArg>(call.args[14]).index, 3u);
  EXPECT_EQ(call.list_sizes, (std::vector<int32_t>{-1, 1}));
  EXPECT_FALSE(call.outputs[1].buffer.valid());
  EXPECT_EQ(packed(after, there).size(), bytes.size());
}

TEST(PlanArchive, KnowsItsSymbolsAlone) {
  Symbolic s;
  Plan p = large_plan(s);
  sym::Packer out(*s.arena, std::vector<Expr>{s.rows});
  EXPECT_THROW(pack(out, p), sym::UnknownSymbol);
}

// Whatever the bytes are: an exception, or a plan that keeps the rules.
TEST(PlanArchive, DamagedBytesAreRefusedOrHarmless) {
  Symbolic s;
  const std::string bytes = packed(large_plan(s), s);
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_ANY_THROW(unpacked(bytes.substr(0, n), s)) << n;
  EXPECT_ANY_THROW(unpacked(bytes + '\0', s));
  size_t refused = 0;
  for (size_t at = 0; at < bytes.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = bytes;
      other[at] = static_cast<char>(other[at] ^ (1 << bit));
      try {
        Plan p = unpacked(other, s);
        verify(p);
        EXPECT_FALSE(p.describe().empty());
      } catch (const std::exception&) {
        ++refused;
      }
    }
  EXPECT_GT(refused, bytes.size());
}

}  // namespace
}  // namespace braze::plan
