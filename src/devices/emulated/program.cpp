// SPDX-License-Identifier: Apache-2.0
// Running a program: blocks that take turns in one thread.
#include "devices/emulated/program.hpp"

#include <algorithm>
#include <deque>
#include <random>

#include "devices/emulated/machine.hpp"
#include "devices/program/host.hpp"
#include "devices/program/one_thread_run.hpp"
#include "devices/program/wait_ahead.hpp"

namespace thalweg::impl::emulated {
namespace {

constexpr unsigned kSettle = 8;  // turns of a block, on average, until its stores show without a fence

/// A block and what it has to itself.
struct RunningBlock {
  RunningBlock(const EmulatedDevice* device, bool skip_fences, const ProgramRun& program, uint32_t block)
      : memory(device, skip_fences), block(Machine(memory), program, block) {}

  BlockMemory memory;
  OneThreadBlock<Machine> block;
};

/// Until turn() is not TW_IN_PROGRESS. A program's waits are bounded by its guard, not by the stream; of a stream that ends they
/// end at once, by give_up().
Status drive(EmulatedStream& stream, const std::function<Status()>& turn, const std::function<void()>& give_up) {
  Status status = TW_ERR_TIMED_OUT;
  while (status == TW_ERR_TIMED_OUT) status = stream.await(turn);
  if (status != TW_ERR_CLOSED) return status;
  give_up();
  while (turn() == TW_IN_PROGRESS) continue;
  return status;
}

constexpr int64_t kEnded = TW_ERR_CLOSED;

template <class M>
void fail_ended(M m, const ProgramRun& program) {
  device::fail(m, program.guard, kEnded, program.steps.size(), 0, 0);
}

/// A run that will not begin: notifies its plan, which stops waiting for it.
void lose(const EmulatedDevice* device, const ProgramRun& program) {
  const auto count = [&](auto m) {
    fail_ended(m, program);
    count_in_vain(m, reinterpret_cast<device::ProgramState*>(program.state), static_cast<uint32_t>(program.steps.size()),
                  device == nullptr ? 1 : program.shape.blocks);
  };
  if (device == nullptr) return count(device::DirectMachine());
  BlockMemory memory(device, false);
  count(Machine(memory));
}

/// The blocks of a run. A stepped stream comes back to them.
class BlocksRun {
 public:
  BlocksRun(const EmulatedDevice* device, EmulatedStream& stream, const ProgramRun& program)
      : program_(program), order_(stream.stepped() ? kStepped : std::random_device{}()) {
    for (uint32_t i = 0; i < program.shape.blocks; ++i)
      waiting_.push_back(&blocks_.emplace_back(device, stream.engine().options.skip_fences, program, i));
  }
  Status turn() {
    std::shuffle(waiting_.begin(), waiting_.end(), order_);
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      const bool over = (*at)->block.over();
      // Other blocks may take long, and wait for what this one stored last.
      if (over || order_() % kSettle == 0) (*at)->memory.stores.settle();
      if (is_error((*at)->memory.failed)) return (*at)->memory.failed;
      at = over ? waiting_.erase(at) : at + 1;
    }
    return waiting_.empty() ? TW_OK : TW_IN_PROGRESS;
  }
  void give_up() { fail_ended(Machine(blocks_.front().memory), program_); }

 private:
  static constexpr unsigned kStepped = 1;  // stepping has to be reproducible
  const ProgramRun program_;
  std::mt19937 order_;
  std::deque<RunningBlock> blocks_;  // executors stay where they are
  std::vector<RunningBlock*> waiting_;
};

class HostRun {
 public:
  explicit HostRun(const ProgramRun& program) : program_(program), run_(program) {}
  Status start() { return run_.start(); }
  Status turn() { return run_.advance(); }
  void give_up() { fail_ended(device::DirectMachine(), program_); }

