#include "capture/guards/verified_program.h"

#include <cstdio>
#include <functional>

#include "base/check.h"
#include "base/strict.h"
#include "capture/cpython/dict.h"
#include "capture/guards/forwarding_program.h"
#include "capture/guards/guard_eval.h"
#include "launch/storage_range.h"

namespace braze::capture {
namespace {

// What is found in the dicts of a class and its bases, without CPython's cache of such lookups.
Ref lookup(PyObject* type, PyObject* name) {
  PyObject* mro = PyType_Check(type) ? reinterpret_cast<PyTypeObject*>(type)->tp_mro : nullptr;
  for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); ++i) {
    PyObject* v =
        PyDict_GetItemWithError(cpython::type_dict(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i))), name);
    if (v) return Ref::borrow(v);
    PyErr_Clear();
  }
  return Ref();
}

class VerifiedProgram final : public ForwardingProgram {
 public:
  VerifiedProgram(std::unique_ptr<GuardProgram> program, std::shared_ptr<const Sources> sources, const GuardSet& guards,
                  std::vector<SourceId> wanted, uint64_t global_state, size_t num_locals_plus, SizeGuards sizes)
      : ForwardingProgram(std::move(program)),
        sources_(std::move(sources)),
        guards_(guards.items()),
        wanted_(std::move(wanted)),
        global_state_(global_state),
        num_locals_plus_(num_locals_plus),
        sizes_(std::move(sizes)) {
    // What the program does not keep alive is not kept by this either; it hears of its end.
    auto loosen = [&](LooseRef& r) {
      if (r && mortals().count(r.get())) r.loosen();
    };
    for (Guard& g : guards_) {
      loosen(g.object);
      loosen(g.type);
      for (LooseRef& m : g.members) loosen(m);
    }
  }

  bool check(PyObject* const* slots, GuardValues& out) override {
    std::string wrong;
    // Code of the user's that compares keys may change things after the first opinion: not twice.
    for (int i = 0; i < 2; ++i) {
      if (!program_->check(slots, out)) return false;
      wrong = difference(slots, out);
      if (wrong.empty() && !is_over()) return true;
    }
    wrong = "guards were found to hold, but evaluated afresh this one does not: " + wrong;
    if (strict()) throw InternalError(wrong);
    std::fprintf(stderr, "braze: %s\n", wrong.c_str());
    failure_of(out).kind = GuardFailure::Unsettled;
    return false;
  }

  int traverse(visitproc visit, void* arg) const override {
    for (const Guard& g : guards_) {
      Py_VISIT(g.object.owned());
      Py_VISIT(g.type.owned());
      for (const LooseRef& m : g.members) Py_VISIT(m.owned());
    }
    return ForwardingProgram::traverse(visit, arg);
  }

 private:
  Ref value(SourceId id, PyObject* const* slots) const {
    if (!id.valid()) return Ref();
    const Source& s = (*sources_)[id];
    Ref base = value(s.base, slots);
    if (s.kind == SourceKind::TypeAttr) return base ? lookup(base.get(), s.key.get()) : Ref();
    return Ref::borrow(step(s, base.get(), slots, num_locals_plus_));
  }

  // Empty: all as the check said.
  std::string difference(PyObject* const* slots, const GuardValues& found) const {
    if (trace::global_state_key() != global_state_) return "global state of PyTorch";
    for (const Guard& g : guards_)
      if (std::string d = difference(g, slots); !d.empty()) return d;
    for (size_t i = 0; i < wanted_.size(); ++i)
      if (Ref v = value(wanted_[i], slots); v.get() != found.values()[i])
        return sources_->print(wanted_[i]) + " is another object than the one that was fetched";
    return sizes_.empty() ? std::string() : difference_of_sizes(slots, found);
  }

