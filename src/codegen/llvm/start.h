// LLVM's static initialisers: its options, passes and statistics are a thousand small objects, made one by one.
#pragma once

namespace braze::codegen::ir {

// Makes them, once; to be called before LLVM's first target is registered. Where the linker can keep them apart from
// those that the loader calls (cmake/llvm_start.ld), a process that only runs what is on disk, or nothing yet, does
// without: a third of the time of the import. Elsewhere they have been made by then, and nothing happens. Thread-safe.
void start_llvm();

}  // namespace braze::codegen::ir
