// The host's CPU as a target: keys, cache, emission on the calling thread, machine code on several.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <condition_variable>
#include <deque>
#include <thread>
#include <unordered_map>

#include "base/build_id.h"
#include "base/check.h"
#include "base/hash.h"
#include "codegen/codegen.h"
#include "codegen/cpu/cache.h"
#include "codegen/cpu/emitter.h"
#include "codegen/cpu/machine.h"
#include "codegen/llvm_headers.h"

namespace braze::codegen {
namespace cpu {
namespace {

std::string hex(uint64_t n) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(n));
  return text;
}

struct Unit {
  std::unique_ptr<llvm::LLVMContext> context;
  std::unique_ptr<llvm::Module> module;
};

Unit emit_unit(const Program& program, const Nest& nest, const Signature& signature, const std::string& symbol, llvm::TargetMachine& machine) {
  Unit u;
  u.context = std::make_unique<llvm::LLVMContext>();
  u.context->setDiscardValueNames(true);
  u.module = std::make_unique<llvm::Module>(symbol, *u.context);
  prepare(*u.module, machine);
  Emitter(program, nest, signature, host(), *u.module).run(symbol);
  static const bool verify = std::getenv("BRAZE_STRICT") != nullptr;
  if (verify) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    if (llvm::verifyModule(*u.module, &stream)) {
      u.module->print(stream, nullptr);
      throw InternalError("invalid LLVM IR for nest " + nest.name + ": " + text);
    }
  }
  return u;
}

class CpuTarget final : public Target {
 public:
  std::string_view name() const override { return "cpu"; }
  std::string fingerprint() const override {
    const Isa& isa = host();
    return "cpu " + build_id() + " " + isa.cpu + " " + isa.features;
  }
  Compiled compile(const Program& program, const std::vector<const Nest*>& nests, const Options& options) override;
  std::string source(const Program& program, const Nest& nest, const Options&) override {
    Signature s = signature_of(program, nest);
    MachineLoan machine;
    Unit u = emit_unit(program, nest, s, "kernel", *machine);
    std::string text;
    llvm::raw_string_ostream stream(text);
    u.module->print(stream, nullptr);
    return text;
  }
};

// Modules waiting for machine code. The emitting thread fills it and then helps.
class Work {
 public:
  explicit Work(std::vector<std::string>& objects) : objects_(objects) {}
  ~Work() { join(); }
  void start(size_t threads) {
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { drain(true); });
  }
  void push(size_t slot, Unit unit) {
    {
      std::lock_guard lock(mutex_);
      queue_.emplace_back(slot, std::move(unit));
    }
    ready_.notify_one();
  }
  void finish() {
    close();
    drain(false);
    join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }
  void join() {
    close();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }
  void drain(bool wait) {
    std::optional<MachineLoan> machine;
    for (;;) {
      std::pair<size_t, Unit> item;
      {
        std::unique_lock lock(mutex_);
        if (wait) ready_.wait(lock, [&] { return closed_ || !queue_.empty(); });
        if (queue_.empty()) return;
        item = std::move(queue_.front());
        queue_.pop_front();
      }
      try {
        if (!machine) machine.emplace();
        objects_[item.first] = emit_object(*item.second.module, **machine);
      } catch (...) {
        std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
      }
    }
  }

  std::vector<std::string>& objects_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::pair<size_t, Unit>> queue_;
  bool closed_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

Compiled CpuTarget::compile(const Program& program, const std::vector<const Nest*>& nests, const Options& options) {
  Compiled out;
  std::string print = fingerprint() + "\n";
  std::unordered_map<std::string, uint32_t> by_key;
  std::vector<Signature> signatures;  // of distinct kernels
  std::vector<const Nest*> sources;
  for (const Nest* nest : nests) {
    Signature s = signature_of(program, *nest);
    auto [it, fresh] = by_key.try_emplace(s.key, static_cast<uint32_t>(out.kernels.size()));
    out.kernel_of.push_back(it->second);
    out.buffers_of.push_back(s.buffers);
    out.sizes_of.push_back(s.sizes);
    if (!fresh) continue;
    Hasher low, high;
    low.add(print), low.add(s.key);
    high.add(1), high.add(print), high.add(s.key);
    CompiledKernel k;
    k.symbol = "braze_" + hex(low.value()) + hex(high.value());
    k.buffers = s.buffers;
    k.sizes = s.sizes;
    k.blob = it->second;
    out.kernels.push_back(std::move(k));
    signatures.push_back(std::move(s));
    sources.push_back(nest);
  }
  out.blobs.resize(out.kernels.size());
  std::optional<DiskCache> cache;
  // Without a build-id objects of another build could not be told from ours.
  if (options.disk_cache && !build_id().empty()) cache.emplace();
  std::vector<size_t> missing;
  for (size_t i = 0; i < out.kernels.size(); ++i) {
    auto found = cache ? cache->find(out.kernels[i].symbol, print + signatures[i].key) : std::nullopt;
    if (found) out.blobs[i] = std::move(*found);
    else missing.push_back(i);
  }
  if (missing.empty()) return out;
  // The large ones first, so that no thread is left with one at the end.
  std::stable_sort(missing.begin(), missing.end(), [&](size_t a, size_t b) { return signatures[a].key.size() > signatures[b].key.size(); });
  Work work(out.blobs);
  size_t cores = std::max(1u, std::thread::hardware_concurrency());
  work.start(std::min({missing.size() - 1, cores - 1, size_t{7}}));
  {
    MachineLoan machine;
    for (size_t i : missing) work.push(i, emit_unit(program, *sources[i], signatures[i], out.kernels[i].symbol, *machine));
  }
  work.finish();
  if (cache) {
    int64_t bytes = 0;
    for (size_t i : missing) {
      cache->keep(out.kernels[i].symbol, print + signatures[i].key, out.blobs[i]);
      bytes += static_cast<int64_t>(out.blobs[i].size() + signatures[i].key.size());
    }
    // The folder's size is looked at when a process first writes, and after every 64 MiB.
    static std::atomic<int64_t> left{0};
    if ((left -= bytes) < 0) {
      left = int64_t{64} << 20;
      cache->trim();
    }
  }
  return out;
}

}  // namespace
}  // namespace cpu

Target& cpu_target() {
  static auto* target = new cpu::CpuTarget;
  return *target;
}

}  // namespace braze::codegen
