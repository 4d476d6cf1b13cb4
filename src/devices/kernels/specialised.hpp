// SPDX-License-Identifier: Apache-2.0
// One run of a program that has a specialised kernel, one for each kind of polled step and move. Blocks of a power of two of
// whole warps; blocks of one program need not all be there at once, but those of its peer must come. All is in line, but what
// copy_apart() keeps away.
#pragma once
#include <type_traits>

#include "devices/kernels/arguments.hpp"
#include "devices/kernels/batch.hpp"
#include "devices/program/specialised_run.hpp"

namespace thalweg::impl::kernels {

namespace machine = device::machine;
using device::i64;
using device::Move;
using device::Part;
using device::Poll;
using device::Ready;
using device::Sending;
using device::Side;
using device::Step;
using device::Word16;

/// What a block's first thread found, for all.
struct SpecialisedShared {
  u32 started;
  Side to;  // of a send
};

/// Not in line: most runs are of aligned contiguous memory.
THALWEG_DEVICE_COLD void copy_apart(u32 rank, u32 size, const Side* to, const Side* from, u64 bytes, Part part) {
  device::copy_part(device::DirectMachine(), rank, size, *to, *from, bytes, part);
}

/// Where the steps are; of a list, which one a piece is of; of independent steps, their order (independent_order).
template <class Arguments>
struct SpecialisedSteps {
  const Arguments& arguments;
  THALWEG_DEVICE const Step& step(u32 i) const { return arguments.steps[i]; }
  THALWEG_DEVICE u32 step_of(u32 piece) const {
    u32 which = 0;
    for (u32 i = 0; i < arguments.common.program.step_count; ++i) {
      if (arguments.steps[i].kind == device::StepKind::copy && arguments.steps[i].recv_buffer <= piece) which = i;
    }
    return which;
  }
  THALWEG_DEVICE u32 order(u32 k) const {
    const device::Specialised& all = arguments.common.specialised;
    const u32 kind = k < all.moves ? 0 : k < all.moves + all.polls ? 1 : 2;
    u32 left = k - (kind == 0 ? 0 : kind == 1 ? all.moves : all.moves + all.polls), i = 0;
    for (;; ++i) {
      if (kind_of(arguments.steps[i].kind) == kind && left-- == 0) return i;
    }
  }

 private:
  static THALWEG_DEVICE u32 kind_of(device::StepKind kind) {
    return kind == device::StepKind::post ? 2 : kind == device::StepKind::take || kind == device::StepKind::wait ? 1 : 0;
  }
};
template <>
struct SpecialisedSteps<ProgramArguments> {
  const ProgramArguments& arguments;
  THALWEG_DEVICE const Step& step(u32 i) const { return arguments.program.steps[i]; }
  THALWEG_DEVICE u32 step_of(u32 piece) const { return machine::constant(arguments.numbers + piece); }
  THALWEG_DEVICE u32 order(u32 k) const { return machine::constant(arguments.numbers + k); }
};

THALWEG_DEVICE u32 first_piece() { return (machine::block_x() * machine::threads_x() + machine::thread_x()) / machine::kLanes; }

/// Warps take pieces of a list's copies in turn. which: the step of a warp's first one.
template <class Steps>
THALWEG_DEVICE void move_list(const Steps& steps, const ProgramArguments& common, u32 which) {
  const u32 all = machine::threads_x() / machine::kLanes * common.blocks;
  for (u32 piece = first_piece(); piece < common.specialised.items; piece += all) {
    const Step& step = steps.step(which);
    const u64 at = u64{piece - step.recv_buffer} * common.item, left = step.bytes - at;
    const Part part{at, at + (left < common.item ? left : common.item)};
    if (step.atomic_bytes == sizeof(Word16)) {
      device::copy_rows<Word16>(device::DirectMachine(), machine::thread_x() % machine::kLanes, machine::kLanes, step.to,
                                step.from, part);
    } else {
      copy_apart(machine::thread_x() % machine::kLanes, machine::kLanes, &step.to, &step.from, step.bytes, part);
    }
    if (piece + all < common.specialised.items) which = steps.step_of(piece + all);
  }
}

/// One step's bytes, by all threads of all blocks: warps of the blocks in turn, so that what is less than a word for each thread
/// still takes all of them. What a thread moves at once is loaded before the waits are over, unless it waits for the polled
/// step.
template <Move kMove>
class Mover {
 public:
  using Word = std::conditional_t<kMove == Move::rows8, u64, std::conditional_t<kMove == Move::rows4, u32, Word16>>;
  static constexpr bool kRows = kMove == Move::rows4 || kMove == Move::rows8 || kMove == Move::rows16;

