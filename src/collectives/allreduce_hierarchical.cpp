// SPDX-License-Identifier: Apache-2.0
// Within each host first, across hosts second. By leaders: the first rank of each host combines its host's inputs, the leaders
// run recursive doubling, and each sends its host the sum: short messages. By blocks: each rank combines one block of its
// host's inputs, the ranks with the same block run a ring, or halving and doubling, and the host gathers the blocks: long ones;
// each byte crosses hosts twice, by all ranks at once. After Horovod's hierarchical allreduce.
#include "collectives/algorithms.hpp"
#include "collectives/pieces.hpp"

namespace thalweg::impl {
namespace {

Team host_of(const Collective& c) {
  const uint32_t each = c.ranks_per_host;
  Team team{{}, c.rank % each};
  for (uint32_t i = 0; i < each; ++i) team.ranks.push_back(c.rank - team.me + i);
  return team;
}

/// Of each host the rank that has the own one's place there.
Team across_hosts(const Collective& c) {
  Team team{{}, c.rank / c.ranks_per_host};
  for (uint32_t rank = c.rank % c.ranks_per_host; rank < c.size; rank += c.ranks_per_host) team.ranks.push_back(rank);
  return team;
}

using Across = void (*)(Writer&, const Team&, const Part&, const Part&);
void blocks_of_hosts(const Collective& c, Schedule* schedule, Across across) {
  Writer w(c, schedule);
  const Team host = host_of(c);
  const Blocks blocks = cut(output(c), host.size(), w.element());
  const Part& mine = blocks[host.me];
  direct_reduce_scatter(w, host, cut(own(c), host.size(), w.element()), mine);
  across(w, across_hosts(c), mine, mine);
  direct_allgather(w, host, blocks, mine);
}

}  // namespace

void leaders_allreduce(const Collective& c, Schedule* schedule) {
  Writer w(c, schedule);
  const Team host = host_of(c);
  const Part to = output(c);
  if (host.me != 0) {
    w.send(host.ranks[0], own(c));
    return w.recv(host.ranks[0], to);
  }
  Blocks inputs{own(c)};
  for (uint32_t i = 1; i < host.size(); ++i) {
    inputs.push_back(w.scratch(c.bytes()));
    w.recv(host.ranks[i], inputs.back());
  }
  w.reduce(to, inputs);
  recursive_doubling(w, across_hosts(c), to, to);
  for (uint32_t i = 1; i < host.size(); ++i) w.send(host.ranks[i], to);
}

void hierarchical_ring_allreduce(const Collective& c, Schedule* schedule) { blocks_of_hosts(c, schedule, ring); }
void hierarchical_halving_allreduce(const Collective& c, Schedule* schedule) { blocks_of_hosts(c, schedule, halving_doubling); }

}  // namespace thalweg::impl
