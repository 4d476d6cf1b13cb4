// SPDX-License-Identifier: Apache-2.0
// Blocking calls that end early. An interpreter handles the process's signals only between its own instructions; so a view in its
// language says what the waits of a thread ask meanwhile (tw_set_interrupt in thalweg/views.h).
#pragma once
#include "base/status.hpp"

namespace thalweg::impl {

/// While it lives, waits of this thread ask `look`, too, whatever a view asks. An error of it ends them: as interrupted() says.
/// It may progress a worker. They nest: the inner one asks the outer one.
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

/// Does anything ask in this thread's waits? They sleep at most interruptible_ms() then.
bool may_be_interrupted();
/// TW_OK, or TW_ERR_CANCELED, or what a WaitWatch says, with a text: the wait is to end. For every turn of a wait: asks every 10 ms
/// at most, and costs next to nothing where nothing asks.
Status interrupted();
/// For poll(): left_ms, or less where the wait may be interrupted.
int interruptible_ms(int left_ms);

}  // namespace thalweg::impl
