#include "tools_run.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <random>

#include "base/check.h"
#include "codegen/codegen.h"
#include "driver/build_plan.h"
#include "driver/driver.h"
#include "loop/interpret.h"
#include "runtime/program.h"
#include "schedule/memory.h"

namespace braze::tools {
namespace {

using loop::HostTensor;
using Symbols = std::map<sym::Expr, int64_t>;

Symbols symbol_values(const loop::Program& p, const RunOptions& run) {
  Symbols values;
  for (auto& [symbol, origin] : p.size_symbols) {
    sym::Range range = p.arena->range(symbol);
    values[symbol] = std::clamp<int64_t>(8, std::max<int64_t>(range.lo, 0), range.hi);
  }
  for (const std::string& text : run.sizes) {
    size_t equals = text.find('=');
    auto symbol = p.arena->find_symbol(std::string_view(text).substr(0, equals));
    BRAZE_CHECK(equals != std::string::npos && symbol && values.count(*symbol),
                "--size takes name=value of a size symbol, not " + text);
    values[*symbol] = std::stoll(text.substr(equals + 1));
  }
  return values;
}

HostTensor random_input(const loop::Program& p, const loop::Buffer& b, const Symbols& symbols,
                        std::mt19937_64& random) {
  auto value = [&](sym::Expr e) { return p.arena->evaluate(e, [&](sym::Expr s) { return symbols.at(s); }); };
  HostTensor t;
  t.dtype = b.dtype;
  int64_t last = 0, count = 1;
  for (size_t d = 0; d < b.sizes.size(); ++d) {
    t.sizes.push_back(value(b.sizes[d]));
    t.strides.push_back(value(b.strides[d]));
    count *= t.sizes[d];
    last += (t.sizes[d] - 1) * t.strides[d];
  }
  int64_t elements = count ? last + 1 : 0;
  t.storage.resize(elements * size_of(b.dtype));
  std::uniform_real_distribution<double> real(-2, 2);
  for (int64_t i = 0; i < elements; ++i) {
    double x = real(random);
    loop::set_number(t, i, b.dtype == DType::Bool ? x > 0 : is_integral(b.dtype) ? std::floor(std::abs(x) * 4) : x);
  }
  return t;
}

double element(const HostTensor& t, std::initializer_list<int64_t> index) {
  int64_t at = t.offset;
  size_t d = 0;
  for (int64_t i : index) at += i * t.strides[d++];
  return loop::get_number(t, at);
}

double scalar(const loop::Program& p, const loop::ExternArg& a) {
  if (auto* d = std::get_if<double>(&a)) return *d;
  if (auto* e = std::get_if<sym::Expr>(&a)) return p.arena->as_const(*e).value_or(1);
  return 1;
}

// Matrix products by plain loops, one rounding per result.
std::vector<HostTensor> matrix_product(const loop::Program& p, const loop::ExternCall& call,
                                       const std::vector<HostTensor>& views) {
  bool batched = call.name == "aten::bmm" || call.name == "aten::baddbmm";
  bool added = call.name == "aten::addmm" || call.name == "aten::baddbmm";
  BRAZE_CHECK(batched || added || call.name == "aten::mm", call.name + " needs PyTorch");
  auto operand = [&](size_t i) -> const HostTensor& { return views[std::get<loop::ViewRef>(call.args[i]).index]; };
  const HostTensor &a = operand(added), &b = operand(added + 1);
  size_t first = added + 2;
  double beta = added && call.args.size() > first ? scalar(p, call.args[first]) : 1;
  double alpha = added && call.args.size() > first + 1 ? scalar(p, call.args[first + 1]) : 1;
  int64_t batch = batched ? a.sizes[0] : 1, rows = a.sizes[batched], inner = a.sizes[batched + 1],
          columns = b.sizes[batched + 1];
  std::vector<int64_t> sizes =
      batched ? std::vector<int64_t>{batch, rows, columns} : std::vector<int64_t>{rows, columns};
  HostTensor result = loop::host_tensor(a.dtype, sizes);
  auto at = [&](const HostTensor& t, int64_t n, int64_t i, int64_t j) {
    return batched ? element(t, {n, i, j}) : element(t, {i, j});
  };
  auto bias = [&](int64_t n, int64_t i, int64_t j) {
    const HostTensor& c = operand(0);
    int64_t index[] = {n, i, j}, place = c.offset;
    for (size_t d = 0; d < c.sizes.size(); ++d)
      if (c.sizes[c.sizes.size() - 1 - d] != 1) place += index[2 - d] * c.strides[c.sizes.size() - 1 - d];
    return loop::get_number(c, place);
  };
  int64_t out = 0;
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < inner; ++k) sum += at(a, n, i, k) * at(b, n, k, j);
        loop::set_number(result, out++, alpha * sum + (added && beta != 0 ? beta * bias(n, i, j) : 0));
      }
  return {std::move(result)};
}

