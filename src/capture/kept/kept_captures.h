// Captures on disk between processes: one that meets the same code and what it hangs off checks guards instead of
// tracing.
//
// A file (codegen/disk_cache.h) holds the captures of one place of one code object under one state of the process; they
// are told apart by their guards. Which code, options, versions and state: the key.
#pragma once
#include <functional>
#include <string>

#include "base/options.h"
#include "capture/eval/capture.h"

namespace braze::capture {

class KeptCaptures {
 public:
  // `more`: what else a capture of the frame depends on. Nothing is found or kept where the options forbid it.
  KeptCaptures(const FrameView& frame, const Options& options, const std::string& more);

  // Calls `take` with each that may hold, those for the very sizes of a call first, then the latest, until it says
  // true; then says true.
  bool find(const std::function<bool(Segment)>& take) const;
  // As bytes, for keep(); empty where another process would not find what it rests on. Before the segment is compiled.
  std::string describe(const Segment& segment) const;
  void keep(const std::string& described) const;

 private:
  const FrameView& frame_;
  bool calls_, knows_gpus_ = false;
  std::string key_, name_;  // empty: none
};

}  // namespace braze::capture
