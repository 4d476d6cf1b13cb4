// SPDX-License-Identifier: Apache-2.0
// Two threads that measure what two processes would.
#pragma once
#include <atomic>
#include <system_error>
#include <thread>

#include "base/platform/signals.hpp"

namespace thalweg::impl {

/// Runs both, and sets `over` for answer() when lead() has returned. With every signal blocked in both: the program's
/// handlers run in its own threads. Where no threads are to be had, nothing runs.
template <class Lead, class Answer>
void run_both(const Lead& lead, const Answer& answer, std::atomic<bool>& over) {
  std::thread other, first;
  try {
    const SignalsBlocked blocked;
    other = std::thread(answer);
    first = std::thread(lead);
  } catch (const std::system_error&) {
  }
  if (first.joinable()) first.join();
  over = true;
  if (other.joinable()) other.join();
}

}  // namespace thalweg::impl
