#include "runtime/program.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "runtime/arena.h"

namespace braze::runtime {
namespace {

void add_one(void* const* p, const int64_t* sizes) {
  auto* in = static_cast<const float*>(p[0]);
  auto* out = static_cast<float*>(p[1]);
  for (int64_t i = 0; i < sizes[0]; ++i) out[i] = in[i] + 1;
}
void nothing(void* const*, const int64_t*) {}

class TestHost : public Host {
 public:
  void* allocate(Frame& f, uint32_t b) override {
    outputs.emplace_back(static_cast<float*>(std::aligned_alloc(64, (f.bytes(b) + 63) / 64 * 64)), std::free);
    return outputs.back().get();
  }
  void* stand_in(Frame&, uint32_t b) override {
    empty.push_back(b);
    return &zero;
  }
  void call(Frame& f, uint32_t step) override { on_call(f, step); }
  void release(Frame&, uint32_t b) override { released.push_back(b); }
  std::vector<std::unique_ptr<float, void (*)(void*)>> outputs;
  std::vector<uint32_t> released, empty;
  float zero = 0;
  std::function<void(Frame&, uint32_t)> on_call = [](Frame&, uint32_t) {};
};

// x[n] -> (x + 1) in the arena -> + 1 into the output.
struct Fixture {
  std::shared_ptr<plan::Plan> plan = std::make_shared<plan::Plan>();
  std::vector<KernelFn> kernels{add_one};

  explicit Fixture(bool dynamic) {
    plan->arena = std::make_shared<sym::ExprArena>();
    auto& a = *plan->arena;
    Expr n = dynamic ? a.symbol("n", sym::SymbolKind::Size, {0, 1 << 20}) : a.constant(100);
    if (dynamic) plan->size_symbols.push_back({n, {0, 0}});
    Expr bytes = a.mul(n, a.constant(4)), zero = a.constant(0);
    auto buffer = [&](plan::Where where) {
      plan->buffers.push_back(
          {.name = {}, .where = where, .offset = zero, .bytes = bytes, .sizes = {n}, .strides = {a.constant(1)}});
    };
    buffer(plan::Where::Input);
    buffer(plan::Where::Arena);
    buffer(plan::Where::Output);
    plan->kernels.push_back({"add_one", 0, 2, 1});
    plan->blobs.push_back("");
    plan->steps.emplace_back(plan::Launch{"a", 0, {0, 1}, {n}});
    plan->steps.emplace_back(plan::Launch{"b", 0, {1, 2}, {n}});
    plan->arena_bytes = bytes;
    plan->outputs.push_back({loop::Output::Kind::View, {loop::BufferId(2), {n}, {a.constant(1)}, zero}, 0});
    plan->inputs = 1;
  }
  using Expr = sym::Expr;
};

void check(const Program& program, int64_t n) {
  TestHost host;
  std::vector<float> x(n);
  for (int64_t i = 0; i < n; ++i) x[i] = i;
  void* inputs[] = {x.data()};
  auto frame = program.acquire();
  program.prepare(*frame, &n);
  program.run(*frame, host, inputs);
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(host.outputs[0].get()[i], i + 2);
  program.give_back(std::move(frame));
}

TEST(Program, RunsTwiceWithOtherInputs) {
  Fixture f(false);
  plan::verify(*f.plan);
  Program program(f.plan, f.kernels);
  check(program, 100);
  check(program, 100);
}

TEST(Program, EvaluatesSizes) {
  Fixture f(true);
  plan::verify(*f.plan);
  Program program(f.plan, f.kernels);
  for (int64_t n : {10, 1000, 1000, 1, 0, 1 << 20}) check(program, n);
}

TEST(Program, BuffersWithoutElementsAreReadElsewhere) {
  Fixture f(true);
  Program program(f.plan, f.kernels);
  auto frame = program.acquire();
  for (int64_t n : {100, 0, 100}) {
    TestHost host;
    std::vector<float> x(n);
    void* inputs[] = {x.data()};
    program.prepare(*frame, &n);
    program.run(*frame, host, inputs);
    EXPECT_EQ(host.empty, n ? std::vector<uint32_t>() : (std::vector<uint32_t>{1, 2}));
    EXPECT_EQ(frame->pointer(1) == &host.zero, n == 0);
  }
}

TEST(Program, ThreadsAndNestedCallsHaveTheirOwnArena) {
  Fixture f(true);
  Program program(f.plan, f.kernels);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 1; i < 200; ++i) check(program, i * 7 + t);
    });
  for (auto& t : threads) t.join();
  ArenaLease outer(1 << 10);
  std::byte* base = outer.base();
  check(program, 300);
  ArenaLease inner(1 << 10);
  EXPECT_NE(inner.base(), base);
}

TEST(Program, ExternBindsAnUnbackedSymbolAndAllocatesLate) {
  Fixture f(false);
  auto& a = *f.plan->arena;
  sym::Expr u = a.symbol("u0", sym::SymbolKind::Unbacked, {0, 100}), zero = a.constant(0), one = a.constant(1);
  f.plan->buffers[1].where = plan::Where::Adopted;
  f.plan->buffers[1].sizes = f.plan->buffers[2].sizes = {u};
  f.plan->buffers[1].bytes = f.plan->buffers[2].bytes = a.mul(u, a.constant(4));
  f.plan->arena_bytes = zero;
  f.plan->steps.clear();
  plan::Extern call;
  call.call.name = "test::first_u";
  call.call.outputs.push_back({loop::BufferId(1), {u}, {one}, zero});
  f.plan->steps.emplace_back(call);
  f.plan->steps.emplace_back(plan::Allocate{2});
  f.plan->steps.emplace_back(plan::Launch{"b", 0, {1, 2}, {u}});
  f.plan->steps.emplace_back(plan::Release{1});
  plan::verify(*f.plan);
  Program program(f.plan, f.kernels);
  std::vector<float> x(100, 5.f);
  void* inputs[] = {x.data()};
  for (int64_t n : {7, 30, 30}) {
    TestHost host;
    host.on_call = [&](Frame& frame, uint32_t) {
      frame.set_pointer(1, x.data());
      frame.bind(program.symbol_index(u), n);
    };
    auto frame = program.acquire();
    program.prepare(*frame, nullptr);
    program.run(*frame, host, inputs);
    EXPECT_EQ(frame->bytes(2), n * 4);
    EXPECT_EQ(host.outputs[0].get()[n - 1], 6);
    EXPECT_EQ(host.released, std::vector<uint32_t>{1});
    program.give_back(std::move(frame));
  }
}

TEST(Program, StepOverhead) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's checks take most of the time";
#endif
  Fixture f(false);
  f.kernels[0] = nothing;
  for (int i = 0; i < 98; ++i) f.plan->steps.emplace_back(plan::Launch{"c", 0, {1, 2}, {f.plan->buffers[0].sizes[0]}});
  Program program(f.plan, f.kernels);
  std::vector<float> x(100);
  void* inputs[] = {x.data()};
  double best = 1e9;
  for (int i = 0; i < 1000; ++i) {
    TestHost host;
    auto start = std::chrono::steady_clock::now();
    auto frame = program.acquire();
    program.prepare(*frame, nullptr);
    program.run(*frame, host, inputs);
    program.give_back(std::move(frame));
    best = std::min(best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
  }
  RecordProperty("ns_per_step", std::to_string(best / 100));
  EXPECT_LT(best / 100, 100);
}

}  // namespace
}  // namespace braze::runtime
