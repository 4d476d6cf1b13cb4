// SPDX-License-Identifier: Apache-2.0
// What surrounds a call of the driver.
#pragma once
#include "devices/cuda/driver.hpp"

namespace thalweg::impl::cuda {

/// One call's context: pushed where it is not current already, and popped again whatever happens, so that the caller's stays.
class Current {
 public:
  /// `ready`: an error that came before; then nothing is pushed.
  Current(const DriverApi& driver, CuContext context, Status ready = TW_OK) : driver_(driver), status_(ready) {
    if (is_error(status_)) return;
    CuContext now = nullptr;
    if (driver_.CtxGetCurrent(&now) == result::success && now == context) return;
    status_ = check(driver_.CtxPushCurrent(context), "making a CUDA context current");
    pushed_ = !is_error(status_);
  }
  ~Current() {
    CuContext popped;
    if (pushed_) driver_.CtxPopCurrent(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  Status status() const { return status_; }

 private:
  const DriverApi& driver_;
  Status status_;
  bool pushed_ = false;
};

/// For calls that would spoil a capture that the program has begun: allocating, loading, asking, waiting. Enqueuing would not.
class Relaxed {
 public:
  /// `ready`: an error that came before; then nothing is asked of the driver.
  explicit Relaxed(const DriverApi& driver, Status ready = TW_OK) : driver_(driver), changed_(!is_error(ready)) {
    if (changed_) driver_.ThreadExchangeStreamCaptureMode(&mode_);
  }
  ~Relaxed() {
    if (changed_) driver_.ThreadExchangeStreamCaptureMode(&mode_);
  }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  const DriverApi& driver_;
  const bool changed_;
  unsigned mode_ = kCaptureModeRelaxed;
};

}  // namespace thalweg::impl::cuda
