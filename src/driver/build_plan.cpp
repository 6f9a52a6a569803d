#include "driver/build_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "codegen/triton/printer.h"

namespace braze::driver {
namespace {

using schedule::Placement;
using sym::Expr;

class Builder {
 public:
  Builder(const loop::Program& program, const schedule::MemoryPlan& memory, codegen::Compiled compiled,
          std::vector<bool> droppable, const std::vector<FoundProduct>& products)
      : program_(program),
        memory_(memory),
        compiled_(std::move(compiled)),
        arena_(*program.arena),
        droppable_(std::move(droppable)),
        products_(products) {
    for (const loop::Output& o : program_.outputs)
      if (o.kind == loop::Output::Kind::Input) droppable_[o.input] = false;
  }

  plan::Plan run() {
    uint32_t inputs = droppable_.size();
    plan_.arena = program_.arena;
    plan_.inputs = inputs;
    plan_.size_symbols = program_.size_symbols;
    plan_.arena_bytes = memory_.arena_bytes;
    choose_arena_device();
    if (depends_on_data(memory_.arena_bytes)) shrink_arena();
    buffers();
    for (auto& k : compiled_.kernels)
      plan_.kernels.push_back({k.symbol, k.blob, static_cast<uint32_t>(k.buffers.size()),
                               static_cast<uint32_t>(k.sizes.size()), Device{}, k.threads, k.shared, k.early});
    plan_.blobs = std::move(compiled_.blobs);
    for (size_t i = 0; i < program_.items.size();) {
      auto* nest = std::get_if<loop::Nest>(&program_.items[i]);
      const size_t end = i + (nest ? compiled_.launches.at(next_launch_).nests : 1);
      for (size_t k = i; k < end; ++k)
        for (uint32_t b : allocate_before_[k]) plan_.steps.emplace_back(plan::Allocate{b});
      step_of_.resize(end, static_cast<uint32_t>(plan_.steps.size()));
      if (nest)
        launch(i, end);
      else
        plan_.steps.emplace_back(plan::Extern{renamed(std::get<loop::ExternCall>(program_.items[i]))});
      for (; i < end; ++i)
        for (uint32_t b : release_after_[i]) plan_.steps.emplace_back(plan::Release{b});
    }
    for (const FoundProduct& p : products_) tuned(p);
    for (loop::Output o : program_.outputs) {
      if (o.kind == loop::Output::Kind::View) o.view = renamed(o.view);
      plan_.outputs.push_back(std::move(o));
    }
    for (const loop::Writeback& w : program_.writebacks)
      plan_.writebacks.push_back({{renamed(w.from), w.input}, is_through(w)});
    return std::move(plan_);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  bool is_through(const loop::Writeback& w) const {
    return memory_.buffers[w.from.buffer].kind == Placement::Kind::Input &&
           program_.buffers[w.from.buffer].kind == loop::BufferKind::Temp;
  }

  bool depends_on_data(Expr e) const { return arena_.depends_on_data(e); }

  bool in_arena(const Placement& p) const {
    return p.kind == Placement::Kind::Arena && !depends_on_data(p.bytes) && !depends_on_data(p.offset);
  }
  bool in_arena(loop::BufferId id) const {
    return in_arena(memory_.buffers[id]) && on_arena_device(program_.buffers[id].device);
  }
  bool on_arena_device(Device d) const {
    return d.type == plan_.arena_device.type && (d.type == DeviceType::CPU || d.index == plan_.arena_device.index);
  }

  // One device has an arena: a GPU if there is one. Buffers of others are allocated one by one.
  void choose_arena_device() {
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      loop::BufferId id(i);
      if (memory_.buffers[id].kind != Placement::Kind::Arena) continue;
      Device d = program_.buffers[id].device;
      if (d.type == DeviceType::CUDA && plan_.arena_device.type != DeviceType::CUDA) plan_.arena_device = d;
    }
  }

