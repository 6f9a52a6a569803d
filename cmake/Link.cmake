# How shared libraries are linked: the extension, and for wheels the core beside it.

include(CheckCXXSourceCompiles)
include(CheckLinkerFlag)
check_cxx_source_compiles("#include <features.h>
#if !__GLIBC_PREREQ(2, 36)
#error
#endif
int main() {}" BRAZE_GLIBC_2_36)
check_linker_flag(CXX -Wl,-z,pack-relative-relocs BRAZE_LINKER_PACKS)

# Exports what the list says and nothing else; leaves out what nobody uses.
function(braze_shared_library target exports)
  set(list ${PROJECT_SOURCE_DIR}/cmake/${exports})
  target_link_options(${target} PRIVATE -Wl,--gc-sections -Wl,--version-script=${list})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${list})
endfunction()

# For the library that LLVM is linked into.
function(braze_holds_llvm target)
  # LLVM's tables hold 90000 addresses, which the loader fills in at every import: in the packed form it reads 2 MB less for that.
  if(BRAZE_PACK_RELOCATIONS AND BRAZE_GLIBC_2_36 AND BRAZE_LINKER_PACKS)
    target_link_options(${target} PRIVATE -Wl,-z,pack-relative-relocs)
  endif()
  # LLVM registers its options and passes by some thousand small functions that lie all over its code. As the module is loaded they
  # are not called, but when code is first generated: half a megabyte less, and a third of the time, of the import.
  if(LLD)
    set(script ${PROJECT_SOURCE_DIR}/cmake/llvm_start.ld)
    target_link_options(${target} PRIVATE -Wl,-T,${script})
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${script})
  endif()
  # Side by side they are on a few pages: 10 MB less of the process.
  set(order ${PROJECT_BINARY_DIR}/load_order.txt)
  if(LLD AND CMAKE_NM AND NOT EXISTS ${order})
    file(GLOB archives ${LLVM_LIBRARY_DIR}/libLLVM*.a)
    execute_process(COMMAND ${CMAKE_NM} -j --defined-only --quiet ${archives}
      COMMAND grep -E "llvm2cl|CommandLineParser|DebugCounter|ManagedStatic|object_creator|PassRegistry|RegisterPassParser"
      COMMAND sort -u OUTPUT_FILE ${order} ERROR_QUIET)
  endif()
  if(EXISTS ${order})
    target_link_options(${target} PRIVATE -Wl,-z,keep-text-section-prefix
      -Wl,--symbol-ordering-file=${order} -Wl,--no-warn-symbol-ordering)
  endif()
endfunction()

# libbraze_core.so: the folders before this call, which know neither PyTorch nor Python, and LLVM. One library for the extensions
# of all versions in a wheel. LLVM stays hidden in it: Triton and Numba have one of their own in the same process.
function(braze_shared_core)
  get_property(parts GLOBAL PROPERTY BRAZE_CORE_TARGETS)
  add_library(braze_core SHARED EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/cmake/older_systems.cpp)
  braze_shared_library(braze_core core.map)
  braze_holds_llvm(braze_core)
  # What it exports it also calls itself, directly.
  target_link_options(braze_core PRIVATE -Wl,-Bsymbolic -Wl,-z,defs -Wl,--as-needed)
  # Which LLVM compresses with; not on every system, so not the shared one that LLVM's package names.
  find_library(BRAZE_ZSTD libzstd.a)
  if(BRAZE_ZSTD)
    target_link_libraries(braze_core PRIVATE ${BRAZE_ZSTD})
  endif()
  # Conversions of half floats, which GCC's shared library has since version 12 only.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_link_libraries(braze_core PRIVATE gcc)
  endif()
  foreach(part ${parts})
    target_link_libraries(braze_core PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,${part}>)
  endforeach()
endfunction()
