// A code object as the evaluator reads it: instructions of our own set, handlers and lines.
#pragma once
#include <string>
#include <vector>

#include "capture/cpython/opcodes.h"
#include "capture/cpython/ref.h"

namespace braze::capture {

struct Instruction {
  Opcode op;
  bool flag = false;        // LoadGlobal: also push NULL; LoadAttr: as method (pushes two); LoadSuperAttr: as method
  int32_t arg = 0;          // meaning as in opcodes.def; jump targets are in `target`
  int32_t target = -1;      // jumps: index of the instruction to go to
  int32_t handler = -1;     // index into Bytecode::handlers of the innermost try block, or -1
  bool second = false;      // CPython has it and the one before as one instruction: the interpreter cannot start here
  int32_t offset = 0;       // in bytes, of the instruction proper (after its EXTENDED_ARGs)
  int32_t next_offset = 0;  // in bytes, where the next instruction (with its EXTENDED_ARGs) starts, after the caches
  int32_t line = 0, end_line = 0, column = -1, end_column = -1;
};

struct Handler {
  int32_t target;   // instruction index
  int32_t depth;    // stack depth to unwind to
  bool push_lasti;  // push the instruction's number before the exception
};

struct Bytecode {
  PyCodeObject* code;  // owned by the cache
  std::vector<Instruction> instructions;
  std::vector<Handler> handlers;
  std::vector<int32_t> index_at;                          // by offset / 2: the instruction which covers that code unit
  int num_locals_plus, num_locals, num_cells, num_frees;  // frees are the last num_frees of localsplus
  int max_stack;

  PyObject* name(int32_t i) const;        // borrowed
  PyObject* constant(int32_t i) const;    // borrowed
  PyObject* local_name(int32_t i) const;  // borrowed; of localsplus
  bool is_cell(int32_t i) const;          // a local cell variable of localsplus
  bool is_free(int32_t i) const { return i >= num_locals_plus - num_frees; }
  // Whether code of the program's runs as a generator ends that waits at the yield which is instruction `at`. With
  // `compared`, clauses that only compare the exception's class do not count; the names of what they compare it with
  // are appended there.
  bool has_end_to_run(int32_t at, std::vector<int32_t>* compared = nullptr) const;

 private:
  // Where a handler that begins at `at` raises the exception again, if none of its clauses takes it and they only
  // compare classes found by name; -1: it may do something else.
  int32_t raised_again(int32_t at, std::vector<int32_t>& compared) const;
};

// The decoded code, cached for the life of the process. Throws Unsupported for instructions without a row.
const Bytecode& decode(PyCodeObject* code);

// "file:line" and the source line (empty when there is none).
std::string describe(const UserLine&);
std::string source_text(const UserLine&);

}  // namespace braze::capture