  THALWEG_DEVICE Mover(const Step& step, u32 blocks)
      : step_(step),
        rank_((machine::thread_x() / machine::kLanes * blocks + machine::block_x()) * machine::kLanes +
              machine::thread_x() % machine::kLanes),
        size_(machine::threads_x() * blocks),
        one_(kMove == Move::aligned && step.bytes == 8),
        batch_fits_(kMove != Move::sides && Batch<Word>::holds(step.bytes / sizeof(Word), size_)) {
    if (kMove != Move::send) return;
    const u64 common = step.from.base | step.bytes;
    one_ = step.bytes == 8 && common % 8 == 0;
    batch_fits_ = batch_fits_ && (one_ || common % 16 == 0) && device::contiguous(step.from);
  }
  THALWEG_DEVICE void load() {
    if (!batch_fits_ || loaded_) return;
    loaded_ = true;
    if constexpr (kRows) {
      batch_.load(device::WordSide(step_.from, sizeof(Word)), rank_, size_, words());
    } else if (!one_) {
      batch_.load(WordLine{step_.from.base, sizeof(Word)}, rank_, size_, words());
    } else if (rank_ == 0) {
      single_ = *reinterpret_cast<const u64*>(step_.from.base);
    }
  }
  /// to: the step's target, or where a contiguous receive buffer is.
  THALWEG_DEVICE void store(u64 to) {
    if (!batch_fits_) return copy(to);
    load();
    if constexpr (kRows) {
      batch_.store(device::WordSide(step_.to, sizeof(Word)), rank_, size_, words());
    } else if (!one_) {
      batch_.store(WordLine{to, sizeof(Word)}, rank_, size_, words());
    } else if (rank_ == 0) {
      *reinterpret_cast<u64*>(to) = single_;
    }
  }
  /// A receive buffer of any layout or alignment.
  THALWEG_DEVICE void store(const SpecialisedShared& landed) {
    const u64 common = landed.to.base | step_.from.base | step_.bytes;
    const bool words = common % 16 == 0 || (one_ && common % 8 == 0);
    if (device::contiguous(landed.to) && words && device::contiguous(step_.from)) return store(landed.to.base);
    copy_apart(rank_, size_, &landed.to, &step_.from, step_.bytes, Part{0, step_.bytes});
  }

 private:
  THALWEG_DEVICE u32 words() const { return static_cast<u32>(step_.bytes / sizeof(Word)); }
  THALWEG_DEVICE void copy(u64 to) const {
    if constexpr (kRows) {
      device::copy_rows<Word>(device::DirectMachine(), rank_, size_, step_.to, step_.from, Part{0, step_.bytes});
    } else if constexpr (kMove == Move::sides) {
      copy_apart(rank_, size_, &step_.to, &step_.from, step_.bytes, Part{0, step_.bytes});
    } else {
      device::copy_words<Word16>(device::DirectMachine(), rank_, size_, to, step_.from.base, step_.bytes / sizeof(Word16));
    }
  }

