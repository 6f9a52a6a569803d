#include "passes/merge_products.h"

#include <memory>
#include <optional>

#include "passes/builder.h"
#include "passes/frozen.h"
#include "passes/term.h"

namespace braze::passes {
namespace {

// A value that is x W + c, perhaps times a number, or a sum of such: how it is made, to be written when it is known
// that it pays.
struct Form {
  enum class Kind : uint8_t { Product, Chain, Scaled, Sum } kind = Kind::Product;
  ValueId x;               // [m, k]
  int64_t k = 0, n = 0;    // W is [k, n]
  int64_t multiplied = 0;  // by the products as they are, for each row
  int products = 0;
  NodeId node;                                // Product: it; Chain: the second one
  std::shared_ptr<const Form> first, second;  // of a Chain, Scaled or Sum
  double factor = 1, second_factor = 1;       // of a Scaled or Sum
};
using FormPtr = std::shared_ptr<const Form>;

class Merger {
 public:
  explicit Merger(const Graph& g)
      : g_(g), frozen_(frozen_values(g)), uses_(use_counts(g)), forms_(g.values().size()), ends_(g.values().size()) {}

  Graph run() {
    bool any = false;
    for (const Node& n : g_.nodes()) {
      if (n.outputs.size() != 1 || !n.outputs[0].valid()) continue;
      if (FormPtr f = form_of(n)) forms_[n.outputs[0].index] = f;
    }
    // The longest forms: those that are part of no longer one.
    std::vector<bool> taken(g_.values().size(), false);
    for (size_t i = g_.nodes().size(); i-- > 0;) {
      const Node& n = g_.node(NodeId(i));
      if (n.outputs.size() != 1 || !n.outputs[0].valid()) continue;
      const ValueId v = n.outputs[0];
      const FormPtr& f = forms_[v.index];
      if (!f) continue;
      const bool pays = f->products > 1 && f->k * f->n < f->multiplied;
      if (!taken[v.index]) {
        if (!pays || is_reshape(n.op)) continue;  // what is viewed may be the end
        ends_[v.index] = f, any = true;
      }
      Graph::for_each_operand(n, [&](ValueId u) {
        if (u.valid() && uses_[u.index] == 1 && forms_[u.index]) taken[u.index] = true;
      });
    }
    if (!any) return g_;
    Rewriter r(g_);
    for (const Node& n : g_.nodes()) {
      const FormPtr f = n.outputs.size() == 1 && n.outputs[0].valid() ? ends_[n.outputs[0].index] : nullptr;
      if (!f || !rewrite(r, n, g_, [&](Builder& b) { write(r, b, *f); })) r.copy(n);
    }
    return r.finish();
  }

 private:
  std::optional<int64_t> size(ValueId v, size_t d) const { return g_.arena().as_const(g_.type(v).sizes.at(d)); }

  // The form of an operand that nothing else reads.
  FormPtr inner(const Arg& a) const {
    auto* v = std::get_if<ValueId>(&a);
    return v && v->valid() && uses_[v->index] == 1 ? forms_[v->index] : nullptr;
  }

  FormPtr form_of(const Node& n) const {
    const TensorType& t = g_.type(n.outputs[0]);
    if (t.dtype != DType::F32 && t.dtype != DType::F64) return nullptr;
    switch (n.op) {
      case Op::mm: return n.args.size() == 2 ? product(n, 0) : nullptr;
      case Op::addmm:
        return n.args.size() <= 5 && is_one_or_absent(g_, n, 3) && is_one_or_absent(g_, n, 4) && is_bias(n)
                   ? product(n, 1)
                   : nullptr;
      case Op::view:
      case Op::_unsafe_view:
      case Op::reshape: {  // of rows
        FormPtr f = inner(n.args[0]);
        return f && t.dim() > 0 && g_.arena().as_const(t.sizes.back()) == f->n ? f : nullptr;
      }
      case Op::mul_Tensor:
      case Op::mul_Scalar: {
        FormPtr f = inner(n.args[0]);
        auto by = known_number(g_, n.args[1]);
        if (!f || !by) return nullptr;
        auto out = std::make_shared<Form>(*f);
        out->kind = Form::Kind::Scaled, out->first = f, out->second = nullptr, out->factor = *by;
        return out;
      }
      case Op::add_Tensor: {
        FormPtr a = inner(n.args[0]), b = inner(n.args[1]);
        auto by = n.args.size() > 2 ? known_number(g_, n.args[2]) : std::optional(1.0);
        auto *u = std::get_if<ValueId>(&n.args[0]), *v = std::get_if<ValueId>(&n.args[1]);
        if (!a || !b || !by || a->x != b->x || a->n != b->n || g_.type(*u).sizes != g_.type(*v).sizes) return nullptr;
        auto out = std::make_shared<Form>(*a);
        out->kind = Form::Kind::Sum, out->first = a, out->second = b, out->second_factor = *by;
        out->multiplied = a->multiplied + b->multiplied, out->products = a->products + b->products;
        return out;
      }
      default: return nullptr;
    }
  }

