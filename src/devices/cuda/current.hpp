// SPDX-License-Identifier: Apache-2.0
// One call's context: pushed, and popped again whatever happens, so that the caller's current context stays. Meanwhile the
// thread's capture mode is relaxed: our calls must not spoil a capture that somebody else has begun.
#pragma once
#include "devices/cuda/driver.hpp"

namespace thalweg::impl::cuda {

class Current {
 public:
  /// `ready`: an error that came before; then nothing is pushed.
  Current(const DriverApi& driver, CuContext context, Status ready = TW_OK) : driver_(driver), status_(ready) {
    if (is_error(status_)) return;
    status_ = check(driver_.CtxPushCurrent(context), "making a CUDA context current");
    if (is_error(status_)) return;
    driver_.ThreadExchangeStreamCaptureMode(&mode_);
  }
  ~Current() {
    if (is_error(status_)) return;
    driver_.ThreadExchangeStreamCaptureMode(&mode_);
    CuContext popped;
    driver_.CtxPopCurrent(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  Status status() const { return status_; }

 private:
  const DriverApi& driver_;
  unsigned mode_ = kCaptureModeRelaxed;
  Status status_;
};

}  // namespace thalweg::impl::cuda
