#include <cstdio>

#include "plan/plan.h"
#include "symbolic/given_symbol.h"

namespace braze::plan {

std::string_view name(Where where) {
  switch (where) {
    case Where::Input: return "input";
    case Where::Arena: return "arena";
    case Where::Output: return "output";
    case Where::Adopted: return "adopted";
  }
  return "?";
}

namespace {

class Writer {
 public:
  explicit Writer(const Plan& plan) : plan_(plan), arena_(*plan.arena) {}

  std::string run() {
    out_ += "plan: " + std::to_string(plan_.inputs) + " inputs, " + std::to_string(plan_.outputs.size()) +
            " outputs, " + std::to_string(plan_.kernels.size()) + " kernels, arena " + text(plan_.arena_bytes) +
            " bytes\n";
    for (auto& [symbol, origin] : plan_.size_symbols) {
      if (origin.first == sym::kGivenSymbol) {
        out_ += "  symbol " + text(symbol) + " is given\n";
        continue;
      }
      bool size = origin.second >= 0;
      out_ += "  symbol " + text(symbol) + " = " + (size ? "size" : "stride") + " of input " +
              std::to_string(origin.first) + " in dimension " + std::to_string(size ? origin.second : ~origin.second) +
              "\n";
    }
    for (size_t b = 0; b < plan_.buffers.size(); ++b) buffer(b);
    for (const Step& s : plan_.steps) {
      out_ += "  ";
      std::visit([&](auto& step) { write(step); }, s);
      out_ += "\n";
    }
    for (const Tuned& t : plan_.tuned) write(t);
    for (auto& w : plan_.writebacks)
      out_ += "  writeback input " + std::to_string(w.input) + (w.through ? " is " : " <- ") + view(w.from) + "\n";
    for (auto& o : plan_.outputs) {
      out_ += "  return ";
      if (o.kind == loop::Output::Kind::None) out_ += "none";
      if (o.kind == loop::Output::Kind::Input) out_ += "input " + std::to_string(o.input);
      if (o.kind == loop::Output::Kind::View) out_ += view(o.view);
      out_ += "\n";
    }
    return std::move(out_);
  }

 private:
  std::string text(Expr e) const { return arena_.print(e); }
  std::string list(const std::vector<Expr>& es) const {
    std::string s = "[";
    for (size_t i = 0; i < es.size(); ++i) s += (i ? ", " : "") + text(es[i]);
    return s + "]";
  }
  std::string buffer_name(uint32_t b) const {
    if (b >= plan_.buffers.size()) return "none";
    const std::string& n = plan_.buffers[b].name;
    return n.empty() ? "b" + std::to_string(b) : n;
  }
  std::string view(const loop::View& v) const {
    std::string s = buffer_name(v.buffer.index);
    if (!v.buffer.valid()) return s;
    s += ":" + std::string(braze::name(v.dtype)) + list(v.sizes) + list(v.strides);
    if (!arena_.is_const(v.offset, 0)) s += "@" + text(v.offset);
    return s;
  }

  void buffer(size_t i) {
    const Buffer& b = plan_.buffers[i];
    out_ += "  buffer " + buffer_name(i) + ": " + std::string(braze::name(b.dtype)) + list(b.sizes) + list(b.strides) +
            " " + std::string(name(b.where));
    if (b.where == Where::Input) out_ += " " + std::to_string(b.index);
    if (b.where == Where::Arena) out_ += " at " + text(b.offset);
    if (b.where == Where::Arena || b.where == Where::Output) out_ += ", " + text(b.bytes) + " bytes";
    out_ += "\n";
  }

  void write(const Tuned& t) {
    out_ += "  tuned: steps";
    for (uint32_t s : t.steps) out_ += " " + std::to_string(s);
    out_ += " or";
    for (const TemplateKernel& k : t.kernels) {
      out_ += (&k == &t.kernels[0] ? " " : ", ") + k.label + "(";
      for (size_t i = 0; i < k.buffers.size(); ++i) out_ += (i ? ", " : "") + buffer_name(k.buffers[i]);
      out_ += ")";
    }
    out_ += "\n";
  }

