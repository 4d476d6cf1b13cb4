// SPDX-License-Identifier: Apache-2.0
// Two ranks of a window in this process, and calls by every thread group by host threads whose stores become visible late.
#pragma once
#include <functional>
#include <thread>

#include "tests/device/area.hpp"
#include "tests/device/twins.hpp"

namespace thalweg::device::twins {

/// A guard with its words.
struct Watched {
  u64 poison = 0;
  Failure failure{};
  u64 abort = 0;
  Guard guard(u64 limit_ns = 20'000'000'000) { return {&poison, &failure, &abort, limit_ns}; }
  i64 code() const { return __atomic_load_n(&failure.code, __ATOMIC_ACQUIRE); }
};

struct Ranks {
  static constexpr size_t kLength = 16384;
  Area part[2] = {Area(kLength), Area(kLength)};
  char* bases[2];
  Watched watched[2];
  Window window[2];

  Ranks() {
    for (u32 r = 0; r < 2; ++r) {
      bases[r] = reinterpret_cast<char*>(part[r].data());
      window[r] = {r, 2, kLength, bases, watched[r].guard(), {bases[0]}};  // of rank 1 in bases only
    }
  }
  void set_word(u32 rank, u64 offset, u64 value) {
    std::memcpy(part[rank].data() + offset, &value, sizeof value);
    part[rank].settle();
  }
};

constexpr const char* kThreadGroups[] = {"thread", "warp", "block", "team", "blocks"};
constexpr u32 kSharers = 3;  // threads of a team, blocks of Blocks

/// Runs body(group, machine) as often as the group has threads, each on a thread of its own.
template <class Body>
void by_thread_group(const std::string& name, Body body) {
  std::vector<std::thread> threads;
  u32 arrived = 0;
  TeamState team(kSharers);
  std::vector<Pending> pending;
  for (u32 i = 0; i < kSharers; ++i) pending.emplace_back(std::random_device{}());
  const auto run = [&](u32 i, auto group, TeamState* state) {
    LateMachine machine;
    machine.pending = &pending[i];
    machine.team = state;
    body(group, machine);
    machine.fence();  // a kernel's end
  };
  const u32 count = name == "team" || name == "blocks" ? kSharers : 1;
  for (u32 i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      if (name == "thread") run(i, Thread(), nullptr);
      if (name == "warp") run(i, Warp(), nullptr);
      if (name == "block") run(i, Block(), nullptr);
      if (name == "team") run(i, Team{&team, &pending[i], i, kSharers}, &team);
      if (name == "blocks") run(i, Blocks(&arrived, i, kSharers), nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arrived, 0u) << "the word of Blocks is as it was";
}

class ByThreadGroup : public ::testing::TestWithParam<const char*> {};

}  // namespace thalweg::device::twins
