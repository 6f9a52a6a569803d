// Objects of the user's that compiled code knows by their addresses without keeping them alive: told when the first of
// them goes, it forgets what it knows before another object can lie there.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "capture/cpython/ref.h"

namespace braze::capture {

class DeathWatch {
 public:
  // `died` is called, with the GIL held, at the end of each object that is watched, with its number in the order of
  // add(). It may end this watch.
  explicit DeathWatch(std::function<void(size_t)> died);
  ~DeathWatch();
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;

  // False: its class has no weak references, or it lives as long as the process; whoever knows it by address is to hold
  // it.
  bool add(PyObject* object);
  void clear();

  // As if the object of this weak reference had ended, where a watch made the reference: who needs an object that
  // nobody refers to weakly asks for it.
  static void let_go(PyObject* weakref);

 private:
  static PyObject* tell(PyObject* watch, PyObject* weakref);

  std::function<void(size_t)> died_;
  std::shared_ptr<DeathWatch*> itself_;  // nullptr in it once the watch has ended
  Ref callback_;
  // The garbage collector is not shown these: of a weak reference that is part of the garbage nobody would be told.
  std::vector<Ref> references_;
};

}  // namespace braze::capture
