# SPDX-License-Identifier: Apache-2.0
# hwloc's headers, where they are: its library is loaded at run time (src/topology/hwloc.cpp), so nothing is linked.
target_link_libraries(thalweg_topology PUBLIC ${CMAKE_DL_LIBS})
find_path(THALWEG_HWLOC_HEADERS hwloc.h DOC "hwloc's headers (libhwloc-dev); without them the topology is read from /sys")
if(THALWEG_HWLOC_HEADERS AND NOT CMAKE_CROSSCOMPILING)
  target_include_directories(thalweg_topology SYSTEM PRIVATE ${THALWEG_HWLOC_HEADERS})
  target_compile_definitions(thalweg_topology PRIVATE THALWEG_WITH_HWLOC)
endif()
