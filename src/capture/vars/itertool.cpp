#include "capture/vars/itertool.h"

#include <opcode.h>

#include <utility>

#include "capture/cpython/generator.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

using cpython::Itertool;
using cpython::ItertoolField;

// One call of next(). Exhausted: nullptr.
class Turn {
 public:
  Turn(Translator& tr, ItertoolIterator& it) : tr_(tr), it_(it), f_(it.fields) {}

  Variable* run() {
    switch (it_.tool) {
      case Itertool::Accumulate: return accumulate();
      case Itertool::Chain: return chain();
      case Itertool::Compress: return compress();
      case Itertool::Count: return count();
      case Itertool::Cycle: return cycle();
      case Itertool::DropWhile: return drop_while();
      case Itertool::FilterFalse: return filter_false();
      case Itertool::Islice: return islice();
      case Itertool::Pairwise: return pairwise();
      case Itertool::Repeat: return repeat();
      case Itertool::StarMap: return star_map();
      case Itertool::TakeWhile: return take_while();
      case Itertool::ZipLongest: return zip_longest();
      case Itertool::None: break;
    }
    return nullptr;
  }

 private:
  int64_t number(size_t i) const { return PyLong_AsLongLong(f_[i]->as_constant()); }
  void set(size_t i, int64_t n) { f_[i] = tr_.integer(n, Ground::pure(&it_)); }
  // One that was let go of meanwhile, where an iterator within asked this one, has nothing more.
  Variable* next(size_t i) { return f_[i] ? tr_.next(f_[i]) : nullptr; }
  // Likewise; with its end, or its exception, the iterator within is let go of.
  Variable* next_or_end(size_t i) {
    Variable* v = nullptr;
    try {
      v = next(i);
    } catch (const PyRaise&) {
      f_[i] = nullptr;
      throw;
    }
    if (!v) f_[i] = nullptr;
    return v;
  }
  bool holds(Variable* function, Variable* v) {
    return tr_.truth(is_none(tr_.force(function)) ? v : tr_.call(function, {v}));
  }
  // Lets go of the iterator within, which may have more to give.
  void drop(size_t i) {
    refuse_dropped(tr_, f_[i]);
    f_[i] = nullptr;
  }

  Variable* accumulate() {
    enum { kTotal, kIt, kFunction, kInitial };
    if (Variable* initial = f_[kInitial]; !is_none(tr_.force(initial))) {
      f_[kInitial] = tr_.none();
      return f_[kTotal] = initial;
    }
    Variable* v = next(kIt);
    if (!v) return nullptr;
    if (!f_[kTotal]) return f_[kTotal] = v;
    v = f_[kFunction] ? tr_.call(f_[kFunction], {f_[kTotal], v}) : tr_.binary_op(NB_ADD, f_[kTotal], v);
    return f_[kTotal] = v;
  }

  Variable* chain() {
    enum { kSource, kActive };
    while (f_[kSource]) {
      if (!f_[kActive]) {
        Variable* iterable = next_or_end(kSource);
        if (!iterable) break;
        try {
          f_[kActive] = tr_.iter(iterable);
        } catch (const PyRaise&) {
          drop(kSource);
          throw;
        }
      }
      if (Variable* v = next(kActive)) return v;
      f_[kActive] = nullptr;
    }
    return nullptr;
  }

  Variable* compress() {
    for (;;) {
      Variable* v = next(0);
      Variable* selected = v ? next(1) : nullptr;
      if (!selected) return nullptr;
      if (tr_.truth(selected)) return v;
    }
  }

  Variable* count() {
    Variable* n = f_[0];
    f_[0] = tr_.binary_op(NB_ADD, n, f_[1]);
    return n;
  }

  Variable* cycle() {
    enum { kIt, kSaved, kIndex, kFirstPass };
    auto* saved = tr_.force(f_[kSaved])->as<ListVariable>();
    if (f_[kIt]) {
      if (Variable* v = next(kIt)) {
        if (!number(kFirstPass)) tr_.call_method(saved, "append", {v});
        return v;
      }
      f_[kIt] = nullptr;
    }
    auto size = static_cast<int64_t>(saved->elements.size()), at = number(kIndex);
    if (!size) return nullptr;
    set(kIndex, at + 1 < size ? at + 1 : 0);
    return saved->elements[static_cast<size_t>(at)];
  }

  Variable* drop_while() {
    enum { kFunction, kIt, kStart };
    while (Variable* v = next(kIt)) {
      if (number(kStart)) return v;
      if (tr_.truth(tr_.call(f_[kFunction], {v}))) continue;
      set(kStart, 1);
      return v;
    }
    return nullptr;
  }

  Variable* filter_false() {
    while (Variable* v = next(1))
      if (!holds(f_[0], v)) return v;
    return nullptr;
  }