// Visits every element of a view: position in its storage.
void for_each(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t offset,
              const std::function<void(int64_t)>& f) {
  std::function<void(size_t, int64_t)> go = [&](size_t d, int64_t at) {
    if (d == sizes.size()) return f(at);
    for (int64_t i = 0; i < sizes[d]; ++i) go(d + 1, at + i * strides[d]);
  };
  go(0, offset);
}

// Runs extern calls by the interpreter's own form of them.
class ToolHost : public runtime::Host {
 public:
  ToolHost(const loop::Program& program, const runtime::Program& compiled) : source_(program), program_(compiled) {}

  void* allocate(runtime::Frame& f, uint32_t b) override { return memory(b, f.bytes(b)); }
  void* stand_in(runtime::Frame& f, uint32_t b) override {
    const plan::Buffer& buffer = program_.plan().buffers[b];
    size_t reach = 64;  // elements of at most 16 bytes
    for (size_t d = 0; d < buffer.sizes.size(); ++d)
      reach += static_cast<size_t>(std::max<int64_t>(f.value(program_.slot(buffer.sizes[d])), 1) *
                                   std::max<int64_t>(f.value(program_.slot(buffer.strides[d])), 1));
    return static_cast<std::byte*>(memory(b, 2 * reach * 16)) + reach * 16;
  }
  void release(runtime::Frame&, uint32_t b) override { memory_.erase(b); }
  void call(runtime::Frame& f, uint32_t step) override {
    const loop::ExternCall& call = std::get<plan::Extern>(program_.plan().steps[step]).call;
    std::vector<HostTensor> views;
    for (const loop::View& v : call.views) views.push_back(read(f, v));
    std::vector<HostTensor> results = matrix_product(source_, call, views);
    for (size_t i = 0; i < results.size(); ++i) {
      const loop::View& v = call.outputs[i];
      if (!call.preallocated) f.set_pointer(v.buffer.index, memory(v.buffer.index, f.bytes(v.buffer.index)));
      write(f, v, results[i]);
    }
  }

  HostTensor read(const runtime::Frame& f, const loop::View& v) const {
    auto [sizes, strides] = shape(f, v);
    HostTensor packed = loop::host_tensor(v.dtype, sizes);
    auto* from = static_cast<const uint8_t*>(f.pointer(v.buffer.index));
    size_t n = size_of(v.dtype), to = 0;
    for_each(sizes, strides, f.value(program_.slot(v.offset)),
             [&](int64_t at) { std::memcpy(&packed.storage[n * to++], from + at * n, n); });
    return packed;
  }

 private:
  std::pair<std::vector<int64_t>, std::vector<int64_t>> shape(const runtime::Frame& f, const loop::View& v) const {
    std::pair<std::vector<int64_t>, std::vector<int64_t>> s;
    for (sym::Expr e : v.sizes) s.first.push_back(f.value(program_.slot(e)));
    for (sym::Expr e : v.strides) s.second.push_back(f.value(program_.slot(e)));
    return s;
  }
  void write(runtime::Frame& f, const loop::View& v, const HostTensor& packed) {
    auto [sizes, strides] = shape(f, v);
    auto* to = static_cast<uint8_t*>(f.pointer(v.buffer.index));
    size_t n = size_of(v.dtype), from = 0;
    for_each(sizes, strides, f.value(program_.slot(v.offset)),
             [&](int64_t at) { std::memcpy(to + at * n, &packed.storage[n * from++], n); });
  }
  void* memory(uint32_t b, size_t bytes) {
    memory_[b].resize(bytes / 64 + 1);
    return memory_[b].data();
  }

  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  const loop::Program& source_;
  const runtime::Program& program_;
  std::map<uint32_t, std::vector<Line>> memory_;
};

