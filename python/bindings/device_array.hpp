// SPDX-License-Identifier: Apache-2.0
// The description of an array on a device, by __cuda_array_interface__ or by DLPack, and the stream after whose work its
// contents are there.
#pragma once
#include <nanobind/nanobind.h>
#include <thalweg/thalweg.h>

#include <cstddef>
#include <cstdint>

namespace thalweg::python {
namespace nb = nanobind;

/// Work that an operation on a buffer has to wait for.
struct After {
  uint32_t kind = TW_AFTER_NONE;
  uintptr_t handle = 0;  ///< CUstream (0: the default stream, 2: the thread's own) or CUevent
};

struct DeviceArray {
  static constexpr int kMost = 32;  ///< dimensions
  uintptr_t data = 0;
  bool read_only = false;
  int dimensions = 0;
  bool strided = false;  ///< false: C-contiguous
  Py_ssize_t shape[kMost], strides[kMost];
  size_t element = 1;
  After after;
};

/// False: the object has no __cuda_array_interface__. Raises for one that makes no sense.
bool read_cuda_interface(nb::handle object, DeviceArray* out);

/// What an argument `after` names: a stream or event of PyTorch, CuPy or Numba, an object with __cuda_stream__, the number
/// of a stream; False: nothing. Raises TypeError for anything else.
After after_of(nb::handle value);

/// Waits for what is enqueued on the stream, by the framework that is loaded. Raises Unsupported when none is.
void synchronize(const After& after);

enum class DlpackPlace { none, host, device };
/// A tensor's device, by __dlpack_device__; none: it has no DLPack. One call, which for tensors on the host is all there is.
DlpackPlace dlpack_place(nb::handle object);
/// A DLPack capsule of an object whose tensor lies on a device, whose producer orders it after *after. Raises Unsupported
/// for a kind of device that no device here can reach.
nb::object device_capsule(nb::handle object, After* after);

}  // namespace thalweg::python
