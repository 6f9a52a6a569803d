#include "launch/gil.h"

#include <unistd.h>

namespace braze::launch {

GilRelease::GilRelease(bool wanted)
    : state_(wanted && Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}

GilRelease::~GilRelease() {
  if (!state_) return;
  try {
    PyEval_RestoreThread(state_);
  } catch (...) {  // pthread_exit, by which CPython ends threads that are left over
    for (;;) pause();
  }
}

}  // namespace braze::launch
