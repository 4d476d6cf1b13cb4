// SPDX-License-Identifier: Apache-2.0
#include "machine/copy_ways.hpp"

#include <algorithm>

#include "driver.hpp"
#include "kernels/arguments.hpp"

namespace perf {

using namespace cuda;

namespace {

constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING

void* event_of(const Gpu& gpu) {
  const Gpu::Turn turn(gpu);
  void* event = nullptr;
  check(driver().EventCreate(&event, kDisableTiming), "cuEventCreate");
  return event;
}

}  // namespace

void EngineCopy::start(void* to, const void* from, size_t bytes) {
  const Gpu::Turn turn(gpu_);
  gpu_.copy(to, from, bytes);
}

void KernelCopy::start(void* to, const void* from, size_t bytes) {
  constexpr size_t kOfBlock = size_t{kThreads} * 64;
  const Gpu::Turn turn(gpu_);
  const auto blocks = static_cast<unsigned>(std::clamp<size_t>(bytes / kOfBlock, 1, 2 * gpu_.multiprocessors()));
  gpu_.launch("perf_move", blocks, kThreads,
              Move{reinterpret_cast<u64>(to), reinterpret_cast<u64>(from), bytes / sizeof(double)});
}

StagedCopy::StagedCopy(Gpu& from, Gpu& to, unsigned char* staging)
    : from_(from), to_(to), staging_(staging), filled_{event_of(from), event_of(from)}, emptied_{event_of(to), event_of(to)} {}

StagedCopy::~StagedCopy() {
  for (const auto& events : {filled_, emptied_}) {
    for (int i = 0; i < 2; ++i) check(driver().EventDestroy(events[i]), "cuEventDestroy");
  }
}

void StagedCopy::start(void* to, const void* from, size_t bytes) {
  const Driver& d = driver();
  for (size_t at = 0, i = 0; at < bytes; at += kPiece, i = 1 - i) {
    const size_t n = std::min(kPiece, bytes - at);
    unsigned char* const piece = staging_ + i * kPiece;
    {
      const Gpu::Turn turn(from_);
      if (used_[i]) check(d.StreamWaitEvent(from_.stream(), emptied_[i], 0), "cuStreamWaitEvent");
      from_.copy(piece, static_cast<const unsigned char*>(from) + at, n);
      check(d.EventRecord(filled_[i], from_.stream()), "cuEventRecord");
    }
    const Gpu::Turn turn(to_);
    check(d.StreamWaitEvent(to_.stream(), filled_[i], 0), "cuStreamWaitEvent");
    to_.copy(static_cast<unsigned char*>(to) + at, piece, n);
    check(d.EventRecord(emptied_[i], to_.stream()), "cuEventRecord");
    used_[i] = true;
  }
}

void StagedCopy::finish() {
  from_.finish();
  to_.finish();
}

}  // namespace perf
