// SPDX-License-Identifier: Apache-2.0
// The library's threads take no signals: those are the program's, whose handlers run in its own threads.
#pragma once
#include <pthread.h>

#include <csignal>

namespace thalweg::impl {

/// While it is there the calling thread has all signals blocked, and threads that it makes keep them so.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace thalweg::impl
