// SPDX-License-Identifier: Apache-2.0
#include "routes/device_copies.hpp"

namespace thalweg::impl {

CopyBy copy_by(const DeviceCopies& copies, uint64_t much) {
  if (!copies.one || !copies.kernels) return CopyBy::engine;
  if (copies.row < kShortRow && copies.rows >= kManyRows) return CopyBy::kernel;
  if (copies.against && !copies.waited_for && copies.bytes() >= much) return CopyBy::kernel;
  const bool small = copies.rows == 1 && copies.row <= copies.persistent_most;
  return small && copies.persistent_free ? CopyBy::persistent : CopyBy::engine;
}

CopyBy gather_by(const DeviceGather& blocks) {
  constexpr size_t kFew = 4, kPairsEach = 16;  // a launch costs as much as some copies; short pairs take long
  const bool worth = blocks.parts > kFew && blocks.pairs <= kPairsEach * blocks.parts;
  return worth && blocks.room ? CopyBy::kernel : CopyBy::engine;
}

}  // namespace thalweg::impl