  void write(const Launch& l) {
    const std::string symbol = l.kernel < plan_.kernels.size() ? plan_.kernels[l.kernel].symbol : "none";
    out_ += "launch " + symbol + "(";
    for (size_t i = 0; i < l.buffers.size(); ++i) out_ += (i ? ", " : "") + buffer_name(l.buffers[i]);
    out_ += ")";
    if (!l.sizes.empty()) out_ += " sizes " + list(l.sizes);
    if (l.commits) out_ += " unless a fault was found";
    if (!l.name.empty() && l.name != symbol) out_ += "  ; " + l.name;
  }

  void write(const Extern& e) {
    out_ += "call ";
    for (size_t i = 0; i < e.call.outputs.size(); ++i) out_ += (i ? ", " : "") + view(e.call.outputs[i]);
    out_ += std::string(e.call.preallocated ? " <- " : " := ") + e.call.name + "(";
    for (size_t i = 0; i < e.call.args.size(); ++i) {
      if (i) out_ += ", ";
      std::visit([&](auto& a) { argument(e, a); }, e.call.args[i]);
    }
    out_ += ")";
  }
  void write(const Allocate& a) { out_ += "allocate " + buffer_name(a.buffer); }
  void write(const Release& r) { out_ += "release " + buffer_name(r.buffer); }

  void argument(const Extern&, graph::NoneArg) { out_ += "none"; }
  void argument(const Extern& e, loop::ViewRef v) {
    out_ += v.index < e.call.views.size() ? view(e.call.views[v.index]) : "none";
  }
  void argument(const Extern& e, const std::vector<loop::ViewRef>& vs) {
    out_ += "[";
    for (size_t i = 0; i < vs.size(); ++i) {
      if (i) out_ += ", ";
      argument(e, vs[i]);
    }
    out_ += "]";
  }
  void argument(const Extern&, bool b) { out_ += b ? "true" : "false"; }
  void argument(const Extern&, Expr e) { out_ += text(e); }
  void argument(const Extern&, double d) { out_ += number(d); }
  void argument(const Extern&, const std::string& s) { out_ += "\"" + s + "\""; }
  void argument(const Extern&, DType d) { out_ += braze::name(d); }
  void argument(const Extern&, Device d) {
    out_ += d.type == DeviceType::CPU    ? "cpu"
            : d.type == DeviceType::CUDA ? "cuda"
            : d.type == DeviceType::Meta ? "meta"
                                         : "device";
    if (d.index >= 0) out_ += ":" + std::to_string(d.index);
  }
  void argument(const Extern&, const graph::MemoryFormatArg& m) {
    out_ += "memory_format(" + std::to_string(m.value) + ")";
  }
  void argument(const Extern&, const graph::LayoutArg& l) { out_ += "layout(" + std::to_string(l.value) + ")"; }
  void argument(const Extern&, const graph::IntList& l) { out_ += list(l.v); }
  void argument(const Extern&, const graph::DoubleList& l) {
    out_ += "[";
    for (size_t i = 0; i < l.v.size(); ++i) out_ += (i ? ", " : "") + number(l.v[i]);
    out_ += "]";
  }
  void argument(const Extern&, const graph::BoolList& l) {
    out_ += "[";
    for (size_t i = 0; i < l.v.size(); ++i) out_ += std::string(i ? ", " : "") + (l.v[i] ? "true" : "false");
    out_ += "]";
  }
  void argument(const Extern&, const graph::OpaqueArg& o) { out_ += "opaque(" + std::to_string(o.index) + ")"; }

  static std::string number(double d) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", d);
    return text;
  }

  const Plan& plan_;
  const sym::ExprArena& arena_;
  std::string out_;
};

}  // namespace

std::string Plan::describe() const { return Writer(*this).run(); }

}  // namespace braze::plan
