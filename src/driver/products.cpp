#include "driver/products.h"

#include <algorithm>
#include <set>

#include "loop/analysis.h"
#include "lower/lower.h"
#include "passes/optimize.h"

namespace braze::driver {
namespace {

namespace triton = codegen::triton;
using graph::Op;
using loop::BufferId;
using loop::ExternCall;
using loop::Nest;
using loop::View;
using sym::Expr;
using triton::Factor;
using triton::Product;

constexpr int64_t kLeast = 1 << 16;  // multiplications of a product that is worth a search
constexpr int64_t kFewRows = 256;    // of a product that makes a factor as it goes: each tile of rows does it again
constexpr size_t kSmallWork = 16;    // operations of a nest that makes a factor

enum class Kind : uint8_t { Mm, Bmm, Addmm, Baddbmm, Activated };

std::optional<Kind> kind_of(const ExternCall& call) {
  if (call.name == "aten::_addmm_activation") return Kind::Activated;
  switch (call.op) {
    case Op::mm: return Kind::Mm;
    case Op::bmm: return Kind::Bmm;
    case Op::addmm: return Kind::Addmm;
    case Op::baddbmm: return Kind::Baddbmm;
    default: return std::nullopt;
  }
}

class Finder {
 public:
  Finder(const loop::Program& program, const Targets& targets)
      : program_(program), targets_(targets), arena_(*program.arena), taken_(program.items.size()) {
    for (const loop::Item& item : program.items) effects_.push_back(loop::effects(item));
  }

  std::vector<FoundProduct> run() {
    std::vector<FoundProduct> out;
    // A nest that reads two products goes with the later one: then all that it reads is there.
    for (size_t i = program_.items.size(); i-- > 0;)
      if (auto* call = std::get_if<ExternCall>(&program_.items[i]))
        if (auto found = product(i, *call)) out.push_back(std::move(*found));
    std::reverse(out.begin(), out.end());
    return out;
  }

 private:
  std::optional<std::vector<int64_t>> values(const std::vector<Expr>& list) const {
    std::vector<int64_t> out;
    for (Expr e : list) {
      auto c = arena_.as_const(e);
      if (!c) return std::nullopt;
      out.push_back(*c);
    }
    return out;
  }
  // Strides along batch, row and column.
  std::optional<std::array<int64_t, 3>> strides_of(const View& v) const {
    auto strides = values(v.strides);
    if (!strides || strides->size() < 2 || strides->size() > 3) return std::nullopt;
    if (strides->size() == 2) strides->insert(strides->begin(), 0);
    return std::array<int64_t, 3>{(*strides)[0], (*strides)[1], (*strides)[2]};
  }
  std::optional<Factor> factor(const View& v) const {
    auto strides = strides_of(v);
    auto offset = arena_.as_const(v.offset);
    const loop::Buffer& buffer = program_.buffers[v.buffer];
    if (!strides || !offset || buffer.dtype != v.dtype || (v.dtype != DType::BF16 && v.dtype != DType::F16))
      return std::nullopt;
    return Factor{v.buffer, v.dtype, *offset, *strides, nullptr, std::nullopt, false};
  }

