// The door to the user's Triton package, which is Python: codegen/ itself knows none.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace braze::codegen::triton {

struct Source {
  std::string text;                                            // a Python module
  std::string kernel;                                          // the function in it
  std::vector<std::pair<std::string, std::string>> arguments;  // name and Triton's type
  int warps = 4, sm = 90;
  int stages = 0;             // of loads ahead of their use; 0: as Triton has it
  bool contract = false;      // products and sums may become one operation
  std::vector<bool> aligned;  // per argument: a multiple of 16; empty: pointers are, but for the last
};

struct Code {
  std::string cubin;     // with the kernel's name as symbol
  uint32_t threads = 0;  // per block
  uint32_t shared = 0;   // bytes of shared memory that a launch asks for
  uint32_t scratch = 0;  // bytes of memory that each program wants: the first parameter after the kernel's own
};

struct Outcome {
  std::optional<Code> code;
  std::string refused;  // why there is none; empty: it is not ready
};

struct Compiler {
  // The package's version, without loading it; empty: there is none.
  std::function<std::string()> version;
  // Throws Unsupported where the package is missing or refuses.
  std::function<Code(const Source&)> compile;
  // The same in processes of their own, of which there are as many as CPUs; those of the greatest `weight` first. The
  // result is a ticket, with which `finish` waits for at most so many seconds.
  std::function<uint64_t(const std::vector<Source>&, double weight)> start;
  std::function<std::vector<Outcome>(uint64_t ticket, double seconds)> finish;
};

// Set once by whoever embeds the compiler in Python; without it compiling throws Unsupported.
void set_compiler(Compiler);
const Compiler& compiler();

}  // namespace braze::codegen::triton