 private:
  const ProgramRun program_;
  HostProgram run_;
};

/// What the stream keeps of a run until it is over.
template <class Run>
Status go_on(EmulatedStream& stream, Run& run) {
  return drive(stream, [&] { return run.turn(); }, [&] { run.give_up(); });
}

Status run_on_device(const EmulatedDevice* device, EmulatedStream& stream, const ProgramRun& program) {
  if (stream.kept() == nullptr) stream.kept() = std::make_shared<BlocksRun>(device, stream, program);
  return go_on(stream, *static_cast<BlocksRun*>(stream.kept().get()));
}

Status run_on_host(EmulatedStream& stream, const ProgramRun& program) {
  if (stream.kept() == nullptr) {
    const auto run = std::make_shared<HostRun>(program);
    if (Status s = run->start(); is_error(s)) return s;
    stream.kept() = run;
  }
  return go_on(stream, *static_cast<HostRun*>(stream.kept().get()));
}

/// The steps of a run, kept for its task.
struct Baked {
  explicit Baked(const ProgramRun& from)
      : steps(from.steps.begin(), from.steps.end()), after(from.after.begin(), from.after.end()), run(from) {
    run.steps = steps;
    run.after = after;
    if (from.exchange == nullptr) return;
    exchange = *from.exchange;
    run.exchange = &exchange;
    if (from.counts == nullptr) return;
    counts = *from.counts;
    run.counts = &counts;
  }
  const std::vector<device::Step> steps;
  const std::vector<uint32_t> after;
  device::Exchange exchange{};
  device::ExchangeCounts counts{};
  ProgramRun run;
};

Status run_placed(const EmulatedDevice* device, EmulatedStream& stream, ProgramRun program) {
  Place place;
  const size_t bytes = placed_bytes(program.steps, program.after, program.shape);
  if (Status s = locate(device, Use::kernel, program.placed, 0, static_cast<int64_t>(bytes), &place); is_error(s)) return s;
  program.steps = {reinterpret_cast<const device::Step*>(place.pointer), program.steps.size()};
  program.after = {reinterpret_cast<const uint32_t*>(program.steps.data() + program.steps.size()), program.after.size()};
  return run_on_device(device, stream, program);
}

/// The block of a kernel that waits ahead of a program's.
class AheadRun {
 public:
  AheadRun(const EmulatedDevice* device, bool skip_fences, const device::WaitAhead& waits)
      : waits_(waits), memory_(device, skip_fences), lane_(Machine(memory_), waits, 0, 1) {
    lane_.begin();
  }
  Status turn() {
    const bool over = lane_.pass();
    if (is_error(memory_.failed)) return memory_.failed;
    return over ? TW_OK : TW_IN_PROGRESS;
  }
  void give_up() { device::fail(Machine(memory_), waits_.guard, kEnded, waits_.step_count, 0, 0); }

 private:
  const device::WaitAhead& waits_;
  BlockMemory memory_;
  device::AheadLane<Machine> lane_;
};

}  // namespace

Twin make_wait_ahead(const EmulatedDevice* device, const Options& options, const device::WaitAhead& waits) {
  return [device, skip_fences = options.skip_fences,
          baked = std::make_shared<const device::WaitAhead>(waits)](EmulatedStream& stream) {
    if (stream.kept() == nullptr) stream.kept() = std::make_shared<AheadRun>(device, skip_fences, *baked);
    return go_on(stream, *static_cast<AheadRun*>(stream.kept().get()));
  };
}

Status make_program(const EmulatedDevice* device, const ProgramRun& program, Task* out) {
  const bool placed = device != nullptr && program.placed != 0;
  if (device != nullptr && !placed && !fits_inline(program.steps.size(), program.after.size()))
    return fail(TW_ERR_INVALID, "a program of %zu steps must be placed where the device reads it", program.steps.size());
  out->kernel = device != nullptr;
  out->lost = [=] { lose(device, program); };
  if (placed) {  // the caller keeps steps that it placed
    out->run = [=](EmulatedStream& stream) { return run_placed(device, stream, program); };
    return TW_OK;
  }
  auto baked = std::make_shared<const Baked>(program);
  out->run = [=](EmulatedStream& stream) {
    return device == nullptr ? run_on_host(stream, baked->run) : run_on_device(device, stream, baked->run);
  };
  return TW_OK;
}

}  // namespace thalweg::impl::emulated
