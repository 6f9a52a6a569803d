// Why something that capture knows of the program holds in every run of the entry that it makes.
//
// Each value that is folded into compiled code, and each look at a real object while capturing, names its ground. There
// are no others: what has none of these may not be folded, and the graph ends there.
#pragma once
#include <cstdint>

#include "capture/guards/source.h"

namespace braze::capture {

// State of the process that is no Python object of the program's: rows of process_state.def.
enum class ProcessState : uint8_t {
#define BRAZE_PROCESS_STATE(name, what, how) name,
#include "capture/guards/process_state.def"
#undef BRAZE_PROCESS_STATE
};

class Ground {
 public:
  enum class Kind : uint8_t {
    Code,   // written in the code that is evaluated; an entry is for one code object
    Fixed,  // the same whatever a program does: rules of the language, static types, objects that Braze itself imported
    Made,   // of an object that the capture made, and that no other code has seen
    Guarded,       // what is found at a source; guards of that source, or of what it hangs off, say so
    Pure,          // computed without effects from other variables, which have their grounds
    Process,       // a row of process_state.def
    Conservative,  // decides only whether the graph ends or goes on, and both are right
  };

  static Ground code() { return Ground(Kind::Code); }
  static Ground fixed() { return Ground(Kind::Fixed); }
  static Ground made() { return Ground(Kind::Made); }
  // The source has a guard (or is an object that is held): checked for every constant at the end of a capture, see
  // Translator::verify_grounds.
  static Ground guarded(SourceId s) { return Ground(Kind::Guarded, s); }
  // Names what it was computed from: variables, their vectors, arguments of a call.
  template <class First, class... Rest>
  static Ground pure(const First&, const Rest&...) {
    return Ground(Kind::Pure);
  }
  static Ground process(ProcessState) { return Ground(Kind::Process); }
  static Ground conservative() { return Ground(Kind::Conservative); }

  Kind kind() const { return kind_; }
  SourceId source() const { return source_; }  // of Guarded

 private:
  explicit Ground(Kind k) : kind_(k) {}
  Ground(Kind k, SourceId s) : kind_(k), source_(s) {}
  Kind kind_;
  SourceId source_;
};

}  // namespace braze::capture
