// Which sizes and numbers of a capture stay open: by the user's marks, by the option `dynamic`, and by what earlier
// calls of the same place had (static first; what has had two values gets a symbol).
#pragma once
#include <Python.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/guards/source.h"
#include "trace/trace.h"

namespace braze::capture {

enum class Dynamic : uint8_t { Auto, Always, Never };

// A mark that the user put on a tensor.
struct DimMark {
  int dim;
  bool dynamic;           // else: static
  bool bounded = false;   // min or max was given
  bool weak = false;      // dynamic as far as the program allows it
  bool unbacked = false;  // dynamic, and nothing is decided by its size
  int64_t min = 0, max = 0;
};
// Marks of braze.mark_dynamic, maybe_mark_dynamic, mark_unbacked and mark_static, and of their namesakes in
// torch._dynamo. Empty for a tensor without.
std::vector<DimMark> marks_of(PyObject* tensor);
// True when the tensor has no dynamic mark outside of these dimensions: compiled code that is narrower than the user
// asked for is not to serve it.
bool marks_within(PyObject* tensor, const std::vector<trace::SymbolicDim>& symbolic);

// What the calls of one place had, by source. Asked once or more per capture with the same answer.
class SeenSizes {
 public:
  std::vector<trace::SymbolicDim> tensor(const std::string& source, PyObject* tensor, const std::vector<DimMark>& marks,
                                         Dynamic policy);
  // True: the integer is to stay open, in this range.
  bool integer(const std::string& source, int64_t value, bool anchored, Dynamic policy, sym::Range* range);
  // True: the float had other values before, and is to be an operand of the compiled code instead of a part of it.
  bool number(const std::string& source, double value, Dynamic policy);
  // How far something has come, an iterator say. False: it was found in so many places that code for each is not worth
  // its while.
  bool position(const std::string& source, int64_t at);
  // What was at the source was compared by identity, and went before another call could meet it.
  void passes(const std::string& source);
  // True: the objects there are made anew for each call, so this one is to be guarded by its class and content. What
  // hangs off such an object is taken for another once it is not the one that was there before.
  bool is_passing(const Sources&, SourceId, const void* object);

 private:
  struct Seen {
    std::vector<int64_t> now, before;
    std::vector<char> varies;
  };
  Seen& note(const std::string& key, const std::vector<int64_t>& values);
  std::unordered_map<std::string, Seen> seen_;
  std::unordered_map<std::string, std::vector<int64_t>> positions_;
  std::unordered_map<std::string, const void*> objects_;  // the latest
  std::unordered_set<std::string> passing_;
};

}  // namespace braze::capture
