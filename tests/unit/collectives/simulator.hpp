// SPDX-License-Identifier: Apache-2.0
// Runs the schedules of all ranks on real bytes, in one thread and in a random order of what may run. A message is taken out of
// its buffer when its receive is there, or, if it is eager, before; which ones are eager is random, too.
#pragma once
#include <random>
#include <string>

#include "collectives/schedule.hpp"
#include "operation.hpp"

namespace thalweg::impl::test {

using Bytes = std::vector<uint8_t>;

struct Memory {
  Bytes buffers[3];  // by Where
  Bytes& operator[](Where where) { return buffers[static_cast<size_t>(where)]; }
  std::span<uint8_t> at(const Part& part) { return std::span((*this)[part.where]).subspan(part.offset, part.length); }
};

enum class Eager : uint8_t { none, some };

// Each returns what is wrong, "" if nothing is.
/// Of one rank's schedule: steps name earlier ones, parts lie within their buffers and are of one length, peers exist.
std::string check_steps(const Schedule& schedule, uint32_t rank, uint32_t size, Memory& memory);
/// Of one rank's schedule: no step may run while another one writes what it reads or writes. Time: the square of the steps.
std::string check_overlaps(const Schedule& schedule);
/// All ranks. Scratch memory is made here, with garbage in it.
std::string simulate(const std::vector<Schedule>& schedules, std::vector<Memory>& memories, Operation operation, Eager eager,
                     std::mt19937& random);

}  // namespace thalweg::impl::test
