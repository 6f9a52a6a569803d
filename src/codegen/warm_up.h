// A head start for the code generator.
#pragma once
#include <string_view>

namespace braze::codegen {

class DiskCache;

// To be called when it is known that something will be compiled for the CPU: begins, once and on a thread of its own,
// what the first compilation would have to wait for. Not if the cache on disk has a note that `program` (any text that
// tells programs apart; empty: unknown) was compiled before: its kernels are there most likely, and code will hardly be
// generated. A guess that is wrong costs time only.
void warm_up(std::string_view program = {});
// Leaves those notes for the programs that warm_up was told of.
void note_programs(DiskCache& cache);

}  // namespace braze::codegen
