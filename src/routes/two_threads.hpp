// SPDX-License-Identifier: Apache-2.0
// Two threads that measure what two processes would.
#pragma once
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <system_error>
#include <thread>

namespace thalweg::impl {

/// Runs both, and sets `over` for answer() when lead() has returned. With every signal blocked in both: the program's
/// handlers run in its own threads. Where no threads are to be had, nothing runs.
template <class Lead, class Answer>
void run_both(const Lead& lead, const Answer& answer, std::atomic<bool>& over) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread other, first;
  try {
    other = std::thread(answer);
    first = std::thread(lead);
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (first.joinable()) first.join();
  over = true;
  if (other.joinable()) other.join();
}

}  // namespace thalweg::impl