  // The bytes up to the end of what stays in the arena.
  void shrink_arena() {
    Expr end = arena_.constant(0);
    for (const Placement& p : memory_.buffers)
      if (in_arena(p)) end = arena_.max(end, arena_.add(p.offset, p.bytes));
    plan_.arena_bytes = end;
  }

  void release_after_last_use(const Placement& p, uint32_t number) {
    auto last = static_cast<size_t>(std::max(p.first, p.last));  // one past the items: a writeback reads it
    if (last < program_.items.size()) release_after_[last].push_back(number);
  }

  void buffers() {
    number_.assign(program_.buffers.size(), kNone);
    bool gives_up_inputs = std::find(droppable_.begin(), droppable_.end(), true) != droppable_.end();
    allocate_before_.resize(program_.items.size());
    release_after_.resize(program_.items.size());
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      loop::BufferId id(i);
      const loop::Buffer& from = program_.buffers[id];
      const Placement& at = memory_.buffers[id];
      if (at.kind == Placement::Kind::None) continue;
      uint32_t number = number_[i] = plan_.buffers.size();
      plan::Buffer b;
      b.name = from.name;
      b.dtype = from.dtype;
      b.device = from.device;
      b.sizes = from.sizes;
      b.strides = from.strides;
      b.offset = arena_.constant(0);
      b.bytes = at.bytes;
      bool handed_out = from.kind == loop::BufferKind::Output;
      switch (at.kind) {
        case Placement::Kind::Input:
          BRAZE_CHECK(from.kind == loop::BufferKind::Temp || arena_.is_const(from.offset, 0),
                      "input buffers start at the tensor's first element");
          b.where = plan::Where::Input;
          b.index = at.input;
          b.bytes = dense_bytes(from);
          if (droppable_[b.index] && at.last >= 0 && static_cast<size_t>(at.last) < program_.items.size())
            release_after_[at.last].push_back(number);
          break;
        case Placement::Kind::Arena:
          if (in_arena(id)) {
            b.where = plan::Where::Arena;
            b.offset = at.offset;
            break;
          }
          b.where = plan::Where::Output;
          allocate_before_[at.first].push_back(number);
          release_after_last_use(at, number);
          break;
        case Placement::Kind::Output:
          b.where = plan::Where::Output;
          // Where inputs are given up on the way, their memory is to become that of later outputs.
          if (depends_on_data(at.bytes) || (gives_up_inputs && at.first >= 0))
            allocate_before_[at.first].push_back(number);
          break;
        case Placement::Kind::Adopted:
          b.where = plan::Where::Adopted;
          b.bytes = dense_bytes(from);
          if (!handed_out) release_after_last_use(at, number);
          break;
        case Placement::Kind::None: break;
      }
      plan_.buffers.push_back(std::move(b));
    }
  }

  Expr dense_bytes(const loop::Buffer& b) {
    return arena_.mul(arena_.product(b.sizes), arena_.constant(size_of(b.dtype)));
  }

  uint32_t number(loop::BufferId id) const {
    uint32_t n = number_[id.index];
    BRAZE_CHECK(n != kNone, "buffer " + program_.buffers[id].name + " is used but has no place in memory");
    return n;
  }

  loop::View renamed(loop::View v) const {
    if (v.buffer.valid()) v.buffer = loop::BufferId(number(v.buffer));
    return v;
  }

  loop::ExternCall renamed(loop::ExternCall call) const {
    for (loop::View& v : call.views) v = renamed(std::move(v));
    for (loop::View& v : call.outputs) {
      bool unused = v.buffer.valid() && number_[v.buffer.index] == kNone && !call.preallocated;
      if (unused) v.buffer = loop::BufferId();
      v = renamed(std::move(v));
    }
    return call;
  }

