// SPDX-License-Identifier: Apache-2.0
// A block of a run that is one thread of the host: of an emulated device, which takes the way of a GPU.
#pragma once
#include <memory>
#include <optional>

#include "devices/program.hpp"
#include "devices/program/exchange_kernel.hpp"
#include "devices/program/independent_run.hpp"
#include "devices/program/one_thread.hpp"
#include "devices/program/one_thread_counted.hpp"
#include "devices/program/one_thread_exchange.hpp"
#include "devices/program/one_thread_lines.hpp"
#include "devices/program/one_thread_symmetric.hpp"
#include "devices/program/one_thread_words.hpp"
#include "devices/program/specialised_of.hpp"
#include "devices/program/specialised_run.hpp"

namespace thalweg::impl {

/// A run of a program that has a specialised kernel.
template <class M>
class OneThreadSpecialised {
 public:
  OneThreadSpecialised(M m, const device::Program& program, const ProgramShape& shape, uint32_t block)
      : m_(m),
        program_(program),
        shape_(shape),
        block_(block),
        steps_{program.steps},
        run_(m, {shape.specialised.poll, shape.specialised.move}, steps_, program_, shape_.specialised, shape.blocks, block) {}
  OneThreadSpecialised(const OneThreadSpecialised&) = delete;
  OneThreadSpecialised& operator=(const OneThreadSpecialised&) = delete;

  /// Does what can be done and waits for nothing. True: the run is over for this block.
  bool over() {
    if (part_ == Part::begin) {
      if (!run_.begin()) {
        count_in_vain(m_, program_.state, program_.step_count, 1);
        return true;
      }
      part_ = shape_.specialised.move == device::Move::send ? Part::credit : Part::before;
    }
    device::Ready credit = device::Ready::yes;
    if (part_ == Part::credit) {
      credit = ask(run_.credit());
      if (credit == device::Ready::no) return false;
      part_ = Part::before;
    }
    if (part_ == Part::before) {
      const device::Ready ready = credit == device::Ready::failed ? credit : ask(run_.before());
      if (ready == device::Ready::no) return false;
      if (ready == device::Ready::yes) move();
      part_ = Part::after;
      if (!run_.arrive(ready == device::Ready::failed)) return true;
      failed_ = run_.join(run_.run(), run_.outcome()) || !run_.announce(0, 1);
    }
    const device::Ready ready = failed_ ? device::Ready::yes : ask(run_.after());
    if (ready == device::Ready::no) return false;
    failed_ = failed_ || ready == device::Ready::failed;
    run_.count(failed_);
    run_.end(failed_, 0, 1);
    return true;
  }

 private:
  enum class Part : uint8_t { begin, credit, before, after };
  struct Steps {
    const device::Step* steps;
    const device::Step& step(uint32_t i) const { return steps[i]; }
  };

  device::Ready ask(device::Ready ready) {
    return ready == device::Ready::no && run_.timed_out() ? device::Ready::failed : ready;
  }
  void move() {
    if (shape_.specialised.move == device::Move::none) return;
    if (shape_.specialised.move == device::Move::send) {
      const device::Step& step = run_.move_step();
      const device::Sending sending = device::begin_send(m_, run_.recv_buffer(), 0, 0, step.bytes);
      if (run_.fits(sending.capacity)) copy_share(m_, step, sending.to, block_, shape_.blocks);
      return;
    }
    for (uint32_t i = 0; i < program_.step_count; ++i) {
      const device::Step& step = program_.steps[i];
      if (step.kind == device::StepKind::copy) copy_share(m_, step, step.to, block_, shape_.blocks);
    }
  }

  const M m_;
  const device::Program program_;
  const ProgramShape shape_;
  const uint32_t block_;
  const Steps steps_;
  device::SpecialisedRun<device::AnySpecialised, M, Steps> run_;
  Part part_ = Part::begin;
  bool failed_ = false;
};

/// A run of an exchange, by the text of the kernel that a GPU would launch.
template <class M>
class OneThreadCollective {
 public:
  OneThreadCollective(M m, const ProgramRun& run, uint32_t block) { choose(m, program_of(run), run, block); }
  bool over() { return run_->over(); }

