# SPDX-License-Identifier: Apache-2.0
# The standard library's headers, and GoogleTest's, parsed once for all files that are compiled with the same options: most of
# the time that a file takes goes into them. Sources include what they use all the same; the preset dev builds without.
option(THALWEG_PRECOMPILE "Parse the standard headers once" ON)

set(THALWEG_STANDARD_HEADERS <algorithm> <array> <atomic> <chrono> <condition_variable> <cstring> <deque> <functional> <map>
  <memory> <mutex> <random> <span> <string> <thread> <unordered_map> <vector>)

# For a target's own sources. The option makes ccache work with them.
function(thalweg_precompile_own name)
  if(THALWEG_PRECOMPILE)
    target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
    target_precompile_headers(${name} PRIVATE ${ARGN})
  endif()
endfunction()

# A target that only carries its headers. Who uses them has its kind (library or executable), because it decides about -fPIC.
function(thalweg_precompile name)
  if(THALWEG_PRECOMPILE)
    target_link_libraries(${name} PRIVATE thalweg_options)
    target_precompile_headers(${name} PRIVATE ${ARGN})
  endif()
endfunction()

function(thalweg_precompiled headers)
  if(THALWEG_PRECOMPILE)
    foreach(name IN LISTS ARGN)
      target_precompile_headers(${name} REUSE_FROM ${headers})
    endforeach()
  endif()
endfunction()

file(WRITE ${PROJECT_BINARY_DIR}/headers.cpp "")
add_library(thalweg_headers STATIC ${PROJECT_BINARY_DIR}/headers.cpp)
target_compile_options(thalweg_headers PRIVATE ${THALWEG_LTO_COMPILE})
thalweg_precompile(thalweg_headers ${THALWEG_STANDARD_HEADERS})
