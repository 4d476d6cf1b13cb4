// SPDX-License-Identifier: Apache-2.0
#include "routes/device_copies.hpp"

namespace thalweg::impl {

CopyBy copy_by(const DeviceCopies& copies, uint64_t much) {
  if (!copies.one || !copies.kernels) return CopyBy::engine;
  if (copies.row < kShortRow && copies.rows >= kManyRows) return CopyBy::kernel;
  if (copies.against && !copies.waited_for && copies.bytes() >= much) return CopyBy::kernel;
  return CopyBy::resident;
}

}  // namespace thalweg::impl
