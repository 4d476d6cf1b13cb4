// SPDX-License-Identifier: Apache-2.0
#include "world.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace thalweg::impl::test {
namespace {

using Kind = CollectiveKind;

bool at_root_only(Kind kind) { return kind == Kind::gather || kind == Kind::reduce; }
bool with_root(Kind kind) { return at_root_only(kind) || kind == Kind::broadcast || kind == Kind::scatter; }

/// Offsets of blocks in a random order, with gaps; or one behind the other.
std::vector<uint64_t> offsets_of(const std::vector<uint64_t>& counts, bool gaps, std::mt19937& random) {
  std::vector<uint32_t> order(counts.size());
  std::iota(order.begin(), order.end(), 0);
  if (gaps) std::ranges::shuffle(order, random);
  std::vector<uint64_t> offsets(counts.size());
  uint64_t at = 0;
  for (uint32_t i : order) {
    at += gaps ? random() % 3 : 0;
    offsets[i] = at;
    at += counts[i];
  }
  return offsets;
}

}  // namespace

std::string text_of(const Case& each) {
  const Collective& c = each.collective;
  return std::string(kind_name(c.kind)) + " of " + std::to_string(c.size) + ", root " + std::to_string(c.root) + ", count " +
         std::to_string(c.count) + ", element " + std::to_string(c.element) + (c.in_place ? ", in place" : "") +
         (c.commutative ? "" : ", rank order") + (c.repeatable ? ", repeatable" : "") + ", form " +
         std::to_string(static_cast<int>(each.form)) + ", chunk " + std::to_string(c.chunk) + ", hosts of " +
         std::to_string(c.ranks_per_host) + (c.counts_at_root ? ", counts at root" : "");
}

World::World(const Case& each, std::mt19937& random) : case_(each) {
  for (uint32_t rank = 0; rank < each.collective.size; ++rank) {
    ranks_.push_back({each.collective, {}});
    ranks_.back().collective.rank = rank;
  }
  set_counts(random);
  set_buffers(random);
  expect();
}

void World::set_counts(std::mt19937& random) {
  const Collective& c = case_.collective;
  const bool v = case_.form != Form::equal, gaps = case_.form == Form::offsets;
  const auto draw = [&] { return v && random() % 3 == 0 ? 0 : v ? random() % (c.count + 1) : c.count; };
  std::vector<std::vector<uint64_t>> moved(c.size, std::vector<uint64_t>(c.size));  // alltoall: [from][to]
  std::vector<uint64_t> of_rank(c.size);                                            // others
  for (uint32_t i = 0; i < c.size; ++i) {
    of_rank[i] = draw();
    for (uint32_t k = 0; k < c.size; ++k) moved[i][k] = c.in_place && k < i ? moved[k][i] : draw();
  }
  for (uint32_t i = 0; i < c.size; ++i) {
    Counts& counts = ranks_[i].counts;
    counts.send = counts.recv = of_rank;
    for (uint32_t k = 0; k < c.size && c.kind == Kind::alltoall; ++k) {
      counts.send[k] = moved[i][k];
      counts.recv[k] = moved[k][i];
    }
    counts.send_at = offsets_of(counts.send, gaps, random);
    counts.recv_at = offsets_of(counts.recv, gaps, random);
  }
  for (Rank& rank : ranks_) {
    Collective& here = rank.collective;
    if (!v) continue;
    const bool knows = !c.counts_at_root || here.rank == c.root;
    if (!knows) here.count = of_rank[here.rank];
    if (knows && (c.kind == Kind::alltoall || c.kind == Kind::scatter)) here.send_counts = rank.counts.send.data();
    if (knows && c.kind != Kind::scatter) here.recv_counts = rank.counts.recv.data();
    if (gaps) here.send_offsets = rank.counts.send_at.data();
    if (gaps) here.recv_offsets = rank.counts.recv_at.data();
  }
}

/// What goes to a rank, or comes from it.
Part World::block(uint32_t rank, bool sent, uint32_t of) const {
  const Counts& counts = ranks_[rank].counts;
  const uint64_t element = case_.collective.element;
  return {sent ? Where::input : Where::output, (sent ? counts.send_at : counts.recv_at)[of] * element,
          (sent ? counts.send : counts.recv)[of] * element};
}

/// Bytes of the buffer with a block for each rank.
uint64_t World::needed(uint32_t rank, bool sent) const {
  uint64_t most = 0;
  for (uint32_t i = 0; i < case_.collective.size; ++i) {
    const Part part = block(rank, sent, i);
    most = std::max(most, part.offset + part.length);
  }
  return most;
}

