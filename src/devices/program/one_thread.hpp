// SPDX-License-Identifier: Apache-2.0
// The Group of a ProgramExecutor that is one thread of the host.
#pragma once
#include <algorithm>
#include <type_traits>
#include <vector>

#include "devices/program/program_executor.hpp"
#include "devices/program/reduce_host.hpp"

namespace thalweg::impl {

/// Whose steps are whose does not change while a run lasts.
struct OneThreadSteps {
  const device::Step* steps;
  const uint32_t* after;
  std::vector<uint8_t> done;
};

/// Of specialised kernels' blocks, each has a share of its own: emulated ones, to see their counting at work.
inline device::Part share_of(const device::Step& step, uint32_t block, uint32_t blocks) {
  const uint64_t share = (step.bytes / blocks + 15) / 16 * 16, begin = block * share;
  if (begin >= step.bytes) return {0, 0};
  return {begin, block + 1 == blocks || step.bytes - begin < share ? step.bytes : begin + share};
}

template <class M>
void copy_share(M m, const device::Step& step, const device::Side& to, uint32_t block, uint32_t blocks) {
  const device::Part part = share_of(step, block, blocks);
  if (part.begin < part.end) device::copy_part(m, 0, 1, to, step.from, step.bytes, part);
}

/// Other programs' blocks take items in turn, as those of a GPU do with warps: what moves bytes on begins at the same block.
template <class Move>
void each_item(const device::Step& step, uint64_t bytes, uint32_t block, uint32_t blocks, uint32_t item, const Move& move) {
  if (blocks == 1) {
    if (bytes != 0) move(device::Part{0, bytes});
    return;
  }
  const uint64_t first = (block - step.recv_buffer) & (blocks - 1);  // a power of two
  for (uint64_t at = first * item; at < bytes; at += uint64_t{blocks} * item)
    move(device::Part{at, std::min<uint64_t>(at + item, bytes)});
}

template <class M>
void reduce_part(M m, const device::Step& step, device::Part part) {
  if constexpr (std::is_same_v<M, device::DirectMachine>) {
    reduce_on_host(device::reduction_of(step), part);
  } else {
    device::reduce_part(m, 0, 1, device::reduction_of(step), part);
  }
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
            uint32_t item) const {
    if (step.kind == device::StepKind::reduce)
      return each_item(step, step.bytes, block, blocks, item, [&](device::Part part) { reduce_part(m, step, part); });
    const uint64_t bytes = step.word == nullptr ? step.bytes : std::min<uint64_t>(step.bytes, m.load(step.word));
    const auto copy_to = [&](const device::Side& to) {
      each_item(step, bytes, block, blocks, item,
                [&](device::Part part) { device::copy_part(m, 0, 1, to, step.from, step.bytes, part); });
    };
    if (recv_buffer == nullptr) return copy_to(step.to);
    const device::Sending sending = device::begin_send(m, recv_buffer, 0, 0, step.bytes);
    if (device::fits_receive(step, sending.capacity)) copy_to(sending.to);
  }

 private:
  OneThreadSteps* steps_;
  bool ready_ = false, open_ = false, moving_ = false, stop_ = false;
  uint64_t found_ = 0;
};

}  // namespace thalweg::impl
