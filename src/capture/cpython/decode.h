// The only place where CPython's instruction numbers are known: one decode_<version>.cpp per version implements this.
#pragma once
#include <Python.h>

#include <optional>

#include "capture/cpython/opcodes.h"

namespace braze::capture::cpython {

struct Mapped {
  Opcode op = Opcode::Unknown;
  int32_t arg = 0;
  bool flag = false;
  int32_t target_unit = -1;  // jumps: code unit to go to
};

bool is_cache(int raw);  // an inline cache entry: no instruction
bool is_extended_arg(int raw);
// `next`: the code unit after the instruction and its caches.
Mapped map_instruction(int raw, int arg, int next);
// Of an instruction that stands for two, which map_instruction() gave the first of.
std::optional<Mapped> second_instruction(int raw, int arg);

}  // namespace braze::capture::cpython
