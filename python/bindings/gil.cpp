// SPDX-License-Identifier: Apache-2.0
#include "gil.hpp"

#include <unistd.h>

namespace thalweg::python {
namespace {

/// What unwinds through here stays here. Its functions may throw, as far as the compiler knows: in those that may not it drops what is
/// done on the way out.
struct Stays {
  bool armed = true;
  ~Stays() {
    while (armed) pause();
  }
};

}  // namespace

[[gnu::noinline]] void take_gil(PyThreadState* saved) {
  Stays here;
  PyEval_RestoreThread(saved);
  here.armed = false;
}

/// A thread of the library's own is let go: who ends the library waits for it.
[[gnu::noinline]] Acquired::Acquired() {
  Stays here{PyGILState_GetThisThreadState() != nullptr};
  state_ = PyGILState_Ensure();
  here.armed = false;
}

}  // namespace thalweg::python
