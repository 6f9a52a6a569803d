// Both branches of a choice that only the run makes (torch.cond of a tensor): each is evaluated, as a function without
// effects.
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "trace/global_state.h"

namespace braze::capture {
namespace {

void collect_tensors(Translator& tr, Variable* v, std::vector<PyObject*>& tensors) {
  v = tr.force(v);
  switch (v->kind) {
    case Kind::Constant: return;
    case Kind::Tensor: return tensors.push_back(v->as<TensorVariable>()->value(tr));
    case Kind::Tuple:
    case Kind::List:
      for (Variable* e : static_cast<SequenceVariable*>(v)->elements) collect_tensors(tr, e, tensors);
      return;
    case Kind::Dict:
      for (const auto& e : v->as<DictVariable>()->entries(tr)) collect_tensors(tr, e.value, tensors);
      return;
    default: tr.unsupported("a branch of torch.cond that returns " + v->describe());
  }
}

}  // namespace

Variable* Branches::branch(Variable* predicate, bool when, Variable* fn, const std::vector<Variable*>& operands) {
  Effects::PurePart pure(tr_.effects, tr_.ordinal(), "a branch of torch.cond");
  std::vector<PyObject*> before, results;
  for (const auto& v : tr_.all())
    if (v->is(Kind::Tensor) && v->as<TensorVariable>()->fake) before.push_back(v->as<TensorVariable>()->fake.get());
  uint64_t state = trace::global_state_key();
  auto start = tr_.tracer().begin_branch(before);
  Variable* result;
  try {
    result = tr_.call(fn, operands);
    collect_tensors(tr_, result, results);
  } catch (const PyRaise&) {
    tr_.unsupported("a branch of torch.cond that raises an exception");
  }
  if (trace::global_state_key() != state)
    tr_.unsupported("a branch of torch.cond that leaves a mode of PyTorch changed");
  if (tr_.tracer().has_unbacked())
    tr_.unsupported("a branch of torch.cond beside sizes or numbers that depend on data");
  std::string why = tr_.tracer().end_branch(start, before, results, predicate->as<TensorVariable>()->value(tr_), when);
  if (!why.empty()) tr_.unsupported("a branch of torch.cond that may not run where it is not taken: " + why);
  return result;
}

// What differs in kind is an error, which the polyfill raises.
bool Branches::selectable(Variable* a, Variable* b) {
  a = tr_.force(a), b = tr_.force(b);
  if (a->kind != b->kind) return true;
  auto all = [&](const std::vector<Variable*>& x, const std::vector<Variable*>& y) {
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!selectable(x[i], y[i])) return false;
    return true;
  };
  switch (a->kind) {
    case Kind::Tensor: {
      if (a->type() != library().tensor || b->type() != library().tensor) {
        auto plain = [&](Variable* v) { return v->type() == library().tensor || v->type() == library().parameter; };
        if (!plain(a) || !plain(b)) return false;
      }
      Ref x = Ref::steal(native::of_tensor(a->as<TensorVariable>()->value(tr_), "shape"));
      Ref y = Ref::steal(native::of_tensor(b->as<TensorVariable>()->value(tr_), "shape"));
      if (!x || !y) tr_.raise_current();
      int same = PyObject_RichCompareBool(x.get(), y.get(), Py_EQ);
      if (same < 0) tr_.raise_current();
      return same == 1;
    }
    case Kind::Constant: return a->type() != b->type() || tr_.equal(a, b);
    case Kind::Tuple:
    case Kind::List:
      return all(static_cast<SequenceVariable*>(a)->elements, static_cast<SequenceVariable*>(b)->elements);
    case Kind::Dict: {
      for (const auto& e : a->as<DictVariable>()->entries(tr_))
        if (Variable* other = b->as<DictVariable>()->get(tr_, e.key); other && !selectable(e.value, other))
          return false;
      return true;
    }
    default: return false;
  }
}

Variable* Branches::both(Variable* predicate, Variable* if_true, Variable* if_false,
                         const std::vector<Variable*>& operands) {
  if (tr_.view().torch_level) tr_.unsupported("torch.cond of a tensor in a graph for another backend");
  if (tr_.host.in_callback()) tr_.unsupported("torch.cond of a tensor in a function that PyTorch calls");
  uint64_t here = tr_.ordinal();
  tr_.mutate();
  Variable* a = branch(predicate, true, if_true, operands);
  Variable* b = branch(predicate, false, if_false, operands);
  if (!selectable(a, b)) tr_.unsupported("branches of torch.cond with results of other sizes or values");
  if (!first_choice_ || here < first_choice_) first_choice_ = here;
  return tr_.tuple({a, b});
}

void Branches::refuse(const char* why) {
  if (first_choice_)
    throw Restart{first_choice_, {Reason::UnsupportedFeature, std::string("torch.cond of a tensor, with ") + why}};
}

}  // namespace braze::capture
