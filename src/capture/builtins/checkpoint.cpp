// torch.utils.checkpoint: a checkpointed function is evaluated like any other; what it records is marked as a region,
// for autodiff/partition.h. A policy is asked about the operators of its region when that ends. See
// python/braze/polyfills/_checkpoint.py.
#include <array>
#include <string_view>
#include <utility>

#include "capture/builtins/builtins.h"
#include "capture/cpython/imported.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

bool requires_grad(Translator& tr, Variable* v) {
  v = tr.force(v);
  if (!v->is(Kind::Tensor)) return false;
  Ref r = Ref::steal(native::of_tensor(v->as<TensorVariable>()->value(tr), "requires_grad"));
  return r.get() == Py_True;
}

struct Region {
  Region(Translator& t, const std::vector<Variable*>& args, bool selective) : tr(t) {
    std::vector<PyObject*> held;
    for (Variable* v : args)
      if (v = tr.force(v); v->is(Kind::Tensor)) held.push_back(v->as<TensorVariable>()->value(tr));
    open = tr.tracer().begin_checkpoint(held, selective);
  }
  ~Region() { end(); }
  Region(const Region&) = delete;
  bool end() {
    if (open) tr.tracer().end_checkpoint();
    return std::exchange(open, false);
  }
  Translator& tr;
  bool open;
};

graph::Keep keep_of(Translator& tr, Variable* policy) {
  using graph::Keep;
  constexpr std::array of_member = {Keep::MustSave, Keep::PreferSave, Keep::MustRecompute, Keep::PreferRecompute};
  Ref number = tr.real.to_python(policy);
  size_t at = PyLong_AsSize_t(number.get());
  if (at < of_member.size()) return of_member[at];
  PyErr_Clear();
  return Keep::PreferRecompute;
}

void ask(Translator& tr, Variable* policy) {
  Ref calls = Ref::steal(tr.tracer().checkpointed_calls());
  if (!calls) tr.raise_current();
  std::vector<Variable*> said =
      tr.unpack(tr.call(tr.real.polyfill("policies_of"), Args{{policy, tr.host.from_host(std::move(calls))}, {}}));
  for (size_t i = 0; i < said.size(); ++i) tr.tracer().keep(i, keep_of(tr, tr.force(said[i])));
}

// The policy that a context_fn brings; nullptr: none.
Variable* policy_of(Translator& tr, Variable* context_fn) {
  static PyObject *noop = imported("torch.utils.checkpoint", "noop_context_fn", true),
                  *cls = imported("braze.polyfills", "SelectiveContext", true);
  if (tr.force(context_fn)->as_constant() == noop) return nullptr;
  struct Asking {
    explicit Asking(bool& f) : flag(f), before(std::exchange(f, true)) {}
    ~Asking() { flag = before; }
    bool &flag, before;
  };
  Variable* contexts = [&] {
    Asking asking(tr.in_context_fn);
    return tr.force(tr.call(context_fn, Args{}));
  }();
  // Without gradients nothing runs under them.
  static PyObject* with_grad = imported("torch", "is_grad_enabled", true);
  if (!tr.truth(tr.real.query_torch(with_grad, Args{}))) return nullptr;
  if (contexts->is(Kind::Tuple)) {
    std::vector<Variable*> both = tr.unpack(contexts);
    if (both.size() == 2 && reinterpret_cast<PyObject*>(tr.force(both[0])->type()) == cls)
      return tr.getattr(both[0], "policy");
  }
  tr.unsupported("a context_fn of a checkpoint that gives others than create_selective_checkpoint_contexts does");
}

// What checkpoint() itself takes of its arguments; what it refuses it is to refuse.
struct Arguments {
  Variable* context_fn = nullptr;
  bool reentrant = true;
  bool take(Translator& tr, Args& call) {
    Variable *form = call.take_kw("use_reentrant"), *check = call.take_kw("determinism_check"),
             *debug = call.take_kw("debug");
    reentrant = !form || is_none(tr.force(form)) || tr.truth(form);
    context_fn = call.take_kw("context_fn");
    for (const char* name : {"preserve_rng_state", "early_stop"}) call.take_kw(name);
    if (check && !reentrant) {
      PyObject* word = tr.force(check)->as_constant();
      if (!word || !PyUnicode_Check(word) || !(named(word, "default") || named(word, "none"))) return false;
    }
    if (debug && tr.truth(debug) && (reentrant || context_fn)) return false;
    return !reentrant || (!context_fn && call.kw.empty());
  }
};

Variable* without_grad(Translator& tr, Variable* fn, const Args& call) {
  Args all{{fn}, call.kw};
  all.pos.insert(all.pos.end(), call.pos.begin(), call.pos.end());
  return tr.call(tr.real.polyfill("call_without_grad"), all);
}

Variable* do_checkpoint(Translator& tr, Args& a) {
  if (a.size() < 1) return nullptr;
  Args call = a;
  Arguments given;
  if (!given.take(tr, call)) return nullptr;
  Variable* fn = call.pos[0];
  call.pos.erase(call.pos.begin());
  if (given.reentrant) {
    // The older form is a Function of its arguments: without one that requires grad nothing in it does.
    bool any = false;
    for (Variable* v : call.pos) any |= requires_grad(tr, v);
    if (!any) return without_grad(tr, fn, call);
  }
  Variable* policy = given.context_fn ? policy_of(tr, given.context_fn) : nullptr;
  Region region(tr, call.pos, policy != nullptr);
  Variable* result = tr.call(fn, std::move(call));
  if (region.end() && policy) ask(tr, policy);
  return result;
}

Variable* selective_contexts(Translator& tr, Args& a) {
  return tr.in_context_fn ? tr.call(tr.real.polyfill("selective_contexts"), a) : nullptr;
}

}  // namespace

void register_checkpoint_builtins() {
  register_builtin("torch.utils.checkpoint", "checkpoint", do_checkpoint);
  register_builtin("torch.utils.checkpoint", "create_selective_checkpoint_contexts", selective_contexts);
}

}  // namespace braze::capture