  std::optional<FoundProduct> product(size_t at, const ExternCall& call) {
    auto kind = kind_of(call);
    if (!kind || call.outputs.size() != 1 || !call.outputs[0].buffer.valid()) return std::nullopt;
    const View& result = call.outputs[0];
    const Device device = program_.buffers[result.buffer].device;
    if (device.type != DeviceType::CUDA) return std::nullopt;
    FoundProduct found;
    found.target = &targets_.of(device);
    if (found.target->sm < 80) return std::nullopt;
    size_t first = *kind == Kind::Mm || *kind == Kind::Bmm ? 0 : 1;
    auto view = [&](size_t i) -> const View* {
      auto* v = i < call.args.size() ? std::get_if<loop::ViewRef>(&call.args[i]) : nullptr;
      return v && v->valid() ? &call.views[v->index] : nullptr;
    };
    const View *left = view(first), *right = view(first + 1);
    if (!left || !right) return std::nullopt;
    auto l = factor(*left), r = factor(*right), t = factor(result);
    auto sizes = values(left->sizes), columns = values(right->sizes);
    if (!l || !r || !t || !sizes || !columns || l->dtype != r->dtype || l->dtype != t->dtype) return std::nullopt;
    Product& p = found.product;
    p.program = &program_;
    p.batch = sizes->size() == 3 ? (*sizes)[0] : 1;
    p.m = (*sizes)[sizes->size() - 2], p.k = sizes->back(), p.n = columns->back();
    if (static_cast<double>(p.batch) * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) <
        kLeast)
      return std::nullopt;
    p.left = *l, p.right = *r;
    p.result = result.buffer, p.result_offset = t->offset, p.result_strides = t->strides;
    if (first == 1 && !own_part(found, *kind, call, view(0), device)) return std::nullopt;
    found.items = {at};
    take_reader(found, at, result);
    if (p.batch == 1 && p.m <= kFewRows)
      for (Factor* f : {&p.left, &p.right}) take_maker(found, at, *f);
    std::sort(found.items.begin(), found.items.end());
    found.call = static_cast<size_t>(std::find(found.items.begin(), found.items.end(), at) - found.items.begin());
    for (size_t i : found.items) taken_[i] = true;
    note_effects(found);
    return found;
  }

  // What the call does with the sums, as a graph that is lowered like any: alpha, beta and bias, activation.
  bool own_part(FoundProduct& found, Kind kind, const ExternCall& call, const View* bias, Device device) {
    if (!bias || !arena_.is_const(bias->offset, 0) || bias->dtype != program_.buffers[bias->buffer].dtype ||
        program_.buffers[bias->buffer].device != device)
      return false;
    auto number = [&](size_t i) -> std::optional<double> {
      if (i >= call.args.size()) return 1.0;
      if (auto* d = std::get_if<double>(&call.args[i])) return *d;
      if (auto* e = std::get_if<Expr>(&call.args[i]))
        if (auto c = arena_.as_const(*e)) return static_cast<double>(*c);
      return std::nullopt;
    };
    auto beta = number(3), alpha = number(4);
    if (!beta || !alpha || *beta == 0) return false;
    const Product& p = found.product;
    graph::Graph g(program_.arena);
    TensorType type{DType::F32, device, {}, {}, arena_.constant(0)};
    if (kind == Kind::Baddbmm) type.sizes.push_back(arena_.constant(p.batch));
    type.sizes.push_back(arena_.constant(p.m)), type.sizes.push_back(arena_.constant(p.n));
    type.strides = contiguous_strides(arena_, type.sizes);
    TensorType given{bias->dtype, device, bias->sizes, bias->strides, arena_.constant(0)};
    graph::ValueId sums = g.add_input(type, graph::InputKind::Argument),
                   added = g.add_input(given, graph::InputKind::Argument);
    type.offset = {}, given.offset = {};
    auto add = [&](Op op, std::vector<graph::Arg> args, TensorType t) {
      return g.node(g.add_node(op, std::move(args), {std::move(t)})).outputs[0];
    };
    given.dtype = DType::F32;
    given.strides = contiguous_strides(arena_, given.sizes);
    added = add(Op::_to_copy, {added, DType::F32}, given);
    if (*beta != 1) added = add(Op::mul_Tensor, {added, *beta}, given);
    if (*alpha != 1) sums = add(Op::mul_Tensor, {sums, *alpha}, type);
    graph::ValueId value = add(Op::add_Tensor, {sums, added, arena_.constant(1)}, type);
    if (kind == Kind::Activated) {
      auto* gelu = call.args.size() > 5 ? std::get_if<bool>(&call.args[5]) : nullptr;
      value = gelu && *gelu ? add(Op::gelu, {value, std::string("tanh")}, type) : add(Op::relu, {value}, type);
    }
    g.outputs.push_back(value);
    const Options options;
    found.own = std::make_shared<loop::Program>(
        lower::lower_inlined(passes::optimize(g, options, targets_), options, targets_));
    auto* nest = found.own->items.size() == 1 ? std::get_if<Nest>(&found.own->items[0]) : nullptr;
    if (!nest) return false;
    found.product.own = found.own.get();
    found.product.own_nest = triton::over_matrix(*found.own, *nest, {p.batch, p.m, p.n});
    found.product.own_operands = {bias->buffer};
    return found.product.own_nest && stores_in_order(*found.product.own_nest);
  }

