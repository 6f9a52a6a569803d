// An argument that holds much (a key/value cache, a state of a training loop) and is the same object from call to call:
// what hangs off it need not be fetched step by step in every check, it can be watched like what hangs off a module.
#pragma once
#include <functional>
#include <memory>

#include "capture/guards/check_order.h"
#include "capture/guards/guards.h"

namespace braze::capture {

// Guards that hold for one object at one source only, and watch what hangs off it.
class FollowingProgram : public GuardProgram {
 public:
  // From now on for this object, which is not kept alive. False: its class has no weak references.
  virtual bool follow(PyObject* object) = 0;
  // How often all that is watched was compared anew.
  virtual size_t num_tables() const = 0;
};

// The source that most of what a check fetches in steps hangs off, and that leads to an instance of a class with weak
// references; nullptr: none is worth it.
const Source* argument_to_follow(const CheckOrder& order);

// Checks like `program`. Once the same object was at `root` for some checks, by what `make` makes, as long as that
// holds and its table seldom has to be written anew.
std::unique_ptr<GuardProgram> followed(std::unique_ptr<GuardProgram> program,
                                       std::function<std::unique_ptr<FollowingProgram>()> make,
                                       std::shared_ptr<const Sources> sources, const Source& root,
                                       size_t num_locals_plus);

}  // namespace braze::capture
