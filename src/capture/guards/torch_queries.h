// Functions of PyTorch that answer a question about the process or about metadata: called while capturing, and not
// recorded.
#pragma once
#include <Python.h>

#include <optional>

namespace braze::capture {

// What makes the answer hold in later calls.
enum class QueryGround : uint8_t {
  Arguments,  // a pure function of the arguments, whose metadata are guarded where they come from
  Process,    // the same as long as the process lives
  StateKey,   // part of trace::global_state_key(), which every entry compares
  Asked,      // a guard of its own, GuardKind::Answer
};

void register_torch_queries();
// nullopt: not in the table (torch_queries.def).
std::optional<QueryGround> query_ground(PyObject* function);

}  // namespace braze::capture
