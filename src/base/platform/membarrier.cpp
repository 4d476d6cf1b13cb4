// SPDX-License-Identifier: Apache-2.0
// The membarrier system call.
#include "base/platform/membarrier.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "base/platform/fork.hpp"

namespace thalweg::impl::membarrier {
namespace {

long call(int command) { return syscall(SYS_membarrier, command, 0, 0); }

// Fork generation and answer in one word: generation * 2 + available; 0: not asked yet.
std::atomic<uint64_t> answer{0};

bool ask() {
  const long commands = call(MEMBARRIER_CMD_QUERY);
  constexpr long kNeeded = MEMBARRIER_CMD_GLOBAL_EXPEDITED | MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED;
  return commands >= 0 && (commands & kNeeded) == kNeeded && call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

}  // namespace

bool available() {
  const uint64_t known = answer.load(std::memory_order_acquire);
  const uint64_t generation = fork_generation();
  if (known / 2 == generation) return known & 1;
  const bool yes = ask();
  answer.store(generation * 2 + (yes ? 1 : 0), std::memory_order_release);
  return yes;
}

void global() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (available()) call(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

}  // namespace thalweg::impl::membarrier