  std::string difference(const Guard& g, PyObject* const* slots) const {
    auto in_group = [&](auto&& bad) {
      std::vector<Ref> values;
      for (SourceId s : g.group) values.push_back(value(s, slots));
      for (size_t i = 0; i < values.size(); ++i)
        for (size_t k = 0; k < i; ++k)
          if (bad(values[k].get(), values[i].get(), k))
            return print(g, *sources_) + ": " + sources_->print(g.group[k]) + " and " + sources_->print(g.group[i]);
      return std::string();
    };
    if (g.kind == GuardKind::FloatHolds) {
      std::vector<Ref> held;
      std::vector<PyObject*> floats;
      for (SourceId s : g.group) floats.push_back(held.emplace_back(value(s, slots)).get());
      return g.floats->evaluate(floats.data()) == g.floats->expected ? std::string() : print(g, *sources_);
    }
    if (g.kind == GuardKind::AllDistinct) return in_group([](PyObject* a, PyObject* b, size_t) { return a == b; });
    if (g.kind == GuardKind::Apart)
      return in_group([&](PyObject* a, PyObject* b, size_t first) {
        return first < static_cast<size_t>(g.number) &&
               launch::overlap(launch::storage_range(a), launch::storage_range(b));
      });
    Ref v = value(g.source, slots), other = value(g.other, slots);
    bool held = g.kind == GuardKind::Tensor ? v && launch::describe_mismatch(*g.tensor, v.get()).empty()
                                            : holds(g, v.get(), other.get());
    return held ? std::string() : describe_failure(g, *sources_, v.get());
  }

  std::string difference_of_sizes(PyObject* const* slots, const GuardValues& found) const {
    std::vector<int64_t> symbols(sizes_.symbols.size());
    std::vector<char> known(symbols.size());
    std::vector<std::string> text = print(sizes_, *sources_);
    for (size_t i = 0; i < sizes_.places.size(); ++i) {
      const SizeGuards::Place& p = sizes_.places[i];
      Ref v = value(p.source, slots);
      if (!v || (p.integer && !PyLong_CheckExact(v.get()))) return text[i] + ": nothing that has sizes";
      int64_t now = p.integer ? PyLong_AsLongLong(v.get()) : launch::read_size(v.get(), p.dim);
      if (now == -1 && PyErr_Occurred()) return PyErr_Clear(), text[i] + ": too large";
      const sym::Range& r = sizes_.symbols[p.symbol].range;
      if (std::exchange(known[p.symbol], 1) ? symbols[p.symbol] != now : now < r.lo || now > r.hi)
        return text[i] + ": now " + std::to_string(now);
      symbols[p.symbol] = now;
    }
    auto of = [&](sym::Expr symbol) {
      for (size_t i = 0; i < symbols.size(); ++i)
        if (sizes_.symbols[i].symbol == symbol) return symbols[i];
      throw InternalError("a size that no place gives");
    };
    for (size_t i = 0; i < sizes_.conditions.size(); ++i)
      if (!sizes_.arena->evaluate(sizes_.conditions[i].condition, of)) return text[sizes_.places.size() + i];
    for (size_t i = 0; i < sizes_.values.size(); ++i)
      if (int64_t v = sizes_.arena->evaluate(sizes_.values[i], of); v != found.sizes()[i])
        return sizes_.arena->print(sizes_.values[i]) + " is " + std::to_string(v) + ", computed as " +
               std::to_string(found.sizes()[i]);
    return {};
  }

  std::shared_ptr<const Sources> sources_;
  std::vector<Guard> guards_;
  std::vector<SourceId> wanted_;
  uint64_t global_state_;
  size_t num_locals_plus_;
  SizeGuards sizes_;
};

}  // namespace

std::unique_ptr<GuardProgram> verified(std::unique_ptr<GuardProgram> program, std::shared_ptr<const Sources> sources,
                                       const GuardSet& guards, std::vector<SourceId> wanted, uint64_t global_state,
                                       size_t num_locals_plus, SizeGuards sizes) {
  return std::make_unique<VerifiedProgram>(std::move(program), std::move(sources), guards, std::move(wanted),
                                           global_state, num_locals_plus, std::move(sizes));
}

}  // namespace braze::capture