  // The nests from item `begin` to `end`, which are carried out together.
  void launch(size_t begin, size_t end) {
    const codegen::Launch& made = compiled_.launches[next_launch_++];
    plan::Launch l;
    for (size_t i = begin; i < end; ++i) {
      const auto& nest = std::get<loop::Nest>(program_.items[i]);
      l.name += (i > begin ? "+" : "") + nest.name;
      l.commits = l.commits || nest.commits;
    }
    for (loop::BufferId b : made.buffers) l.buffers.push_back(number(b));
    l.sizes = made.sizes;
    l.blocks = made.blocks;
    l.kernel = kernel_on(codegen::device_of(program_, std::get<loop::Nest>(program_.items[begin])), made.kernel);
    plan_.steps.emplace_back(std::move(l));
  }

  void tuned(const FoundProduct& found) {
    const codegen::triton::Product& product = found.product;
    plan::Tuned t;
    for (size_t i : found.items) t.steps.push_back(step_of_[i]);
    t.call = static_cast<uint32_t>(found.call);
    for (loop::BufferId b : found.writes) t.written.push_back(number(b));
    t.work = static_cast<double>(product.batch) * static_cast<double>(product.m) * static_cast<double>(product.n) *
             static_cast<double>(product.k);
    t.points = product.batch * product.m * product.n;
    t.key = std::get<loop::ExternCall>(program_.items[found.items[found.call]]).name + " of " +
            std::to_string(t.steps.size()) + " on " + found.target->text();
    try {
      for (const auto& config : codegen::triton::product_configs(product, *found.target)) {
        auto made = codegen::triton::print_product(product, config, *found.target);
        plan::TemplateKernel k;
        k.label = config.label();
        k.symbol = made.source.kernel;
        k.text = std::move(made.source.text);
        k.arguments = std::move(made.source.arguments);
        k.warps = made.source.warps, k.stages = made.source.stages, k.sm = made.source.sm;
        for (loop::BufferId b : made.buffers) k.buffers.push_back(number(b));
        k.blocks = static_cast<uint32_t>(made.programs);
        t.key += "\n" + k.symbol;
        t.kernels.push_back(std::move(k));
      }
    } catch (const codegen::triton::Inexpressible&) {
      return;  // as the library does it
    }
    if (!t.kernels.empty()) plan_.tuned.push_back(std::move(t));
  }

  // Equal nests share code; on several GPUs it is loaded for each.
  uint32_t kernel_on(Device device, uint32_t kernel) {
    auto [it, fresh] = kernels_.try_emplace({kernel, device.index}, kernel);
    if (!fresh) return it->second;
    if (!launched_.insert(kernel).second) {
      it->second = static_cast<uint32_t>(plan_.kernels.size());
      plan_.kernels.push_back(plan::Kernel(plan_.kernels.at(kernel)));
    }
    plan_.kernels[it->second].device = device;
    return it->second;
  }

  const loop::Program& program_;
  const schedule::MemoryPlan& memory_;
  codegen::Compiled compiled_;
  sym::ExprArena& arena_;
  std::vector<bool> droppable_;  // per input: dead after its last use
  plan::Plan plan_;
  std::vector<uint32_t> number_;  // of the plan's buffer, per buffer of the program
  std::vector<std::vector<uint32_t>> allocate_before_, release_after_;  // per item
  size_t next_launch_ = 0;
  const std::vector<FoundProduct>& products_;
  std::vector<uint32_t> step_of_;  // per item
  std::set<uint32_t> launched_;    // kernels
  std::map<std::pair<uint32_t, int32_t>, uint32_t>
      kernels_;  // of the plan's kernel, per kernel and number of the device
};

}  // namespace

plan::Plan build_plan(const loop::Program& program, const schedule::MemoryPlan& memory, codegen::Compiled compiled,
                      std::vector<bool> droppable, const std::vector<FoundProduct>& products) {
  return Builder(program, memory, std::move(compiled), std::move(droppable), products).run();
}

}  // namespace braze::driver
