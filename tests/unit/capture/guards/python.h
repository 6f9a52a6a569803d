// An interpreter for tests of guards, and stand-ins for what they ask PyTorch: a "tensor" is any object with the
// attributes `kind`, `size` and `storage`, a pair of addresses.
#pragma once
#include <string>

#include "capture/cpython/ref.h"

namespace braze::capture::test {

// A namespace in which the lines of a test run.
class Python {
 public:
  explicit Python(const std::string& lines = {});
  void run(const std::string& lines);
  PyObject* operator[](const std::string& expression);  // held until the end of the namespace
  int64_t integer(const std::string& expression);

 private:
  Ref names_, values_;
};

void set_global_state(uint64_t key);

}  // namespace braze::capture::test
