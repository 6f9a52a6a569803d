#include "runtime/program.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "runtime/arena.h"
#include "runtime/cuda/driver.h"

namespace braze::runtime {

namespace {

constexpr uint32_t kTrailing = 3;  // parameters after the sizes: see codegen::CompiledKernel

}  // namespace

Program::Program(std::shared_ptr<const plan::Plan> plan, std::vector<KernelFn> kernels) : plan_(std::move(plan)) {
  BRAZE_CHECK(kernels.size() == plan_->kernels.size(), "one address per kernel");
  for (auto& s : plan_->size_symbols) symbols_.push_back(s.first);
  collect_all();
  const sym::ExprArena& arena = *plan_->arena;
  std::vector<sym::Expr> mentioned;
  for (sym::Expr e : dynamic_exprs_) arena.collect_symbols(e, mentioned);
  for (sym::Expr s : mentioned)
    if (std::find(symbols_.begin(), symbols_.end(), s) == symbols_.end()) {
      BRAZE_CHECK(arena.symbol_kind(s) == sym::SymbolKind::Unbacked,
                  "plan mentions the unknown symbol " + arena.print(s));
      symbols_.push_back(s);
    }
  formulas_ = sym::IntProgram::compile(arena, dynamic_exprs_, symbols_);
  for (size_t i = 0; i < dynamic_exprs_.size(); ++i) slots_[dynamic_exprs_[i].id] = i;
  for (size_t i = 0; i < constant_exprs_.size(); ++i) {
    slots_[constant_exprs_[i].id] = dynamic_exprs_.size() + i;
    constants_.push_back(*arena.as_const(constant_exprs_[i]));
  }
  auto no_unbacked = [&](sym::Expr e, const std::string& what) {
    for (size_t i = plan_->size_symbols.size(); i < symbols_.size(); ++i)
      BRAZE_CHECK(!arena.contains(e, symbols_[i]),
                  what + " depends on " + arena.print(symbols_[i]) + ", which is not known before the call");
  };
  no_unbacked(plan_->arena_bytes, "the arena's size");

  size_t n = plan_->buffers.size();
  std::vector<std::vector<uint32_t>> uses(n);
  std::vector<bool> allocated_by_step(n);
  for (uint32_t i = 0; i < plan_->steps.size(); ++i) {
    if (auto* l = std::get_if<plan::Launch>(&plan_->steps[i])) {
      const plan::Kernel& k = plan_->kernels[l->kernel];
      steps_.push_back(
          {StepKind::Launch, i, kernels[l->kernel], pointer_args_, static_cast<uint32_t>(size_args_.size())});
      if (k.threads) {
        Step& step = steps_.back();
        step.kind = StepKind::GpuLaunch;
        step.threads = k.threads;
        step.shared = k.shared;
        step.early = k.early;
        step.blocks = slot(l->blocks);
        step.gpu = static_cast<uint32_t>(std::find(gpus_.begin(), gpus_.end(), k.device) - gpus_.begin());
        if (step.gpu == gpus_.size()) gpus_.push_back(k.device);
        step.parameters = parameters_;
        parameters_ += l->buffers.size() + l->sizes.size() + kTrailing;
      }
      steps_.back().commits = l->commits;
      for (uint32_t b : l->buffers) uses[b].push_back(pointer_args_++);
      for (sym::Expr e : l->sizes) size_args_.push_back(slot(e));
    } else if (std::holds_alternative<plan::Extern>(plan_->steps[i])) {
      steps_.push_back({StepKind::Call, i, nullptr, 0, 0});
    } else if (auto* a = std::get_if<plan::Allocate>(&plan_->steps[i])) {
      allocated_by_step[a->buffer] = true;
      steps_.push_back({StepKind::Allocate, a->buffer, nullptr, 0, 0});
    } else {
      steps_.push_back({StepKind::Release, std::get<plan::Release>(plan_->steps[i]).buffer, nullptr, 0, 0});
    }
  }
  for (const plan::Tuned& t : plan_->tuned)
    for (uint32_t i : t.steps) steps_[i].tuned = true;
  for (uint32_t b = 0; b < n; ++b) {
    use_starts_.push_back(uses_.size());
    uses_.insert(uses_.end(), uses[b].begin(), uses[b].end());
    const plan::Buffer& buffer = plan_->buffers[b];
    arena_offsets_.push_back(slot(buffer.offset));
    bytes_.push_back(slot(buffer.bytes));
    if (buffer.where == plan::Where::Input) input_buffers_.push_back(b);
    if (buffer.where == plan::Where::Output && !allocated_by_step[b]) {
      no_unbacked(buffer.bytes, "the size of output " + buffer.name);
      output_buffers_.push_back(b);
    }
    if (buffer.where == plan::Where::Arena) arena_buffers_.push_back(b);
  }
  use_starts_.push_back(uses_.size());
  arena_bytes_ = slot(plan_->arena_bytes);
  if (!gpus_.empty()) gpu_error_ = cuda::error_word();
}

Program::~Program() { delete spare_.load(); }

void Program::collect(sym::Expr e) {
  if (!slots_.emplace(e.id, 0).second) return;
  (plan_->arena->as_const(e) ? constant_exprs_ : dynamic_exprs_).push_back(e);
}

void Program::collect(const loop::View& v) {
  collect(v.sizes);
  collect(v.strides);
  collect(v.offset);
}

void Program::collect_all() {
  for (auto& b : plan_->buffers) {
    collect(b.offset);
    collect(b.bytes);
    collect(b.sizes);
    collect(b.strides);
  }
  for (auto& s : plan_->steps) {
    if (auto* l = std::get_if<plan::Launch>(&s)) {
      collect(l->sizes);
      collect(l->blocks);
    }
    auto* e = std::get_if<plan::Extern>(&s);
    if (!e) continue;
    for (auto& v : e->call.views) collect(v);
    for (auto& v : e->call.outputs) collect(v);
    for (auto& a : e->call.args) {
      if (auto* x = std::get_if<sym::Expr>(&a)) collect(*x);
      if (auto* l = std::get_if<graph::IntList>(&a)) collect(l->v);
    }
  }
  for (auto& o : plan_->outputs) collect(o.view);
  for (auto& w : plan_->writebacks) collect(w.from);
  collect(plan_->arena_bytes);
}

Slot Program::slot(sym::Expr e) const {
  auto it = slots_.find(e.id);
  BRAZE_CHECK(it != slots_.end(), "the plan has no expression " + plan_->arena->print(e));
  return it->second;
}

uint32_t Program::symbol_index(sym::Expr symbol) const {
  auto it = std::find(symbols_.begin(), symbols_.end(), symbol);
  BRAZE_CHECK(it != symbols_.end(), "the plan has no symbol " + plan_->arena->print(symbol));
  return it - symbols_.begin();
}

std::unique_ptr<Frame> Program::acquire() const {
  if (Frame* f = spare_.exchange(nullptr, std::memory_order_acquire)) return std::unique_ptr<Frame>(f);
  return std::make_unique<Frame>(*this);
}

void Program::give_back(std::unique_ptr<Frame> frame) const {
  delete spare_.exchange(frame.release(), std::memory_order_acq_rel);
}

void Program::evaluate(Frame& f) const {
  formulas_.run(f.symbol_values_.data(), f.values_.data());
  for (size_t i = 0; i < size_args_.size(); ++i) f.size_args_[i] = f.values_[size_args_[i]];
  f.work_ = 0;
  for (const Step& s : steps_) {
    if (s.kind == StepKind::Launch || s.kind == StepKind::GpuLaunch)
      for (uint32_t b : std::get<plan::Launch>(plan_->steps[s.index]).buffers) f.work_ += f.bytes(b);
    if (s.kind == StepKind::Call) {
      f.work_ = -1;
      break;
    }
  }
  ++f.generation_;
  f.evaluated_ = true;
}

void Program::prepare(Frame& f, const int64_t* symbols) const {
  size_t n = plan_->size_symbols.size();
  if (f.evaluated_ && (n == 0 || std::memcmp(f.symbol_values_.data(), symbols, n * sizeof(int64_t)) == 0)) return;
  std::copy(symbols, symbols + n, f.symbol_values_.begin());
  evaluate(f);
  f.arena_placed_ = false;  // offsets may have moved
}

void Program::run(Frame& f, Host& host, void* const* inputs) const {
  std::optional<ArenaLease> arena;
  if (!gpus_.empty() && cuda::take_error())
    throw IndexOutOfRange("index out of range in a GPU kernel that was launched before (its results are not valid)");
  const bool several = gpus_.size() > 1;
  auto place = [&](uint32_t b, void* p) { f.set_pointer(b, f.bytes(b) ? p : host.stand_in(f, b)); };
  void* stream = !gpus_.empty() ? host.stream(gpus_[0]) : nullptr;
  if (!arena_buffers_.empty()) {
    std::byte* base = nullptr;
    int64_t bytes = f.values_[arena_bytes_];
    if (bytes > 0 && plan_->arena_device.type == DeviceType::CPU)
      base = arena.emplace(bytes).base();
    else if (bytes > 0)
      base = static_cast<std::byte*>(host.allocate_arena(f, plan_->arena_device, bytes));
    if (base != f.arena_base_ || !f.arena_placed_) {
      for (uint32_t b : arena_buffers_) place(b, base + f.values_[arena_offsets_[b]]);
      f.arena_base_ = base;
      f.arena_placed_ = true;
      ++f.generation_;
    }
  }
  for (uint32_t b : input_buffers_) {
    void* p = inputs[plan_->buffers[b].index];
    if (p != f.pointers_[b]) f.set_pointer(b, p);
  }
  for (uint32_t b : output_buffers_) place(b, host.allocate(f, b));
  void* const* pointers = f.pointer_args_.data();
  const int64_t* sizes = f.size_args_.data();
  const bool profiled = host.is_profiled();
  for (const Step& s : steps_) {
    std::unique_ptr<HostRange> range;
    if (profiled && (s.kind == StepKind::Launch || s.kind == StepKind::GpuLaunch)) [[unlikely]]
      range = host.range(std::get<plan::Launch>(plan_->steps[s.index]).name);
    switch (s.kind) {
      case StepKind::Launch:
        if (s.commits && host.found_fault()) return;
        s.kernel(pointers + s.pointers, sizes + s.sizes);
        break;
      case StepKind::GpuLaunch:
        if (s.tuned && host.replaces(f, s.index)) break;
        if (int64_t blocks = f.values_[s.blocks]; blocks > 0)
          cuda::launch(reinterpret_cast<void*>(s.kernel),
                       {static_cast<uint32_t>(blocks), s.threads, s.shared, s.early, several},
                       several ? host.stream(gpus_[s.gpu]) : stream, f.parameters_.data() + s.parameters,
                       std::max<int>(0, gpus_[s.gpu].index));
        break;
      case StepKind::Call:
        host.call(f, s.index);
        f.refresh();
        break;
      case StepKind::Allocate: place(s.index, host.allocate(f, s.index)); break;
      case StepKind::Release: host.release(f, s.index); break;
    }
  }
}

Frame::Frame(const Program& p)
    : program_(p),
      pointers_(p.plan_->buffers.size()),
      pointer_args_(p.pointer_args_),
      values_(p.dynamic_exprs_.size()),
      symbol_values_(p.symbols_.size(), 1),  // a symbol that is not bound yet must not divide by zero
      size_args_(p.size_args_.size()) {
  values_.insert(values_.end(), p.constants_.begin(), p.constants_.end());
  error_ = p.gpu_error_;
  for (const Program::Step& s : p.steps_) {
    if (s.kind != Program::StepKind::GpuLaunch) continue;
    const auto& l = std::get<plan::Launch>(p.plan_->steps[s.index]);
    for (size_t i = 0; i < l.buffers.size(); ++i) parameters_.push_back(&pointer_args_[s.pointers + i]);
    for (size_t i = 0; i < l.sizes.size(); ++i) parameters_.push_back(&size_args_[s.sizes + i]);
    parameters_.push_back(&error_);
    for (uint32_t i = 1; i < kTrailing; ++i)
      parameters_.push_back(&scratch_);  // read by kernels that have such a parameter
  }
}

void Frame::bind(uint32_t symbol, int64_t value) {
  if (symbol_values_[symbol] == value) return;
  symbol_values_[symbol] = value;
  rebound_ = true;
}

void Frame::refresh() {
  if (!rebound_) return;
  rebound_ = false;
  program_.evaluate(*this);
}

}  // namespace braze::runtime