void World::set_buffers(std::mt19937& random) {
  const Collective& c = case_.collective;
  for (uint32_t rank = 0; rank < c.size; ++rank) {
    const bool root = rank == c.root, in_place = c.in_place && (root || !with_root(c.kind));
    uint64_t input = c.bytes(), output = c.bytes();
    const uint64_t own = ranks_[rank].counts.recv[rank] * c.element;
    if (c.kind == Kind::barrier) input = output = 0;
    if (c.kind == Kind::broadcast && !root) input = 0;
    if (c.kind == Kind::reduce && !root) output = 0;
    if (c.kind == Kind::reduce_scatter || c.kind == Kind::alltoall) input = needed(rank, true);
    if (c.kind == Kind::reduce_scatter) output = in_place ? std::max(input, own) : own;
    if (c.kind == Kind::alltoall || c.kind == Kind::allgather) output = needed(rank, false);
    if (c.kind == Kind::gather) output = root ? needed(rank, false) : 0;
    if (c.kind == Kind::allgather || c.kind == Kind::gather) input = own;
    if (c.kind == Kind::scatter) input = root ? needed(rank, true) : 0;
    if (c.kind == Kind::scatter) output = in_place ? 0 : ranks_[rank].counts.send[rank] * c.element;
    if (in_place && c.kind != Kind::scatter) input = 0;
    Memory& memory = before_.emplace_back();
    memory[Where::input].resize(input);
    memory[Where::output].resize(output);
    for (Bytes& bytes : memory.buffers) {
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
      if (case_.operation != Operation::add_floats) continue;
      for (size_t i = 0; i + sizeof(float) <= bytes.size(); i += sizeof(float)) {
        const float value = std::ldexp(static_cast<float>(random() % 65536), static_cast<int>(random() % 24) - 12);
        std::memcpy(&bytes[i], &value, sizeof value);
      }
    }
  }
  after_ = before_;
}

/// Of what a rank brings, wherever it lies.
Bytes World::input_of(uint32_t rank, const Part& part) const {
  const Collective& c = case_.collective;
  const bool in_place = c.in_place && (rank == c.root || !with_root(c.kind)) && c.kind != Kind::scatter;
  const Bytes& buffer = before_[rank].buffers[static_cast<size_t>(in_place ? Where::output : Where::input)];
  const auto begin = buffer.begin() + static_cast<ptrdiff_t>(part.offset);
  return {begin, begin + static_cast<ptrdiff_t>(part.length)};
}

void World::put(uint32_t rank, uint64_t offset, const Bytes& bytes) {
  std::ranges::copy(bytes, after_[rank][Where::output].begin() + static_cast<ptrdiff_t>(offset));
}

void World::expect() {
  const Kind kind = case_.collective.kind;
  const bool reduces = kind == Kind::reduce || kind == Kind::allreduce || kind == Kind::reduce_scatter || kind == Kind::scan ||
                       kind == Kind::exclusive_scan;
  reduces ? reduce_expected() : move_expected();
}

void World::reduce_expected() {
  const Collective& c = case_.collective;
  for (uint32_t rank = 0; rank < c.size; ++rank) {
    if (c.kind == Kind::reduce && rank != c.root) continue;
    if (c.kind == Kind::exclusive_scan && rank == 0) continue;
    uint32_t last = c.size - 1;
    if (c.kind == Kind::scan) last = rank;
    if (c.kind == Kind::exclusive_scan) last = rank - 1;
    const auto part = [&](uint32_t of) {
      return c.kind == Kind::reduce_scatter ? block(of, true, rank) : Part{Where::input, 0, c.bytes()};
    };
    Bytes sum = input_of(0, part(0));
    for (uint32_t of = 1; of <= last; ++of) combine(case_.operation, sum, input_of(of, part(of)));
    put(rank, 0, sum);
  }
}

void World::move_expected() {
  const Collective& c = case_.collective;
  const Part whole{Where::input, 0, c.bytes()};
  for (uint32_t rank = 0; rank < c.size; ++rank) {
    if (c.kind == Kind::broadcast) put(rank, 0, input_of(c.root, whole));
    if (c.kind == Kind::scatter && !(c.in_place && rank == c.root)) put(rank, 0, input_of(c.root, block(c.root, true, rank)));
    for (uint32_t from = 0; from < c.size; ++from) {
      const Part to = block(rank, false, from);
      const bool own_place = c.in_place && (c.kind == Kind::allgather || from == c.root);  // gather: of the root's
      const Part own = own_place ? block(from, false, from) : Part{Where::input, 0, to.length};
      if (c.kind == Kind::allgather || (c.kind == Kind::gather && rank == c.root)) put(rank, to.offset, input_of(from, own));
      if (c.kind == Kind::alltoall) put(rank, to.offset, input_of(from, block(from, !c.in_place, rank)));
    }
  }
}

std::vector<Schedule> World::write(const Algorithm& algorithm) const {
  std::vector<Schedule> schedules(ranks_.size());
  for (size_t i = 0; i < ranks_.size(); ++i) algorithm.write(ranks_[i].collective, &schedules[i]);
  return schedules;
}

std::string World::compare(std::vector<Memory>& memories) const {
  for (size_t rank = 0; rank < memories.size(); ++rank) {
    for (size_t where = 0; where < 2; ++where) {
      if (memories[rank].buffers[where] == after_[rank].buffers[where]) continue;
      return "rank " + std::to_string(rank) + (where == 0 ? ": input was changed" : ": wrong output");
    }
  }
  return "";
}

}  // namespace thalweg::impl::test
