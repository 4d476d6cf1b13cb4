// SPDX-License-Identifier: Apache-2.0
// Prepared steps, as a queue or the host runs them: device::Step in thalweg/device/types.hpp describes each one.
//
// Who prepares a program fills in the steps, has arrange() check and complete them, keeps `state` zeroed in the executor's
// memory, and runs it again and again: by Queue::run(), by a graph that holds such runs, or by HostRun in program/host.hpp.
// Steps without `after` have no order among each other. A step that has to wait holds up nothing but what comes after it, so no
// order of the list can lock two programs against each other.
//
// One run at a time: a second one that begins meanwhile changes nothing but Failure, which then has TW_ERR_BUSY. A wait that
// fails (its limit, Guard::abort, a truncated receive) fills in Failure and sets its abort flag: what has not been done by then
// is not done, no later run does anything, and the queue goes on. It is used again after its state has been zeroed, and that
// of its channels.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.hpp"
#include "devices/program/exchange_counted.hpp"
#include "devices/program/specialised.hpp"
#include "thalweg/device/types.hpp"

namespace thalweg::impl {

constexpr uint32_t kMostSteps = 4096;
constexpr uint32_t kMostBlocks = 64;  // all of them must find room at once, beside the caller's kernels
/// Programs of more steps, or more numbers in `after`, are run from ProgramRun::placed.
constexpr uint32_t kInlineSteps = 12, kInlineAfter = 64;

/// How a device divides a program; the same for all of its runs.
struct ProgramShape {
  uint32_t blocks = 1;   // thread blocks, a power of two
  uint32_t item = 0;     // packed bytes that a warp copies at a time
  uint32_t threads = 0;  // of a block
  bool reduces = false;  // a step does: another kernel
  device::Specialised specialised;
};

/// Thread blocks that a program may have. They wait for each other and for those of other ranks, so all of them must find room at
/// once, and each may take a multiprocessor to itself. multiprocessors: 0: the host, whose blocks take turns. shared: kernels of
/// ranks that this program waits for run on the same device; how many there are nobody knows, and kSharers find room.
constexpr uint32_t kSharers = 4;
uint32_t most_blocks(uint32_t multiprocessors, bool shared);

/// Completes steps that are otherwise filled in: numbers them within their channels and divides what they move. Once: what it
/// completes is not what it takes. TW_ERR_INVALID: `after` names a step that is not an earlier one, or a step lacks an address;
/// TW_ERR_UNSUPPORTED: more than kMostSteps, or more than device::kSlots receives of one channel. `blocks`: thread blocks wanted, 0:
/// chosen; never more than `most`, of most_blocks(). An exchange's are those of all ranks, which have agreed on them.
Status arrange(std::span<device::Step> steps, std::span<const uint32_t> after, uint32_t blocks, uint32_t most,
               ProgramShape* out);

/// Runs what a program rings for, in the progress of the thread that runs the program. True: something happened.
struct Carrier {
  virtual ~Carrier() = default;
  virtual bool drive() = 0;
};

struct ProgramRun {
  std::span<const device::Step> steps;  // arranged; host memory, which the call reads and does not keep
  std::span<const uint32_t> after;
  uint64_t placed = 0;    // what place() wrote, in memory that the executor reads at every run; 0 where the steps are few
  uint64_t state = 0;     // device::ProgramState, executor's memory, state_bytes() long, zeroed before the first run
  device::Guard guard{};  // of every wait; the abort flag is the state's
  ProgramShape shape{};
  std::shared_ptr<Carrier> carrier;            // of runs by the host; null: nothing is rung for, or another thread handles it
  const device::Exchange* exchange = nullptr;  // of a program that is one; host memory, which the call reads and does not keep
  const device::ExchangeCounts* counts = nullptr;  // the same, of one whose counts lie in device memory
  bool shares_device = false;  // the exchange waits for kernels of this device: none behind it may take their room
  uint64_t over = 0;           // device::Program::over
  uint64_t times = 0;          // ... ::times
  uint32_t kept_runs = 0;
};

/// As its executor reads it, with its steps where the caller has them.
inline device::Program program_of(const ProgramRun& run) {
  return {run.steps.data(),
          static_cast<uint32_t>(run.steps.size()),
          run.after.data(),
          reinterpret_cast<device::ProgramState*>(run.state),
          run.guard,
          reinterpret_cast<device::u64*>(run.over),
          reinterpret_cast<device::StepTime*>(run.times),
          run.kept_runs};
}

constexpr bool fits_inline(size_t steps, size_t after) { return steps <= kInlineSteps && after <= kInlineAfter; }
constexpr size_t state_bytes(size_t steps) {
  return sizeof(device::ProgramState) + (steps + kMostBlocks + 1) * sizeof(uint64_t);  // ownership.hpp
}
/// What ProgramRun::placed must hold: the steps, `after`, of a list which step each of its pieces is of, and of independent steps their
/// order (independent_order).
size_t placed_bytes(std::span<const device::Step> steps, std::span<const uint32_t> after, const ProgramShape& shape);
/// Written to host memory, for the caller to bring there.
void place(std::span<const device::Step> steps, std::span<const uint32_t> after, const ProgramShape& shape, std::byte* out);
/// The abort flag of the program's Guard.
inline device::u64* abort_flag_of(uint64_t state) {
  return reinterpret_cast<device::u64*>(state + offsetof(device::ProgramState, abort_flag));
}

}  // namespace thalweg::impl