  bool stores_in_order(const triton::MatrixNest& nest) const {
    for (const loop::Access& a : loop::accesses(nest.nest))
      if (a.write && a.index != nest.position) return false;
    return true;
  }

  bool is_simple(const Nest& nest, Device device) const {
    auto accesses = loop::accesses(nest);
    for (const loop::Access& a : accesses) {
      const loop::Buffer& b = program_.buffers[a.buffer];
      if (a.atomic || b.device != device || b.kind == loop::BufferKind::Local) return false;
      for (const loop::Access& other : accesses)
        if (a.write && !other.write && other.buffer == a.buffer) return false;
    }
    return true;
  }

  bool touches(size_t item, BufferId b) const { return reads(item, b) || writes(item, b); }
  bool reads(size_t item, BufferId b) const {
    const auto& r = effects_[item].reads;
    return std::find(r.begin(), r.end(), b) != r.end();
  }
  bool writes(size_t item, BufferId b) const {
    const auto& w = effects_[item].writes;
    return std::find(w.begin(), w.end(), b) != w.end();
  }
  bool leaves(BufferId b) const {  // the program
    if (program_.buffers[b].kind != loop::BufferKind::Temp) return true;
    for (const loop::Output& o : program_.outputs)
      if (o.kind == loop::Output::Kind::View && o.view.buffer == b) return true;
    return std::any_of(program_.writebacks.begin(), program_.writebacks.end(),
                       [&](const loop::Writeback& w) { return w.from.buffer == b; });
  }

  // The nest that first uses the product.
  void take_reader(FoundProduct& found, size_t at, const View& result) {
    Product& p = found.product;
    size_t next = at + 1;
    while (next < program_.items.size() && !touches(next, p.result)) ++next;
    auto* nest = next < program_.items.size() ? std::get_if<Nest>(&program_.items[next]) : nullptr;
    if (!nest || taken_[next] || writes(next, p.result)) return;
    if (!is_simple(*nest, program_.buffers[p.result].device)) return;
    auto over = triton::over_matrix(program_, *nest, {p.batch, p.m, p.n});
    if (!over) return;
    Expr place = result.offset;
    for (size_t d = 0; d < 3; ++d)
      place = arena_.add(place, arena_.mul(over->nest.outer[d].var, arena_.constant(p.result_strides[d])));
    for (const loop::Access& a : loop::accesses(over->nest))
      if (a.buffer == p.result && a.index != place) return;
    p.after = std::move(over);
    found.items.push_back(next);
    p.keeps_result = leaves(p.result);
    for (size_t i = 0; i < program_.items.size(); ++i)
      if (i != at && i != next && touches(i, p.result)) p.keeps_result = true;
  }

