// SPDX-License-Identifier: Apache-2.0
// Planning and starting device copies.
#include "protocols/device_copy.hpp"

#include <algorithm>

#include "devices/deferred_release.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kMaxCopies = 65536;  // of one operation

/// One side, walked in packed order.
class Walk {
 public:
  Walk(const Side& side, uint64_t length, uint64_t begin) : side_(side), flat_(side.layout == nullptr), at_(begin) {
    if (flat_) return;
    cursor_.reset(reinterpret_cast<std::byte*>(side.address), side.layout, length);
    cursor_.seek(begin);
  }
  bool flat() const { return flat_; }
  uint64_t address() {
    if (flat_) return side_.address + at_;
    LayoutCursor ahead = cursor_;
    return reinterpret_cast<uintptr_t>(ahead.next(1).address);
  }
  LayoutCursor::Rows rows() const { return cursor_.rows(); }
  uint64_t run(uint64_t most) const {
    LayoutCursor ahead = cursor_;
    return flat_ ? most : ahead.next(most).length;
  }
  void skip(uint64_t bytes) {
    at_ += bytes;
    if (!flat_) cursor_.seek(at_);
  }

 private:
  const Side& side_;
  const bool flat_;
  uint64_t at_;
  LayoutCursor cursor_;
};

/// The largest rectangle that both sides have at their positions, of at most `left` bytes; at least a row.
Copy next_copy(Walk& to, Walk& from, uint64_t left) {
  Copy copy{to.address(), from.address(), 0};
  const LayoutCursor::Rows there = to.flat() ? from.rows() : to.rows(), here = from.flat() ? there : from.rows();
  const bool rows = there.rows != 0 && here.rows != 0 && there.block == here.block;
  const uint64_t count = rows ? std::min({there.rows, here.rows, left / there.block}) : 0;
  if (count <= 1) {
    copy.width = from.run(to.run(left));
    return copy;
  }
  copy.width = there.block;
  copy.rows = count;
  copy.to_row = to.flat() ? static_cast<int64_t>(there.block) : there.stride;
  copy.from_row = from.flat() ? static_cast<int64_t>(there.block) : here.stride;
  return copy;
}

/// All of it as one rectangle of rows and slices, where the sides have the same ones or one of them is contiguous.
bool as_rectangle(const Side& to, const Side& from, uint64_t length, Copy* copy) {
  const Layout *a = from.layout, *b = to.layout, *shape = a != nullptr ? a : b;
  if ((a && !a->pieces.empty()) || (b && !b->pieces.empty()) || shape->dimensions > 2 || length != shape->bytes) return false;
  if (a && b && (a->block != b->block || a->dimensions != b->dimensions)) return false;
  for (unsigned d = 0; a && b && d < a->dimensions; ++d) {
    if (a->dimension[d].count != b->dimension[d].count) return false;
  }
  const int64_t row = static_cast<int64_t>(shape->block), slice = row * static_cast<int64_t>(shape->dimension[0].count);
  copy->from = from.address + static_cast<uint64_t>(a ? a->start : 0);
  copy->to = to.address + static_cast<uint64_t>(b ? b->start : 0);
  copy->width = shape->block;
  copy->rows = shape->dimension[0].count;
  copy->slices = shape->dimensions == 2 ? shape->dimension[1].count : 1;
  copy->from_row = a ? a->dimension[0].stride : row;
  copy->to_row = b ? b->dimension[0].stride : row;
  copy->from_slice = a ? a->dimension[1].stride : slice;
  copy->to_slice = b ? b->dimension[1].stride : slice;
  return true;
}

const Layout* strided(const Layout* layout) { return layout != nullptr && layout->contiguous() ? nullptr : layout; }

void moved(Engine& engine, void* token, Status status) {
  OpRun& run = *static_cast<OpRun*>(token);
  if (run.holding != nullptr) --run.holding->users;
  run.holding = nullptr;
  if (engine.work_over(run)) run.then(engine, run, status);
}

}  // namespace

