// What the stages made of a graph, kept on disk: a process that captures the same graph runs none of them.
//
// A key is everything that they are a function of: the graph, what is known and expected of its symbols, the options,
// the targets with their code generators (which name this build), and what the caller adds. Not in it: the texts of the
// user's lines, objects and tensors that the capture met. Results name those by number, and no stage sees more of them.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/options.h"
#include "driver/driver.h"
#include "graph/archive.h"
#include "graph/targets.h"

namespace braze::driver {

class KeptResult {
 public:
  // `more`: what else the result is a function of.
  KeptResult(const graph::Graph& graph, const Options& options, const Targets& targets, std::string_view more);
  // Calls `read` on what was kept. False: there is nothing, or it was damaged, and is to be made anew.
  bool find(const std::function<void(sym::Unpacker&)>& read) const;
  // Not of results with symbols that are not the graph's own.
  void keep(const std::function<void(sym::Packer&)>& write) const;

 private:
  const graph::Graph& graph_;
  sym::Symbols symbols_;
  std::string key_, name_;  // empty: nothing is found or kept
};

void pack(sym::Packer& out, const Artefact& made);
void pack(sym::Packer& out, const Training& made);
// Throw InternalError for bytes that are no result of this graph.
void unpack(sym::Unpacker& in, const graph::Graph& graph, Artefact& made);
void unpack(sym::Unpacker& in, const autodiff::Joint& joint, Training& made);
// What was found in too little time is no answer for ever.
inline bool is_final(const Artefact& made) { return made.tuned; }
inline bool is_final(const Training& made) { return made.forward.tuned; }
inline Timings& timings_of(Artefact& made) { return made.timings; }
inline Timings& timings_of(Training& made) { return made.forward.timings; }

// What a joint graph is besides the graph.
std::string describe(const autodiff::Joint& joint);

// What was kept of `of` (a graph, or a Joint), else what make(Timings so far) makes.
template <class Of, class Make>
auto kept_or_made(const graph::Graph& graph, const Options& options, const Targets& targets, std::string_view more,
                  const Of& of, Make&& make) {
  decltype(make(Timings())) made;
  Timings timings;
  std::optional<KeptResult> kept;
  bool found = false;
  {
    StageTimer timer(timings, "disk cache");
    kept.emplace(graph, options, targets, more);
    found = kept->find([&](sym::Unpacker& in) { unpack(in, of, made); });
  }
  if (found) {
    timings_of(made) = std::move(timings);
    return made;
  }
  made = make(std::move(timings));
  if (is_final(made)) kept->keep([&](sym::Packer& out) { pack(out, made); });
  return made;
}

}  // namespace braze::driver
