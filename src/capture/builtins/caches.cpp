// What Python keeps between calls: functools.lru_cache.
#include <algorithm>

#include "capture/builtins/builtins.h"
#include "capture/cpython/lru_cache.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "trace/global_state.h"

namespace braze::capture {
namespace {

// The object that an argument is in every call of the entry; empty: it may be another, or can't be told.
Ref fixed_object(Translator& tr, Variable* v) {
  v = tr.force(v);
  if (PyObject* o = v->as_constant()) return Ref::borrow(o);
  if (v->is(Kind::Sym) || (v->is(Kind::Tuple) && v->type() == &PyTuple_Type && tr.real.is_python_constant(v)))
    return tr.real.to_python(v);
  if (v->is(Kind::Function) && v->as<FunctionVariable>()->real) {
    tr.guard_identity(v->source, v->as<FunctionVariable>()->real.get());
    return v->as<FunctionVariable>()->real;
  }
  if ((v->is(Kind::Object) || v->is(Kind::Module)) && v->as<ObjectVariable>()->real && v->source.valid()) {
    // Told apart by identity, by its class as well.
    PyTypeObject* t = v->type();
    if (t->tp_hash != PyBaseObject_Type.tp_hash || t->tp_richcompare != PyBaseObject_Type.tp_richcompare) return Ref();
    tr.guard_identity(v->source, v->as<ObjectVariable>()->real.get());
    return v->as<ObjectVariable>()->real;
  }
  return Ref();
}

}  // namespace

// Evaluates what a cache calls, to see what a real call of it would do: whether it returns and leaves nothing behind.
// What it read stays guarded. A call that raises is left to the interpreter: it is not cached, so that it is made each
// time, effects and all.
bool RealCalls::returns_without_effects(Variable* function, const Args& args) {
  Segment& segment = tr_.segment();
  const uint64_t effects = tr_.effects.seen();
  const size_t calls = segment.num_calls, draws = segment.draws.size(), generators = tr_.generators().size();
  const uint64_t state = trace::global_state_key();
  bool returned = true;
  try {
    Translator::Trial trial(tr_);
    struct Depth {
      int& n;
      explicit Depth(int& n) : n(n) { ++n; }
      ~Depth() { --n; }
    } depth(trials_);
    tr_.call(function, args);
  } catch (const PyRaise&) {
    if (trials_) throw;  // inside of another cached function, which may handle it
    tr_.unsupported("a call of a cached function that raises");
  } catch (const Restart&) {
    returned = false;
  } catch (const Unsupported&) {
    returned = false;
  }
  if (trace::global_state_key() != state) tr_.unsupported("a cached function that changes PyTorch's state");
  // Tensors and random numbers of the trial would be made in every run.
  bool computed = segment.num_calls != calls || segment.draws.size() != draws || tr_.generators().size() != generators;
  return returned && !computed && tr_.effects.seen() == effects && tr_.attributes.writes().empty();
}

// A call that finds nothing in the cache. It is made now, for real, where nothing that was captured before it is still
// to be done. Its effects come when eager's would: with the capture, once, if it returns, and with the run if it
// raises.
void RealCalls::make_cached_call(Variable* cache, PyObject* pos, PyObject* kw, const Args& args, uint64_t number) {
  PyObject* object = cache->as_constant();
  bool pending = tr_.effects.pending() || !tr_.attributes.writes().empty() || tr_.torch_functions.has_modes() ||
                 tr_.host.in_callback();
  if (pending) tr_.unsupported("the first call of a cached function after effects");
  // What it drives out may be what the entry counts on.
  if (cpython::lru_full(object) &&
      std::any_of(cached_calls_.begin(), cached_calls_.end(), [&](const CachedCall& c) { return c.cache == object; }))
    tr_.unsupported("a call of a cached function whose cache is full");
  if (trials_ || !tr_.makes_call(number)) {
    Ref function = Ref::steal(cpython::lru_function(object));
    if (!function) tr_.raise_current();
    if (!returns_without_effects(tr_.global_object(tr_.keep(function), Ground::pure(cache, args)), args)) {
      if (trials_) tr_.unsupported("a cached function that has effects");
      throw MakeCall{number};
    }
  }
  tr_.tracer().leave();
  Ref made = Ref::steal(PyObject_Call(object, pos, kw));
  tr_.tracer().enter();
  if (!made) PyErr_Clear(), tr_.unsupported("a call of a cached function that raises");
  cpython::lru_uncount(object);  // the entry makes the call again, and finds the result
}

// The cache decides as in plain Python whether the function runs: what it holds now is the result, and the entry is
// good as long as it holds that.
Variable* RealCalls::cached_call(Variable* cache, const Args& args) {
  PyObject* object = cache->as_constant();
  if (!cpython::knows_lru_cache() || !cpython::lru_keeps(object) || tr_.effects.in_pure_part()) return nullptr;
  Ref pos = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(args.size()))), kw;
  for (size_t i = 0; i < args.size(); ++i) {
    Ref o = fixed_object(tr_, args[i]);
    if (!o) return nullptr;
    PyTuple_SET_ITEM(pos.get(), static_cast<Py_ssize_t>(i), o.release());
  }
  if (!args.kw.empty()) kw = Ref::steal(PyDict_New());
  for (auto& [name, v] : args.kw) {
    Ref o = fixed_object(tr_, v);
    if (!o) return nullptr;
    PyDict_SetItem(kw.get(), name, o.get());
  }
  Ref key = Ref::steal(cpython::lru_key(object, pos.get(), kw.get()));
  if (!key) return PyErr_Clear(), nullptr;
  uint64_t number = trials_ ? 0 : ++num_cached_calls_;
  if (!cpython::lru_peek(object, key.get())) make_cached_call(cache, pos.get(), kw.get(), args, number);
  PyObject* result = cpython::lru_peek(object, key.get());
  if (!result) tr_.unsupported("a cached function that empties its cache");
  tr_.keep(key);
  SourceId at;
  for (auto& [of, known_key, source] : cached_calls_)
    if (of == object && PyObject_RichCompareBool(known_key, key.get(), Py_EQ) == 1) at = source;
  if (!at.valid()) {
    at = tr_.sources().add(SourceKind::CachedCall, cache->source, 0, key.get());
    cached_calls_.push_back({object, key.get(), at});
    tr_.guard_identity(at, result);
  }
  if (!trials_) tr_.effects.defer_unseen_call(cache, args);  // counted, and kept from being the oldest
  return tr_.force(tr_.wrap(result, at));
}

}  // namespace braze::capture
