// SPDX-License-Identifier: Apache-2.0
// Blocking calls that end early. An interpreter handles the process's signals only between its own instructions; so a view
// in its language sets what the waits of a thread check meanwhile (tw_set_interrupt in thalweg/views.h).
#pragma once
#include "base/status.hpp"

namespace thalweg::impl {

/// While it lives, this thread's waits also call `look`, whatever a view asks. Its error ends them, as with interrupted().
/// `look` may progress a worker. Watches nest: the inner one calls the outer one.
class WaitWatch {
 public:
  using Look = Status (*)(void* arg);
  WaitWatch(Look look, void* arg);
  ~WaitWatch();
  WaitWatch(const WaitWatch&) = delete;
  WaitWatch& operator=(const WaitWatch&) = delete;
  Status ask() const;

 private:
  const Look look_;
  void* const arg_;
  WaitWatch* const outer_;
};

/// Is there an interrupt check in this thread's waits? If so, they sleep at most interruptible_ms() at a time.
bool may_be_interrupted();
/// TW_OK, or TW_ERR_CANCELED or a WaitWatch's error, with a text: the wait must end. Call it in every turn of a wait: it
/// checks at most every 10 ms, and costs next to nothing without a check.
Status interrupted();
/// For poll(): left_ms, or less where the wait may be interrupted.
int interruptible_ms(int left_ms);

}  // namespace thalweg::impl
