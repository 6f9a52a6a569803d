# Builds whose code checks itself as it runs; tools/check.sh makes them and runs the tests on them.
set(BRAZE_TORCH_CHECKS_OFF "")
if(NOT BRAZE_SANITIZE)
  return()
endif()
if(BRAZE_SANITIZE STREQUAL "address")
  # float-cast-overflow is not part of "undefined": a float that no integer holds has another value on each machine.
  set(sanitizers address,undefined,float-cast-overflow)
  # For files that see PyTorch: vptr compares classes by their type_info, which PyTorch's libraries do not export for all of theirs.
  set(BRAZE_TORCH_CHECKS_OFF -fno-sanitize=vptr)
elseif(BRAZE_SANITIZE STREQUAL "thread")
  set(sanitizers thread)
else()
  message(FATAL_ERROR "BRAZE_SANITIZE is address, thread or OFF, not ${BRAZE_SANITIZE}")
endif()
add_compile_options(-fsanitize=${sanitizers} -fno-omit-frame-pointer)
add_link_options(-fsanitize=${sanitizers})
# Stacks with lines, and a build that takes half the time and a third of the space of one with -O2 -g.
set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1")
set(CMAKE_C_FLAGS_RELEASE "-O1 -g1")
# The checks are code too, in which GCC sees uninitialized and overlong reads that no run takes.
list(REMOVE_ITEM BRAZE_WARNINGS -Werror)
