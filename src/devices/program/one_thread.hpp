// SPDX-License-Identifier: Apache-2.0
// The Group of a ProgramExecutor that is one thread of the host.
#pragma once
#include <vector>

#include "devices/program/program_executor.hpp"

namespace thalweg::impl {

/// Whose steps are whose does not change while a run lasts.
struct OneThreadSteps {
  const device::Step* steps;
  const uint32_t* after;
  std::vector<uint8_t> done;
};

/// Of several blocks, each has a share of its own: emulated ones, to see their counting at work.
template <class M>
void copy_share(M m, const device::Step& step, const device::Side& to, uint32_t block, uint32_t blocks) {
  const uint64_t share = (step.bytes / blocks + 15) / 16 * 16, begin = block * share;
  if (begin >= step.bytes) return;
  const uint64_t end = block + 1 == blocks || step.bytes - begin < share ? step.bytes : begin + share;
  device::copy_part(m, 0, 1, to, step.from, step.bytes, {begin, end});
}

class OneThread {
 public:
  static constexpr bool one_poll = false;
  static constexpr uint32_t lanes() { return 1; }
  static constexpr uint32_t parts() { return 1; }
  explicit OneThread(OneThreadSteps& steps) : steps_(&steps) {}
  uint32_t lane() const { return 0; }
  bool leader() const { return true; }
  void sync() const {}
  bool any(bool yes) const { return yes; }
  uint64_t tell(uint64_t value) const { return value; }
  void vote(bool ready, bool open, bool moving, uint64_t found, bool stop) {
    ready_ = ready;
    moving_ = moving;
    open_ = open;
    stop_ = stop;
    found_ = found;
  }
  bool any_ready() const { return ready_; }
  bool all_ready() const { return ready_ == open_; }
  uint32_t first_ready() const { return ready_ ? 0 : lanes(); }
  bool stopped() const { return stop_; }
  uint64_t found(uint32_t) const { return found_; }
  const device::Step& step(uint32_t i) const { return steps_->steps[i]; }
  uint32_t after(uint32_t i) const { return steps_->after[i]; }
  bool done(uint32_t i) const { return steps_->done[i] != 0; }
  void mark(uint32_t base, bool yes) { steps_->done[base] = yes; }

  uint32_t share(uint32_t, uint32_t, uint32_t, uint32_t, uint32_t) const { return moving_; }
  template <class M>
  void move(M m, const device::Step& step, const device::RecvBuffer* recv_buffer, uint32_t block, uint32_t blocks,
            uint32_t) const {
    if (recv_buffer == nullptr) return copy_share(m, step, step.to, block, blocks);
    const device::Sending sending = device::begin_send(m, recv_buffer, 0, 0, step.bytes);
    if (sending.status == 0) copy_share(m, step, sending.to, block, blocks);
  }

 private:
  OneThreadSteps* steps_;
  bool ready_ = false, open_ = false, moving_ = false, stop_ = false;
  uint64_t found_ = 0;
};

}  // namespace thalweg::impl