  Variable* islice() {
    enum { kIt, kNext, kStop, kStep, kCount };
    int64_t wanted = number(kNext), stop = number(kStop), count = number(kCount);
    if (!f_[kIt]) return nullptr;
    for (; count < wanted; set(kCount, ++count))
      if (!next_or_end(kIt)) return nullptr;
    if (stop != -1 && count >= stop) return drop(kIt), nullptr;
    Variable* v = next_or_end(kIt);
    if (!v) return nullptr;
    set(kCount, count + 1);
    bool over = __builtin_add_overflow(wanted, number(kStep), &wanted);
    set(kNext, over || (stop != -1 && wanted > stop) ? stop : wanted);
    return v;
  }

  Variable* pairwise() {
    enum { kIt, kOld };
    if (!f_[kIt]) return nullptr;
    // The iterator within may ask this one meanwhile, and end it.
    if (!f_[kOld]) f_[kOld] = next_or_end(kIt);
    Variable *old = f_[kOld], *v = nullptr;
    try {
      if (old && f_[kIt]) v = next_or_end(kIt);
    } catch (const PyRaise&) {
      f_[kOld] = nullptr;
      throw;
    }
    f_[kOld] = v;
    return v ? tr_.tuple({old, v}) : nullptr;
  }

  Variable* repeat() {
    int64_t left = number(1);
    if (left > 0) set(1, left - 1);
    return left ? f_[0] : nullptr;
  }

  Variable* star_map() {
    Variable* args = next(1);
    return args ? tr_.call(f_[0], tr_.unpack(args)) : nullptr;
  }

  Variable* take_while() {
    enum { kFunction, kIt, kStop };
    Variable* v = number(kStop) ? nullptr : next(kIt);
    if (!v || tr_.truth(tr_.call(f_[kFunction], {v}))) return v;
    set(kStop, 1);
    return nullptr;
  }

  Variable* zip_longest() {
    enum { kActive, kFill, kFirst };
    if (f_.size() == kFirst || !number(kActive)) return nullptr;
    std::vector<Variable*> row;
    for (size_t i = kFirst; i < f_.size(); ++i) {
      Variable* v = nullptr;
      if (f_[i]) try {
          v = next(i);
        } catch (const PyRaise&) {
          set(kActive, 0);
          throw;
        }
      if (f_[i] && !v) {
        set(kActive, number(kActive) - 1);
        if (!number(kActive)) return nullptr;
        f_[i] = nullptr;
      }
      row.push_back(v ? v : f_[kFill]);
    }
    return tr_.tuple(row);
  }

  Translator& tr_;
  ItertoolIterator& it_;
  std::vector<Variable*>& f_;
};

std::vector<Reg> regs_of(Codegen& cg, const std::vector<Variable*>& fields) {
  Reg nothing = cg.constant(cpython::empty_slot());
  std::vector<Reg> out;
  for (Variable* v : fields) out.push_back(v ? cg.reg(v) : nothing);
  return out;
}

Reg emit_call(Codegen& cg, PyObject* function, Reg first, const std::vector<Variable*>& fields) {
  std::vector<Reg> args = regs_of(cg, fields);
  args.insert(args.begin(), {cg.constant(function), first});
  return cg.recipe.make(StepKind::Call, args);
}

}  // namespace

Variable* ItertoolIterator::next(Translator& tr) {
  advance(tr);
  return Turn(tr, *this).run();
}

Reg ItertoolIterator::build(Codegen& cg) {
  return emit_call(cg, cpython::itertool_made(), cg.constant(reinterpret_cast<PyObject*>(type())), fields);
}

void ItertoolIterator::emit_advance(Codegen& cg, Reg self) { emit_call(cg, cpython::itertool_set(), self, fields); }

Variable* make_itertool(Translator& tr, Args& a) {
  Itertool tool = Itertool::None;
  for (int i = 0; i < static_cast<int>(Itertool::None); ++i)
    if (PyUnicode_CompareWithASCIIString(a[0]->as_constant(), cpython::itertool_row(static_cast<Itertool>(i)).name) ==
        0)
      tool = static_cast<Itertool>(i);
  BRAZE_CHECK(tool != Itertool::None, "an iterator that itertools does not have");
  std::vector<Variable*> fields;
  for (size_t given = 1, i = 0; given < a.size() || i < cpython::itertool_row(tool).fields.size(); ++i) {
    ItertoolField kind = cpython::itertool_field(tool, i);
    if (kind == ItertoolField::Objects && given == a.size()) break;
    Variable* v = kind == ItertoolField::Empty ? nullptr : a[given++];
    if (kind == ItertoolField::Number) v = tr.real.specialised(tr.force(v));
    if (kind == ItertoolField::Optional && is_none(tr.force(v))) v = nullptr;
    fields.push_back(v);
  }
  return tr.make<ItertoolIterator>(tool, std::move(fields));
}

}  // namespace braze::capture