  bool is_bias(const Node& n) const {
    auto* bias = std::get_if<ValueId>(&n.args[0]);
    const TensorType& t = g_.type(n.outputs[0]);
    return bias && frozen_[bias->index] && g_.type(*bias).dim() == 1 && g_.type(*bias).dtype == t.dtype &&
           g_.type(*bias).sizes[0] == t.sizes[1];
  }

  FormPtr product(const Node& n, size_t i) const {
    auto *x = std::get_if<ValueId>(&n.args[i]), *w = std::get_if<ValueId>(&n.args[i + 1]);
    if (!x || !w || !frozen_[w->index] || frozen_[x->index]) return nullptr;
    auto k = size(*w, 0), columns = size(*w, 1);
    if (!k || !columns) return nullptr;
    auto out = std::make_shared<Form>();
    out->node = g_.value(n.outputs[0]).node;
    FormPtr before = inner(*x);
    out->kind = before ? Form::Kind::Chain : Form::Kind::Product;
    out->first = before;
    out->x = before ? before->x : *x;
    out->k = before ? before->k : *k;
    out->n = *columns;
    out->multiplied = *k * *columns + (before ? before->multiplied : 0);
    out->products = 1 + (before ? before->products : 0);
    return out;
  }

  struct Written {
    ValueId w, c;  // c: invalid where nothing is added
  };

  Written made(Rewriter& r, Builder& b, const Form& f) const {
    switch (f.kind) {
      case Form::Kind::Product: {
        const Node& n = g_.node(f.node);
        const bool added = n.op == Op::addmm;
        return {r.map(std::get<ValueId>(n.args[1 + added])), added ? r.map(std::get<ValueId>(n.args[0])) : ValueId()};
      }
      case Form::Kind::Chain: {
        const Node& n = g_.node(f.node);
        const bool added = n.op == Op::addmm;
        Written first = made(r, b, *f.first);
        const ValueId w = r.map(std::get<ValueId>(n.args[1 + added]));
        Written out{b.call(Op::mm, {first.w, w}), added ? r.map(std::get<ValueId>(n.args[0])) : ValueId()};
        if (first.c.valid()) {
          ValueId row = b.view(b.call(Op::mm, {b.unsqueeze(first.c, 0), w}), {b.k(f.n)});
          out.c = out.c.valid() ? b.add(row, out.c) : row;
        }
        return out;
      }
      case Form::Kind::Scaled: {
        Written first = made(r, b, *f.first);
        return {b.mul(first.w, f.factor), first.c.valid() ? b.mul(first.c, f.factor) : first.c};
      }
      case Form::Kind::Sum: {
        Written first = made(r, b, *f.first), second = made(r, b, *f.second);
        auto scaled = [&](ValueId v) { return v.valid() && f.second_factor != 1 ? b.mul(v, f.second_factor) : v; };
        second = {scaled(second.w), scaled(second.c)};
        return {b.add(first.w, second.w), !first.c.valid()    ? second.c
                                          : !second.c.valid() ? first.c
                                                              : b.add(first.c, second.c)};
      }
    }
    throw NoRule{};
  }

  void write(Rewriter& r, Builder& b, const Form& f) const {
    Written now = made(r, b, f);
    const ValueId x = r.map(f.x);
    ValueId product = now.c.valid() ? b.call(Op::addmm, {now.c, x, now.w, b.k(1), b.k(1)}) : b.call(Op::mm, {x, now.w});
    b.set(0, b.view(product, b.result(0).sizes));
  }

  const Graph& g_;
  std::vector<bool> frozen_;
  std::vector<uint32_t> uses_;
  std::vector<FormPtr> forms_, ends_;  // per value; of those that are written anew
};

}  // namespace

Graph merge_products(const Graph& g) { return Merger(g).run(); }

}  // namespace braze::passes
