// SPDX-License-Identifier: Apache-2.0
// One collective of a program: what each rank of its group calls it with, and what each must have afterwards. Both come from the
// program's operation alone, without the library. Values are small integers, so that no order of operands rounds.
#pragma once
#include <thalweg/collectives.h>

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/schedule.hpp"
#include "model/program.hpp"

namespace thalweg::model {

/// The functions of collectives.h.
enum class Together : uint8_t {
  barrier,
  broadcast,
  reduce,
  allreduce,
  reduce_scatter,
  reduce_scatterv,
  allgather,
  allgatherv,
  gather,
  gatherv,
  scatter,
  scatterv,
  alltoall,
  alltoallv,
  scan,
  exclusive_scan,
  count_
};
const char* name_of(Together verb);
impl::CollectiveKind kind_of(Together verb);
bool combines(Together verb);
bool has_counts(Together verb);

/// What an algorithm works on, as far as the code differs.
enum class TypeClass : uint8_t { integer, floating, half, float8, truth, user, count_ };
const char* name_of(TypeClass type);

/// Of the kind, the n-th with a schedule, from 1; "": there are less.
const char* algorithm_name(Together verb, unsigned n);
constexpr unsigned kMostAlgorithms = 9;
/// Can it do the verb for that many ranks?
bool algorithm_applies(Together verb, unsigned n, uint32_t size, bool commutative);

/// The workers of a group of the program, by rank.
std::vector<unsigned> ranks_of(const Program& program, unsigned group);

using Bytes = std::vector<std::byte>;

/// One of a rank's buffers.
struct Side {
  bool used = false, placed = false;  // placed: TW_IN_PLACE
  uint8_t kind = 0;                   // of kKinds
  Bytes before, after;
};

/// What a rank calls it with.
struct Share {
  Side send, recv;
  size_t count = 0;
  bool offset = false;  // sent_at and received_at are given
  std::vector<size_t> sent, sent_at, received, received_at;
};

struct Job {
  Together verb = Together::barrier;
  unsigned group = 0;
  std::vector<unsigned> workers;  // by rank
  uint32_t type = 0, op = 0, root = 0;
  unsigned algorithm = 0;  // 0: chosen by costs
  bool repeatable = false, commutative = true;
  double scale = 0;
  std::vector<Share> shares;  // by rank
  TypeClass type_class() const;
};
Job job_of(const Program& program, const Op& op);
std::string text_of(const Job& job);

/// What TW_REDUCE_USER applies; its argument is the size of an element. Both are of bytes: exclusive or, and, where the order of ranks
/// counts, the last element that is not 0.
tw_reduce_function function_of(bool commutative);
/// What all ranks call it with, but for the sinks.
tw_collective_options options_of(const Job& job);

}  // namespace thalweg::model