std::vector<runtime::KernelFn> load(const plan::Plan& plan) {
  std::vector<runtime::KernelFn> kernels;
  for (const plan::Kernel& k : plan.kernels)
    kernels.push_back(
        reinterpret_cast<runtime::KernelFn>(codegen::cpu_loader().load(plan.blobs[k.blob], {k.symbol})[0]));
  return kernels;
}

// Greatest error relative to max(1, |expected|); infinite where one is NaN and the other is not.
double worst_error(const HostTensor& expected, const HostTensor& actual) {
  double worst = 0;
  int64_t i = 0;
  for_each(expected.sizes, expected.strides, expected.offset, [&](int64_t at) {
    double e = loop::get_number(expected, at), a = loop::get_number(actual, i++);
    if (e == a || (std::isnan(e) && std::isnan(a))) return;
    double error = std::abs(e - a) / std::max(1.0, std::abs(e));
    worst = std::max(worst, std::isnan(error) ? INFINITY : error);
  });
  return worst;
}

}  // namespace

bool run_and_compare(State state, const Options& options, const RunOptions& run, bool time, std::ostream& out) {
  if (!state.program) {
    apply(state, "lower", options);
    apply(state, "schedule", options);
  }
  const loop::Program &reference = *state.reference, &program = *state.program;
  codegen::Compiled code =
      codegen::cpu_generator().compile(program, codegen::one_by_one(driver::nests_of(program)), options);
  auto plan = std::make_shared<const plan::Plan>(driver::build_plan(
      program, schedule::plan_memory(program), std::move(code), std::vector<bool>(input_count(program))));
  plan::verify(*plan);
  runtime::Program compiled(plan, load(*plan));

  Symbols symbols = symbol_values(program, run);
  std::mt19937_64 random(run.seed);
  std::vector<HostTensor> inputs(input_count(program));
  for (const loop::Buffer& b : reference.buffers)
    if (b.kind == loop::BufferKind::Input || b.kind == loop::BufferKind::Constant)
      inputs[b.input] = random_input(reference, b, symbols, random);
  std::vector<HostTensor> ours = inputs;
  std::vector<HostTensor> expected =
      loop::run(reference, inputs, [&](const loop::ExternCall& call, const std::vector<HostTensor>& views) {
        return matrix_product(reference, call, views);
      });

  ToolHost host(program, compiled);
  std::vector<void*> pointers;
  for (HostTensor& t : ours) pointers.push_back(t.storage.data());
  std::vector<int64_t> values;
  for (auto& s : plan->size_symbols) values.push_back(symbols.at(s.first));
  auto frame = compiled.acquire();
  double best = INFINITY;
  for (int i = 0; i < (time ? 50 : 1); ++i) {
    auto start = std::chrono::steady_clock::now();
    compiled.prepare(*frame, values.data());
    compiled.run(*frame, host, pointers.data());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }

  bool good = true;
  auto report = [&](const std::string& what, const HostTensor& e, const HostTensor& a) {
    double error = worst_error(e, a);
    bool fits = error <= run.tolerance;
    good &= fits;
    out << "; " << what << ": " << (fits ? "agrees" : "DIFFERS") << ", worst error " << error << "\n";
  };
  for (size_t i = 0; i < plan->outputs.size(); ++i)
    if (plan->outputs[i].kind == loop::Output::Kind::View)
      report("output " + std::to_string(i), expected[i], host.read(*frame, plan->outputs[i].view));
  for (const loop::Writeback& w : plan->writebacks)
    report("writeback " + std::to_string(w.input), inputs[w.input], host.read(*frame, w.from));
  if (time) out << "; run: " << best * 1e6 << " us\n";
  return good;
}

}  // namespace braze::tools