  // The nest that makes all of a factor, for this product alone, from less memory than it takes itself.
  void take_maker(FoundProduct& found, size_t at, Factor& f) {
    if (leaves(f.buffer) || f.offset) return;
    size_t maker = program_.items.size();
    for (size_t i = 0; i < program_.items.size(); ++i) {
      if (i == at || !touches(i, f.buffer)) continue;
      if (maker != program_.items.size() || !writes(i, f.buffer)) return;
      maker = i;
    }
    auto* nest = maker < at ? std::get_if<Nest>(&program_.items[maker]) : nullptr;
    if (!nest || taken_[maker] || effects_[maker].writes.size() != 1 || nest->stages[0].ops.size() > kSmallWork ||
        !is_simple(*nest, program_.buffers[f.buffer].device))
      return;
    const Product& p = found.product;
    bool left = &f == &p.left;
    int64_t rows = left ? p.m : p.k, columns = left ? p.k : p.n;
    f.transposed = f.strides[2] != 1;
    if (f.transposed) std::swap(rows, columns);
    if (f.strides[f.transposed ? 1 : 2] != 1 || f.strides[f.transposed ? 2 : 1] != columns) return;
    auto made = triton::over_matrix(program_, *nest, {1, rows, columns});
    if (!made || !stores_in_order(*made)) return;
    // Elements that each point reads of its own; others are the same for a whole row or column.
    int64_t bytes = 0;
    for (const loop::Access& a : loop::accesses(made->nest))
      if (!a.write && std::all_of(made->nest.outer.begin() + 1, made->nest.outer.end(), [&](const loop::Axis& x) {
            return arena_.as_const(x.var) || arena_.contains(a.index, x.var);
          }))
        bytes += size_of(program_.buffers[a.buffer].dtype);
    if (bytes >= size_of(f.dtype)) return;
    f.made = std::move(made);
    found.items.push_back(maker);
  }

  void note_effects(FoundProduct& found) const {
    std::set<BufferId> reads, inside;
    for (const Factor* f : {&found.product.left, &found.product.right})
      if (f->made) inside.insert(f->buffer);
    inside.insert(found.product.result);
    for (size_t i : found.items)
      for (BufferId b : effects_[i].reads)
        if (!inside.contains(b)) reads.insert(b);
    found.reads.assign(reads.begin(), reads.end());
    if (found.product.keeps_result) found.writes.push_back(found.product.result);
    if (found.product.after)
      for (BufferId b : effects_[found.items.back()].writes) found.writes.push_back(b);
  }

  const loop::Program& program_;
  const Targets& targets_;
  sym::ExprArena& arena_;
  std::vector<loop::Effects> effects_;  // per item
  std::vector<bool> taken_;             // per item
};

}  // namespace

std::vector<FoundProduct> find_products(const loop::Program& program, const Targets& targets) {
  return Finder(program, targets).run();
}

std::vector<schedule::Use> uses_of(const std::vector<FoundProduct>& products) {
  std::vector<schedule::Use> out;
  for (const FoundProduct& p : products) {
    for (BufferId b : p.reads) out.push_back({b, p.items.back()});
    // The library's way is timed at the last item, too: it makes these once more.
    for (const Factor* f : {&p.product.left, &p.product.right})
      if (f->made) out.push_back({f->buffer, p.items.back()});
  }
  return out;
}

std::vector<bool> items_of(const std::vector<FoundProduct>& products, const loop::Program& program) {
  std::vector<bool> out(products.empty() ? 0 : program.items.size());
  for (const FoundProduct& p : products)
    for (size_t i : p.items) out[i] = true;
  return out;
}

std::vector<FoundProduct> safe(std::vector<FoundProduct> products, const loop::Program& program,
                               const schedule::MemoryPlan& memory) {
  using Place = schedule::Placement::Kind;
  auto own_memory = [&](BufferId b) {
    Place kind = memory.buffers[b].kind;
    return kind == Place::Arena || kind == Place::Output || kind == Place::Adopted;
  };
  std::erase_if(products, [&](const FoundProduct& p) {
    auto is_read = [&](BufferId b) { return std::find(p.reads.begin(), p.reads.end(), b) != p.reads.end(); };
    for (size_t i = p.items.front(); i <= p.items.back(); ++i)
      for (BufferId b : loop::effects(program.items[i]).writes)
        if (b.valid() && (is_read(b) || (memory.buffers[b].kind != Place::None && !own_memory(b)))) return true;
    return false;
  });
  return products;
}

}  // namespace braze::driver
