// SPDX-License-Identifier: Apache-2.0
// One collective of some ranks: what each is told, its buffers, and what they have to hold afterwards, found without any
// schedule.
#pragma once
#include "collectives/algorithms.hpp"
#include "simulator.hpp"

namespace thalweg::impl::test {

/// counts: of each rank's own, some of them 0. offsets: and blocks in another order, with gaps.
enum class Form : uint8_t { equal, counts, offsets };

struct Case {
  Collective collective;  // but for rank and what the form says
  Operation operation = Operation::bytes;
  Form form = Form::equal;
};
std::string text_of(const Case& each);

class World {
 public:
  World(const Case& each, std::mt19937& random);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Collective& collective(uint32_t rank) const { return ranks_[rank].collective; }
  std::vector<Schedule> write(const Algorithm& algorithm) const;
  /// Copies, to be changed by a run.
  std::vector<Memory> memories() const { return before_; }
  /// "", or which rank's buffer differs from what has to be there. Bytes around what is received have to stay.
  std::string compare(std::vector<Memory>& memories) const;

 private:
  struct Counts {
    std::vector<uint64_t> send, send_at, recv, recv_at;
  };
  struct Rank {
    Collective collective;
    Counts counts;
  };
  void set_counts(std::mt19937& random);
  void set_buffers(std::mt19937& random);
  void expect();
  void reduce_expected();
  void move_expected();
  Part block(uint32_t rank, bool sent, uint32_t of) const;
  Bytes input_of(uint32_t rank, const Part& part) const;
  void put(uint32_t rank, uint64_t offset, const Bytes& bytes);
  uint64_t needed(uint32_t rank, bool sent) const;

  Case case_;
  std::vector<Rank> ranks_;
  std::vector<Memory> before_, after_;
};

}  // namespace thalweg::impl::test