 private:
  struct Run {
    virtual ~Run() = default;
    virtual bool over() = 0;
  };
  template <class Of>
  struct RunOf final : Run {
    RunOf(M m, const device::Program& program, const ProgramRun& run, uint32_t block) : of(m, program, run, block) {}
    bool over() override { return of.over(); }
    Of of;
  };
  template <class Of>
  void make(M m, const device::Program& program, const ProgramRun& run, uint32_t block) {
    run_ = std::make_unique<RunOf<Of>>(m, program, run, block);
  }
  template <device::SymmetricForm kForm>
  using Symmetric = OneThreadSymmetric<M, device::SymmetricRun<M, AloneInBlock, kForm>>;
  void choose(M m, const device::Program& program, const ProgramRun& run, uint32_t block) {
    using device::ExchangeKernel;
    using device::SymmetricForm;
    switch (device::kernel_of(*run.exchange, run.counts != nullptr)) {
      case ExchangeKernel::counted:
        return make<OneThreadCounted<M>>(m, program, run, block);
      case ExchangeKernel::slots_sums:
        return make<OneThreadSymmetric<M, PlacedExchange<M, device::SumElements>>>(m, program, run, block);
      case ExchangeKernel::slots:
        return make<OneThreadSymmetric<M, PlacedExchange<M, device::CommonElements>>>(m, program, run, block);
      case ExchangeKernel::symmetric:
        return make<Symmetric<SymmetricForm::any>>(m, program, run, block);
      case ExchangeKernel::symmetric_stores:
        return make<Symmetric<SymmetricForm::stores>>(m, program, run, block);
      case ExchangeKernel::symmetric_broadcasts:
        return make<Symmetric<SymmetricForm::broadcasts>>(m, program, run, block);
      case ExchangeKernel::symmetric_sums:
        return make<Symmetric<SymmetricForm::sums>>(m, program, run, block);
      case ExchangeKernel::lines_one_phase:
      case ExchangeKernel::lines_two_phases:
      case ExchangeKernel::lines_any:
        return make<OneThreadLines<M>>(m, program, run, block);
      case ExchangeKernel::words:
        return make<OneThreadWords<M>>(m, program, run, block);
      case ExchangeKernel::ll_any:
      case ExchangeKernel::simple_any:
        return make<OneThreadExchange<M, device::AnyElements>>(m, program, run, block);
      case ExchangeKernel::simple_sums:
        return make<OneThreadExchange<M, device::SumElements>>(m, program, run, block);
      case ExchangeKernel::ll:
      case ExchangeKernel::simple:
        return make<OneThreadExchange<M, device::CommonElements>>(m, program, run, block);
    }
  }
  std::unique_ptr<Run> run_;
};

/// A run of independent steps: the block is one warp.
template <class M>
class OneThreadIndependent {
 public:
  OneThreadIndependent(M m, const device::Program& program, const ProgramShape& shape, uint32_t block)
      : m_(m),
        program_(program),
        shape_(shape),
        block_(block),
        steps_{program.steps, independent_order({program.steps, program.step_count})},
        run_(m, {device::Poll::none, device::Move::independent}, steps_, program_, shape_.specialised, shape.blocks, block),
        warp_(m, steps_, mover_, program_, shape_.specialised, {block, shape.blocks, shape.item, 1}, block == 0) {}
  OneThreadIndependent(const OneThreadIndependent&) = delete;
  OneThreadIndependent& operator=(const OneThreadIndependent&) = delete;

  /// Does what can be done and waits for nothing. True: the run is over for this block.
  bool over() {
    if (part_ == Part::begin) {
      if (!run_.begin()) {
        count_in_vain(m_, program_.state, program_.step_count, 1);
        return true;
      }
      warp_.prepare();
      warp_.begin(run_.run());
      part_ = Part::moves;
    }
    if (part_ == Part::moves && !warp_.move_pass()) return false;
    if (part_ == Part::moves && block_ == 0 && !warp_.failed()) {
      warp_.begin_ends();
      part_ = Part::ends;
    }
    if (part_ == Part::ends && !warp_.end_pass()) return false;
    if (warp_.failed()) warp_.fail();
    if (!run_.arrive(warp_.failed())) return true;
    const bool failed = run_.join(run_.run(), run_.outcome());
    if (!failed) warp_.advance_channels();
    run_.count(failed);
    run_.end(failed, 0, 1);
    return true;
  }

 private:
  enum class Part : uint8_t { begin, moves, ends };
  struct Steps {
    const device::Step* steps;
    std::vector<uint32_t> numbers;
    const device::Step& step(uint32_t i) const { return steps[i]; }
    uint32_t order(uint32_t k) const { return numbers[k]; }
  };
  struct Mover {
    uint32_t arrive(uint32_t) const { return 0; }
    void move(M m, const device::Step& step, const device::Side& to, device::ItemShare share) const {
      each_item(step, step.bytes, share.rank, share.all, share.item,
                [&](device::Part part) { device::copy_part(m, 0, 1, to, step.from, step.bytes, part); });
    }
  };

  const M m_;
  const device::Program program_;
  const ProgramShape shape_;
  const uint32_t block_;
  const Steps steps_;
  const Mover mover_{};
  device::SpecialisedRun<device::AnySpecialised, M, Steps> run_;
  device::IndependentRun<M, Steps, Mover> warp_;
  Part part_ = Part::begin;
};

/// The steps are the caller's, and live as long.
template <class M>
class OneThreadBlock {
 public:
  OneThreadBlock(M m, const ProgramRun& run, uint32_t block)
      : steps_{run.steps.data(), run.after.data(), std::vector<uint8_t>(run.steps.size())} {
    const device::Program program = program_of(run);
    if (run.exchange != nullptr) {
      exchange_.emplace(m, run, block);
    } else if (run.shape.specialised.move == device::Move::independent) {
      independent_.emplace(m, program, run.shape, block);
    } else if (run.shape.specialised.known()) {
      specialised_.emplace(m, program, run.shape, block);
    } else {
      executor_.emplace(m, OneThread(steps_), program, run.shape.blocks, block, run.shape.item);
    }
  }
  OneThreadBlock(const OneThreadBlock&) = delete;
  OneThreadBlock& operator=(const OneThreadBlock&) = delete;

  bool over() {
    if (exchange_.has_value()) return exchange_->over();
    if (independent_.has_value()) return independent_->over();
    if (specialised_.has_value()) return specialised_->over();
    if (begun_) return executor_->pass();
    begun_ = true;
    return !executor_->begin();
  }

 private:
  OneThreadSteps steps_;
  std::optional<OneThreadCollective<M>> exchange_;
  std::optional<OneThreadSpecialised<M>> specialised_;
  std::optional<OneThreadIndependent<M>> independent_;
  std::optional<device::ProgramExecutor<M, OneThread>> executor_;
  bool begun_ = false;
};

}  // namespace thalweg::impl
