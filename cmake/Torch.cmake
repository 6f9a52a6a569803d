# PyTorch and Python of the interpreter that builds. Only headers and sonames are used.
find_package(Python COMPONENTS Interpreter Development.Module REQUIRED)
if(Python_VERSION VERSION_LESS 3.11 OR Python_VERSION VERSION_GREATER_EQUAL 3.14)
  message(FATAL_ERROR "Braze runs on CPython 3.11, 3.12 and 3.13, and this is ${Python_VERSION}")
endif()
execute_process(COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
  OUTPUT_VARIABLE BRAZE_NO_GIL OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(BRAZE_NO_GIL)
  message(FATAL_ERROR "Braze does not run on free-threaded builds of Python")
endif()
if(NOT BRAZE_TORCH_ROOT)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE BRAZE_TORCH_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()
set(BRAZE_TORCH_ROOT ${BRAZE_TORCH_ROOT} CACHE PATH "folder of the torch package (include/ and lib/)")

# The version that is built for must be one that the source is for. What python/braze/__init__.py compares before it loads the
# extension, whose symbols another version may lack, is _built.py.
set(BRAZE_TORCH_VERSIONS_FILE src/trace/pytorch/versions.def)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${BRAZE_TORCH_VERSIONS_FILE})
file(STRINGS ${BRAZE_TORCH_ROOT}/include/torch/headeronly/version.h BRAZE_TORCH_VERSION REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
list(TRANSFORM BRAZE_TORCH_VERSION REPLACE ".* " "")
list(JOIN BRAZE_TORCH_VERSION "." BRAZE_TORCH_VERSION)
file(STRINGS ${BRAZE_TORCH_VERSIONS_FILE} BRAZE_TORCH_VERSIONS REGEX "^BRAZE_PYTORCH_VERSION")
list(TRANSFORM BRAZE_TORCH_VERSIONS REPLACE ".*\\((.*)\\)" "\\1")
if(NOT BRAZE_TORCH_VERSION IN_LIST BRAZE_TORCH_VERSIONS)
  list(GET BRAZE_TORCH_VERSIONS -1 newest)
  list(JOIN BRAZE_TORCH_VERSIONS ", " known)
  message(FATAL_ERROR "braze is for PyTorch ${known}, but this is ${BRAZE_TORCH_VERSION}: install torch==${newest}.*")
endif()
list(JOIN BRAZE_TORCH_VERSIONS "\", \"" known)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/_built.py @ONLY CONTENT "\"\"\"What the extension was built for, and what it can be built for.\"\"\"

PYTORCH = \"@BRAZE_TORCH_VERSION@\"
PYTHON = \"@Python_VERSION_MAJOR@.@Python_VERSION_MINOR@\"
VERSIONS = (\"@known@\",)
")

add_library(braze_torch_headers INTERFACE)
target_include_directories(braze_torch_headers SYSTEM INTERFACE
  ${BRAZE_TORCH_ROOT}/include ${BRAZE_TORCH_ROOT}/include/torch/csrc/api/include ${Python_INCLUDE_DIRS})
target_compile_definitions(braze_torch_headers INTERFACE TORCH_API_INCLUDE_EXTENSION_H TORCH_EXTENSION_NAME=_C)

function(braze_use_python target)
  target_include_directories(${target} SYSTEM PUBLIC ${Python_INCLUDE_DIRS})
endfunction()

# Torch headers cost 20 s each: one precompiled header, made with the first of the folders that see them.
function(braze_use_torch target)
  target_link_libraries(${target} PRIVATE braze_torch_headers)
  target_include_directories(${target} SYSTEM PUBLIC ${Python_INCLUDE_DIRS})
  if(target STREQUAL braze_trace)
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/torch_pch.h)
  else()
    target_precompile_headers(${target} REUSE_FROM braze_trace)
  endif()
  set_property(TARGET ${target} APPEND PROPERTY COMPILE_OPTIONS -fpch-preprocess ${BRAZE_TORCH_CHECKS_OFF})
endfunction()

# LLVM's tables hold 90000 addresses, which the loader fills in at every import: in the packed form it reads 2 MB less for that.
# The C library understands it from 2.36 on.
include(CheckCXXSourceCompiles)
include(CheckLinkerFlag)
check_cxx_source_compiles("#include <features.h>
#if !__GLIBC_PREREQ(2, 36)
#error
#endif
int main() {}" BRAZE_GLIBC_2_36)
check_linker_flag(CXX -Wl,-z,pack-relative-relocs BRAZE_LINKER_PACKS)

# LLVM registers its options and passes as the module is loaded, by some thousand small functions that lie all over its code. Side
# by side they are on a few pages: half the time of the import, and 10 MB less of the process.
set(BRAZE_LOAD_ORDER ${PROJECT_BINARY_DIR}/load_order.txt)
if(LLD AND CMAKE_NM AND NOT EXISTS ${BRAZE_LOAD_ORDER})
  file(GLOB archives ${LLVM_LIBRARY_DIR}/libLLVM*.a)
  execute_process(COMMAND ${CMAKE_NM} -j --defined-only --quiet ${archives}
    COMMAND grep -E "llvm2cl|CommandLineParser|DebugCounter|ManagedStatic|object_creator|PassRegistry|RegisterPassParser"
    COMMAND sort -u OUTPUT_FILE ${BRAZE_LOAD_ORDER} ERROR_QUIET)
endif()

# The extension module: the files of its folders, everything else linked statically and hidden.
function(braze_extension name)
  cmake_parse_arguments(A "" "" "FOLDERS;USES" ${ARGN})
  set(sources)
  foreach(folder ${A_FOLDERS})
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.cpp)
    list(APPEND sources ${found})
    set(door ${PROJECT_BINARY_DIR}/doors/${folder})
    file(MAKE_DIRECTORY ${door})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/src/${folder} ${door}/${folder} SYMBOLIC)
  endforeach()
  if(NOT sources)
    return()
  endif()
  list(JOIN A_FOLDERS " " folders)
  list(JOIN A_USES " " seen)
  set_property(GLOBAL APPEND PROPERTY BRAZE_DOORS "${folders}: ${seen}")
  set_property(GLOBAL APPEND PROPERTY BRAZE_DOOR_TARGETS braze${name})
  Python_add_library(braze${name} MODULE WITH_SOABI ${sources})
  set_target_properties(braze${name} PROPERTIES OUTPUT_NAME ${name})
  braze_unity(braze${name} 3)
  foreach(folder ${A_FOLDERS})
    target_include_directories(braze${name} PRIVATE ${PROJECT_BINARY_DIR}/doors/${folder})
  endforeach()
  list(TRANSFORM A_USES REPLACE "/" "_")
  list(TRANSFORM A_USES PREPEND braze_)
  target_compile_options(braze${name} PRIVATE ${BRAZE_WARNINGS})
  target_link_libraries(braze${name} PRIVATE ${A_USES} braze_torch_headers)
  target_precompile_headers(braze${name} REUSE_FROM braze_trace)
  set_property(TARGET braze${name} APPEND PROPERTY COMPILE_OPTIONS -fpch-preprocess ${BRAZE_TORCH_CHECKS_OFF})
  target_link_directories(braze${name} PRIVATE ${BRAZE_TORCH_ROOT}/lib)
  # torch_python before the rest: `import torch` loads its libraries locally, so they must be in DT_NEEDED.
  target_link_options(braze${name} PRIVATE -Wl,--no-as-needed -Wl,--gc-sections
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map -Wl,--exclude-libs,ALL)
  if(BRAZE_GLIBC_2_36 AND BRAZE_LINKER_PACKS)
    target_link_options(braze${name} PRIVATE -Wl,-z,pack-relative-relocs)
  endif()
  if(EXISTS ${BRAZE_LOAD_ORDER})
    target_link_options(braze${name} PRIVATE -Wl,-z,keep-text-section-prefix
      -Wl,--symbol-ordering-file=${BRAZE_LOAD_ORDER} -Wl,--no-warn-symbol-ordering)
  endif()
  # What LLVM's package says it may need comes after these, and is only loaded if it is used.
  target_link_libraries(braze${name} PRIVATE torch_python torch torch_cpu c10 -Wl,--as-needed)
  set_property(TARGET braze${name} APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  install(TARGETS braze${name} DESTINATION braze COMPONENT extension)
  install(FILES ${PROJECT_BINARY_DIR}/_built.py DESTINATION braze COMPONENT extension)
endfunction()
