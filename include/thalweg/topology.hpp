// SPDX-License-Identifier: Apache-2.0
// topology.hpp: the C++ view of topology.h. Part of thalweg.hpp, whose conventions hold.
//
//   const tw_placement mine = thalweg::topology::place(local_rank, local_ranks);   // mine.place: "cuda:3"
//   for (unsigned processor : thalweg::topology::processors(mine)) ...
#pragma once
#include <thalweg/core.hpp>
#if __cplusplus > 201703L
#include <thalweg/topology.h>

namespace thalweg::topology {

/// All of it as JSON text: tw_topology_json. Throws Error where THALWEG_TOPOLOGY names a file that is not right.
inline std::string json() {
  return detail::text_of([](char* to, size_t* size) { return tw_topology_json(to, size); });
}

/// Where rank `rank` of `ranks` processes of this machine belongs: tw_topology_place. Throws Error.
inline tw_placement place(uint32_t rank, uint32_t ranks) {
  tw_placement placement = TW_PLACEMENT_INIT;
  detail::check(tw_topology_place(rank, ranks, &placement));
  return placement;
}

/// The numbers of a placement's processors, ascending.
inline std::vector<unsigned> processors(const tw_placement& placement) {
  std::vector<unsigned> numbers;
  for (unsigned i = 0; i < TW_PROCESSOR_WORDS * 64; ++i)
    if (((placement.processors[i / 64] >> (i % 64)) & 1) != 0) numbers.push_back(i);
  return numbers;
}

/// What lies between the nodes of these names, "gpu:0" and its like: tw_topology_distance. Throws Error.
inline tw_distance distance(const std::string& from, const std::string& to) {
  tw_distance found = TW_DISTANCE_INIT;
  detail::check(tw_topology_distance(from.c_str(), to.c_str(), &found));
  return found;
}

}  // namespace thalweg::topology
#endif
