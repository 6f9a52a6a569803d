#include "capture/frames/compilations.h"

#include "capture/guards/death_watch.h"

namespace braze::capture {

namespace {
Listener g_listener = nullptr;
}

Counters& counters() {
  static auto* c = new Counters();
  return *c;
}

void set_listener(Listener l) { g_listener = l; }
Listener listener() { return g_listener; }

void let_go(PyObject* weakref) { DeathWatch::let_go(weakref); }

}  // namespace braze::capture
