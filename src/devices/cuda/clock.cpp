// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/clock.hpp"

#include "base/clock.hpp"
#include "base/platform/cpu.hpp"
#include "devices/cuda/device.hpp"
#include "devices/persistent.hpp"

namespace thalweg::impl::cuda {
namespace {

constexpr uint64_t kPeriod = 200 * kMillisecond, kPatience = kMillisecond;
constexpr unsigned kReadings = 8;  // in each period: the asker takes the quickest of a few

}  // namespace

bool CudaClock::open() {
  const std::lock_guard lock(mutex_);
  if (!tried_ && !make()) stream_ = nullptr;
  tried_ = true;
  return stream_ != nullptr;
}

bool CudaClock::make() {
  const PersistentPause pause;  // allocating waits for kernels
  const OnDevice current(device_);
  if (is_error(current.status())) return false;
  void* word = nullptr;
  if (device_.driver().MemHostAlloc(&word, sizeof *word_, kHostAllocPortable) != result::success) return false;
  word_ = static_cast<uint64_t*>(word);
  CuFunction kernel = nullptr;
  if (is_error(device_.backend().kernels().get(KernelName::clock, &kernel))) return false;
  return device_.driver().StreamCreate(&stream_, kStreamNonBlocking) == result::success;
}

bool CudaClock::stored() {
  if (__atomic_load_n(word_, __ATOMIC_ACQUIRE) == 0) return false;
  under_way_ = false;
  return true;
}

bool CudaClock::read(uint64_t* now) {
  const std::lock_guard lock(mutex_);
  const uint64_t begun = monotonic_ns();
  if (begun - since_ > kPeriod) {
    since_ = begun;
    readings_ = 0;
  }
  if (readings_ >= kReadings || stream_ == nullptr || (under_way_ && !stored())) return false;
  ++readings_;
  const OnDevice current(device_);
  CuFunction kernel = nullptr;
  if (is_error(current.status()) || is_error(device_.backend().kernels().get(KernelName::clock, &kernel))) return false;
  __atomic_store_n(word_, uint64_t{0}, __ATOMIC_RELEASE);
  void* parameters[] = {&word_};
  {
    const Turn turn(device_);
    under_way_ = device_.driver().LaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr) == result::success;
  }
  while (under_way_ && !stored() && monotonic_ns() - begun < kPatience) cpu_pause();
  *now = *word_;
  return *now != 0;
}

}  // namespace thalweg::impl::cuda
