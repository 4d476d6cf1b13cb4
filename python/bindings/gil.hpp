// SPDX-License-Identifier: Apache-2.0
// The GIL, given away and taken again. At the interpreter's end a thread that wants it back is ended where it stands: before
// Python 3.14 by pthread_exit, whose unwinding ends the process in the first C++ frame that may not throw. So it stays there
// instead, as since 3.14, and ends with the process.
#pragma once
#include <nanobind/nanobind.h>

namespace thalweg::python {
namespace nb = nanobind;

/// PyEval_RestoreThread.
void take_gil(PyThreadState* saved);

/// Others run Python while it lives.
class Released {
 public:
  Released() : saved_(PyEval_SaveThread()) {}
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;
  ~Released() { take_gil(saved_); }

 private:
  PyThreadState* saved_;
};

/// The GIL in a function that the library calls, in a thread of Python's or its own.
class Acquired {
 public:
  Acquired();
  Acquired(const Acquired&) = delete;
  Acquired& operator=(const Acquired&) = delete;
  ~Acquired() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

}  // namespace thalweg::python