Side side_of(uint64_t address, const Layout* layout, bool kernels) {
  const int64_t start = layout != nullptr && layout->contiguous() ? layout->start : 0;
  return {address + static_cast<uint64_t>(start), strided(layout), kernels};
}

Status plan_copies(const Side& to, const Side& from, uint64_t length, uint64_t begin, uint64_t end, std::vector<Copy>* copies) {
  copies->clear();
  if (to.layout == nullptr && from.layout == nullptr) {
    if (end != begin) copies->push_back({to.address + begin, from.address + begin, end - begin});
    return TW_OK;
  }
  Copy all{};
  if (begin == 0 && end == length && as_rectangle(to, from, length, &all)) {
    copies->push_back(all);
    return TW_OK;
  }
  Walk target(to, length, begin), source(from, length, begin);
  for (uint64_t left = end - begin; left != 0;) {
    if (copies->size() == kMaxCopies) {
      return fail(TW_ERR_LIMIT, "a layout of more than %zu pieces of device memory; split the operation, or use larger pieces",
                  kMaxCopies);
    }
    copies->push_back(next_copy(target, source, left));
    const uint64_t bytes = copies->back().width * copies->back().rows;
    target.skip(bytes);
    source.skip(bytes);
    left -= bytes;
  }
  return TW_OK;
}

DeviceCopies facts_of(const std::vector<Copy>& copies, bool kernels) {
  const Copy& first = copies.front();
  return {copies.size() == 1, kernels, first.width, first.rows * first.slices};
}

namespace {

Kernel kernel_of(const Copy& copy) { return CopyKernel{copy, {}, 0, 0}; }

}  // namespace

Status submit_copies(DeviceQueues& queues, Device& device, const std::vector<Copy>& copies, const Submission& how,
                     DeviceQueues::Done done, void* token, const GuestLists& hosts) {
  DeviceCopies facts = facts_of(copies, how.kernels);
  const DeviceQueues::Flow flow = facts.bytes() >= how.much ? how.flow : DeviceQueues::Flow::none;
  facts.against = queues.busy_against(device, flow);
  facts.waited_for = facts.against && kernels_wait();
  facts.persistent_most = queues.persistent_most_of(device, &facts.persistent_free);
  const CopyBy by = copy_by(facts, how.much);
  if (by == CopyBy::kernel) {
    const Status status = queues.submit(device, kernel_of(copies.front()), done, token, hosts);
    if (status != TW_ERR_UNSUPPORTED) return status;  // a build without kernels
  }
  if (by == CopyBy::persistent && queues.submit_persistent(device, copies.front(), done, token, hosts)) return TW_OK;
  return queues.submit(device, copies, done, token, hosts, flow);
}

Status run_copies(DeviceQueues& queues, Device& device, const std::vector<Copy>& copies) {
  if (copies.empty()) return TW_OK;
  if (copy_by(facts_of(copies, true), 0) == CopyBy::kernel) {
    const Status status = queues.run(device, kernel_of(copies.front()));
    if (status != TW_ERR_UNSUPPORTED) return status;
  }
  return queues.run(device, copies);
}

Status device_move(Engine& engine, OpRun& run, Device& device, const Side& other, uint64_t length, bool to_local, Mapping* hold,
                   Then then, const GuestLists& hosts) {
  const Side local = side_of(reinterpret_cast<uintptr_t>(run.op->address), run.op->layout);
  std::vector<Copy> copies;
  Status status = plan_copies(to_local ? local : other, to_local ? other : local, run.op->length, 0, length, &copies);
  const DeviceQueues::Flow flow = !other.far ? DeviceQueues::Flow::none
                                  : to_local ? DeviceQueues::Flow::in
                                             : DeviceQueues::Flow::out;
  const Submission how{other.kernels, flow, engine.options().hidden_from};
  if (status == TW_OK) status = submit_copies(engine.devices(), device, copies, how, moved, &run, hosts);
  if (is_error(status)) return status;
  run.then = then;
  run.holding = hold;
  if (hold != nullptr) ++hold->users;
  ++run.work;
  run.cancelable = false;
  return TW_OK;
}

}  // namespace thalweg::impl
