// SPDX-License-Identifier: Apache-2.0
// How an emulated device behaves, and what goes wrong on it.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "base/status.hpp"

namespace thalweg::impl::emulated {

/// What can be made to fail. `run`: a queue's task breaks when its turn comes, and the queue with it. `word`: a queue's store to a
/// word, or wait for one, is refused; `event`: to record an event, or to wait for one.
enum class Operation : uint8_t { allocate, export_memory, import_memory, copy, launch, run, queue, word, event, count_ };

struct Options {
  uint64_t task_delay_ns = 0;               // before every task of a queue
  uint64_t import_delay_ns = 0;             // of every import
  uint64_t release_delay_ns = 0;            // of every unpinning, before it waits for kernels
  uint64_t wait_limit_ns = 60'000'000'000;  // of whatever would wait for ever on a GPU; then the queue is broken
  uint64_t capacity = uint64_t{64} << 30;   // bytes that can be allocated at a time
  uint64_t vmm_piece = 2u << 20;            // bytes, whole pages: vmm memory consists of such pieces
  unsigned kernel_slots = 8;                // kernels that run at a time
  bool kernels = true;                      // false: as a build without them
  uint64_t peers = ~uint64_t{0};            // bit i: kernels and imports reach device i
  uint64_t peer_atomics = ~uint64_t{0};     // bit i: so do atomics
  bool stepped = false;      // no threads: queues go on by EmulatedDevice::step() only, so that a test decides when
  bool skip_fences = false;  // makes kernels wrong, to see a test notice
  std::array<unsigned, static_cast<size_t>(Operation::count_)> fail_at{};  // the n-th call fails; 0: none

  void fail(Operation operation, unsigned nth) { fail_at[static_cast<size_t>(operation)] = nth; }
};

/// "devices=2,peers=10/01,slots=1,kernels=0,delay_ns=1000,import_delay_ns=,release_delay_ns=,wait_limit_ns=,capacity=,vmm_piece=,
/// fail_import=3": one Options per device. peers has a row a device, a column a device it reaches. Other faults:
/// fail_allocate, fail_export, fail_copy, fail_launch, fail_run, fail_queue, fail_word, fail_event.
Status parse_options(const char* text, std::vector<Options>* out);

}  // namespace thalweg::impl::emulated