  const Step& step_;
  const u32 rank_, size_;
  bool one_;  // word of 8 bytes
  bool batch_fits_, loaded_ = false;
  u64 single_ = 0;
  Batch<Word> batch_;
};

enum class Wait : u32 { credit, before, after };

template <Wait kWait, class Run>
THALWEG_DEVICE bool await(Run& run) {
  for (;;) {
    const Ready ready = kWait == Wait::credit ? run.credit() : kWait == Wait::before ? run.before() : run.after();
    if (ready != Ready::no) return ready == Ready::yes;
    if (run.timed_out()) return false;
  }
}

/// By all threads of a block that is refused: what they load ahead of the waits may be given back as soon as it is counted.
THALWEG_DEVICE_COLD void turn_away(device::ProgramState* state, u32 steps) {
  machine::full_fence_near();
  machine::sync_block();
  if (machine::thread_x() == 0) device::count_in_vain(device::DirectMachine(), state, steps, 1);
}

constexpr u32 kBegun = 1, kMoves = 2, kTooShort = 4;

/// By the first thread, up to the move.
template <Move kMove, class Run>
THALWEG_DEVICE u32 start_block(Run& run, SpecialisedShared& shared) {
  if (!run.begin()) return 0;
  u32 started = kBegun | kMoves;
  if constexpr (kMove == Move::send) {
    if (!await<Wait::credit>(run)) return kBegun;
    // Not read before: it may be another one until the credit names it.
    const Sending sending = device::begin_send(device::DirectMachine(), run.recv_buffer(), 0, 0, run.move_step().bytes);
    shared.to = sending.to;
    if (!run.fits(sending.capacity)) started = kBegun | kTooShort;
  }
  return await<Wait::before>(run) ? started : kBegun;
}

/// By a block's first warp, behind what the block does. announce(): what the last block's announces; by all lanes, where kLanesAnnounce.
template <bool kLanesAnnounce, class Run, class Announce>
THALWEG_DEVICE void end_block(Run& run, const ProgramArguments& common, bool failed, Announce announce) {
  if (common.blocks != 1 && machine::from_lane<u32>(machine::thread_x() == 0 && run.arrive(failed), 0) == 0) return;
  if (kLanesAnnounce || common.blocks != 1)
    failed = run.join(machine::from_lane(run.run(), 0), machine::from_lane(run.outcome(), 0)) || failed;
  if (!failed) failed = !announce();
  if (machine::thread_x() == 0) {
    if (!failed) failed = !await<Wait::after>(run);
    run.count(failed);
  }
  failed = machine::any_lane(failed);
  run.end(failed, machine::thread_x(), machine::kLanes);
}

template <Poll kPoll, Move kMove, class Arguments>
THALWEG_DEVICE void run_specialised(const Arguments& arguments, const ProgramArguments& common, SpecialisedShared& shared) {
  machine::start_early();
  const device::DirectMachine m;
  const SpecialisedSteps<Arguments> steps{arguments};
  device::SpecialisedRun<device::FixedSpecialised<kPoll, kMove>, device::DirectMachine, SpecialisedSteps<Arguments>> run(
      m, {}, steps, common.program, common.specialised, common.blocks, machine::block_x());
  u32 which = 0;
  if (kMove == Move::list && first_piece() < common.specialised.items) which = steps.step_of(first_piece());
  if constexpr (kMove == Move::none || kMove == Move::list) {
    if (machine::thread_x() == 0) shared.started = start_block<kMove>(run, shared);
    machine::sync_block();
    if (shared.started == 0) return turn_away(common.program.state, common.program.step_count);
    if (kMove == Move::list && (shared.started & kMoves) != 0) move_list(steps, common, which);
  } else {
    Mover<kMove> mover(steps.step(common.specialised.move_step), common.blocks);
    if (kMove != Move::sides && (kPoll == Poll::none || common.specialised.behind == 0)) mover.load();
    if (machine::thread_x() == 0) shared.started = start_block<kMove>(run, shared);
    machine::sync_block();
    if (shared.started == 0) return turn_away(common.program.state, common.program.step_count);
    if ((shared.started & kMoves) != 0) {
      if constexpr (kMove == Move::send) {
        mover.store(shared);
      } else {
        mover.store(steps.step(common.specialised.move_step).to.base);
      }
    }
  }
  const u32 started = shared.started;
  if constexpr (kMove != Move::none) machine::sync_block();
  if (machine::thread_x() >= machine::kLanes) return;
  end_block<kMove == Move::list>(run, common, started == kBegun,
                                 [&] { return run.announce(machine::thread_x(), machine::kLanes); });
}

}  // namespace thalweg::impl::kernels
