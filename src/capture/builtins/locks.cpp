// Locks of threading that were there before: the entry takes them before its graph runs, and holds them until its
// effects are made.
#include "capture/builtins/builtins.h"
#include "capture/cpython/imported.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

bool is_reentrant(Variable* lock) {
  static PyObject* type = imported("_thread", "RLock", true);
  return reinterpret_cast<PyObject*>(lock->type()) == type;
}

HeldLock* lock_of(Translator& tr, Args& a) {
  if (a.size() < 1 || !a[0]->is(Kind::Real) || !a[0]->source.valid()) return nullptr;
  return tr.effects.held_lock(a[0]);
}

// acquire(blocking=True, timeout=-1)
Variable* acquire(Translator& tr, Args& a) {
  Variable *blocking = a.take_kw("blocking"), *timeout = a.take_kw("timeout");
  if (!blocking && a.size() > 1) blocking = a[1];
  if (timeout || a.size() > 2 || !a.kw.empty()) return nullptr;
  HeldLock* lock = lock_of(tr, a);
  if (!lock) return nullptr;
  if (lock->count && !is_reentrant(a[0])) {
    if (blocking && !tr.truth(blocking)) return tr.boolean(false, Ground::pure(lock));
    return nullptr;  // it would wait for itself
  }
  tr.mutate();
  ++lock->count;
  return tr.boolean(true, Ground::pure(lock));
}

Variable* enter(Translator& tr, Args& a) { return a.size() == 1 && a.kw.empty() ? acquire(tr, a) : nullptr; }

Variable* release(Translator& tr, Args& a) {
  if (a.size() != 1 || !a.kw.empty()) return nullptr;
  HeldLock* lock = lock_of(tr, a);
  if (!lock || !lock->count) return nullptr;  // taken before the capture, or an error
  tr.mutate();
  --lock->count;
  return tr.none();
}

Variable* exit(Translator& tr, Args& a) {
  if (a.size() != 4) return nullptr;
  Args self{{a[0]}, {}};
  return release(tr, self);
}

// It was free when the entry took it.
Variable* locked(Translator& tr, Args& a) {
  HeldLock* lock = a.size() == 1 && a.kw.empty() ? lock_of(tr, a) : nullptr;
  return lock ? tr.boolean(lock->count > 0, Ground::pure(lock)) : nullptr;
}

}  // namespace

void register_lock_builtins() {
  const std::pair<const char*, BuiltinHandler> methods[] = {
      {"acquire", acquire}, {"__enter__", enter}, {"release", release}, {"__exit__", exit}};
  for (const char* type : {"LockType.", "RLock."})
    for (auto& [name, handler] : methods) register_builtin("_thread", (std::string(type) + name).c_str(), handler);
  register_builtin("_thread", "LockType.acquire_lock", acquire);
  register_builtin("_thread", "LockType.release_lock", release);
  register_builtin("_thread", "LockType.locked", locked);
  register_builtin("_thread", "LockType.locked_lock", locked);
}

}  // namespace braze::capture
