// The order in which guards are checked, fixed once per entry: what every call fetches anew, and what is watched.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "capture/guards/guards.h"
#include "launch/tensor_spec.h"

namespace braze::capture {

// Values lie in numbered registers: first those of every check, at the head of which the wanted ones; then those that
// only lie on a way that is watched.
struct CheckOrder {
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    uint32_t reg, base;  // base: kNone for a source without
    const Source* source;
    uint32_t guards_begin = 0, guards_end = 0;  // in `early`
  };
  // A guard on one value or two that is checked after all values were fetched.
  struct Late {
    const Guard* guard;
    uint32_t reg, other;
    const launch::TensorSpec* tensor =
        nullptr;  // of a Tensor guard on what hangs off no argument: no marks of its sizes are looked for
  };
  struct Group {
    const Guard* guard;
    std::vector<uint32_t> registers;
    uint32_t beside = kNone;  // one of anchored_groups, whose values are other ones than these
  };
  struct Place {
    uint32_t reg;
    int32_t dim;
    uint32_t symbol;
    bool integer, first;  // the first place of its symbol
  };

  // `followed`: a source whose object is fixed besides those that guards of identity fix.
  CheckOrder(const Sources& sources, const std::vector<Guard>& guards, const std::vector<SourceId>& wanted,
             const std::vector<SizeGuards::Place>& places, const Source* followed = nullptr);

  uint32_t num_registers = 0;  // of every check
  uint32_t num_all = 0;
  std::vector<const Guard*> early;  // guards on one value, by node
  std::vector<Node> moving;         // fetched in every check
  std::vector<Late> of_arguments;   // look at nothing that is anchored
  std::vector<Node> anchored;       // hangs off an object that is fixed, by a way that can be watched
  std::vector<uint32_t> roots;      // of `moving`: what is fixed by a guard of identity, and what is followed
  uint32_t followed = kNone;
  std::vector<Late> anchored_pairs;
  std::vector<Group> anchored_groups;
  std::vector<uint32_t> imported;  // registers of every check whose values are anchored
  std::vector<Node> trailing;      // fetched in every check from something that is anchored
  std::vector<Late> late;
  std::vector<Group> late_groups, apart;
  std::vector<Place> places;
  std::vector<std::pair<uint32_t, uint32_t>> again;  // wanted more than once: register, and which it is a copy of

 private:
  struct Builder;
};

}  // namespace braze::capture
