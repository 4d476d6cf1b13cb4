// SPDX-License-Identifier: Apache-2.0
// The least of some rounds: whatever disturbs makes a copy longer. Of a byte: what a copy of 4 MiB takes beyond one of 8
// bytes.
#include "routes/measure_device.hpp"

#include <algorithm>
#include <limits>

#include "base/clock.hpp"
#include "devices/persistent.hpp"
#include "routes/device_cost_file.hpp"
#include "routes/undisturbed.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kShort = 8;
constexpr unsigned kRounds = 8, kLeastRounds = 3, kMostRounds = 24;  // of each length that count; the first one warms up
constexpr unsigned kKinds = 4;                                       // of copies that share a limit
constexpr uint64_t kPatience = 5;  // times the limit, of a device that does something else meanwhile
constexpr double kFixedLeast = 1, kByteLeast = 1e-6;
constexpr uint64_t kPersistentLong = 32u << 10;

constexpr double kNone = std::numeric_limits<double>::max();

constexpr char kBusy[] = "the device is too busy to measure costs";

void keep(DeviceCosts* costs, CopyCosts DeviceCosts::*copy, const CopyCosts& measured) {
  costs->*copy = measured;
  costs->measured |= bit_of(copy);
}

CopyCosts costs_of(double brief, double whole, uint64_t length) {
  return {std::max(kFixedLeast, brief), std::max(kByteLeast, (whole - brief) / static_cast<double>(length - kShort))};
}

}  // namespace

DeviceBench::~DeviceBench() {
  if (queue_ == nullptr) return;
  if (occupied_ || (stuck_ && queue_->query() == TW_IN_PROGRESS)) {
    (void)queue_.release();
    return;
  }
  queue_.reset();
  for (const uint64_t address : {words_, host_, here_, also_, there_[0], there_[1]})
    if (address != 0) (void)device_.free(address);
}

Status DeviceBench::open() {
  if (stuck_ || occupied_) return fail(TW_ERR_TIMED_OUT, kBusy);
  if (queue_ != nullptr) return TW_OK;
  constexpr size_t kPage = 4096;
  Status status = device_.make_queue(&queue_, QueueUse::moves);
  if (!is_error(status)) status = device_.allocate(MemoryKind::pinned, kPage, &words_);
  if (!is_error(status)) status = device_.allocate(MemoryKind::pinned, kWhole, &host_);
  if (!is_error(status)) status = device_.allocate(MemoryKind::vmm, kWhole, &here_);
  if (!is_error(status)) status = device_.allocate(MemoryKind::vmm, kWhole, &also_);
  if (is_error(status)) return status;
  *reinterpret_cast<uint64_t*>(words_) = 0;
  return TW_OK;
}

Status DeviceBench::copy(uint64_t to, uint64_t from, uint64_t length, double* took) {
  const Copy one{to, from, length};
  const uint64_t start = monotonic_ns();
  if (Status s = queue_->copy(&one, 1); is_error(s)) return s;
  if (Status s = queue_->write_value(words_, ++ticket_, false); is_error(s)) {
    stuck_ = true;  // the copy may be under way
    return s;
  }
  const auto* const word = reinterpret_cast<const uint64_t*>(words_);
  for (unsigned polls = 1; __atomic_load_n(word, __ATOMIC_ACQUIRE) < ticket_; ++polls) {
    if (polls % 256 != 0 || monotonic_ns() < deadline_) continue;
    stuck_ = true;
    return fail(TW_ERR_TIMED_OUT, kBusy);
  }
  *took = static_cast<double>(monotonic_ns() - start);
  return TW_OK;
}

/// The least of what the kernel left undisturbed.
Status DeviceBench::time(uint64_t to, uint64_t from, CopyCosts* out) {
  double least[2] = {kNone, kNone};
  unsigned counted[2] = {0, 0};
  const uint64_t until = monotonic_ns() + slice_;
  Undisturbed undisturbed;
  for (unsigned round = 0; round < kMostRounds && std::min(counted[0], counted[1]) < kRounds; ++round) {
    if (std::min(counted[0], counted[1]) >= kLeastRounds && monotonic_ns() > until) break;
    for (const size_t which : {0, 1}) {
      double took = 0;
      (void)undisturbed.ask();
      if (Status s = copy(to, from, which == 0 ? kShort : kWhole, &took); is_error(s)) return s;
      if (round == 0 || !undisturbed.ask()) continue;
      least[which] = std::min(least[which], took);
      ++counted[which];
    }
  }
  if (std::min(counted[0], counted[1]) < kLeastRounds || least[1] <= least[0]) return fail(TW_ERR_TIMED_OUT, kBusy);
  *out = costs_of(least[0], least[1], kWhole);
  return TW_OK;
}

Status DeviceBench::measure(uint64_t limit_ns, DeviceCosts* out) {
  if (Status s = open(); is_error(s)) return s;
  slice_ = limit_ns / kKinds;
  deadline_ = monotonic_ns() + kPatience * limit_ns;
  CopyCosts to_host, from_host, local;
  Status status = time(host_, here_, &to_host);
  if (!is_error(status)) status = time(here_, host_, &from_host);
  if (!is_error(status)) status = time(also_, here_, &local);
  if (is_error(status)) return status;
  keep(out, &DeviceCosts::out, to_host);
  keep(out, &DeviceCosts::in, from_host);
  keep(out, &DeviceCosts::local, local);
  return TW_OK;
}

Status DeviceBench::measure_peer(const Uuid& there, DeviceLink link, uint64_t limit_ns, DeviceCosts* out) {
  if (Status s = open(); is_error(s)) return s;
  const bool pcie = link == DeviceLink::pcie;
  uint64_t& memory = there_.at(pcie ? 1 : 0);
  if (memory == 0) {
    if (Status s = device_.allocate_at(there, kWhole, &memory); is_error(s)) return s;
  }
  slice_ = limit_ns / kKinds;
  deadline_ = monotonic_ns() + kPatience * limit_ns;
  CopyCosts written, read;
  Status status = time(memory, here_, &written);
  if (!is_error(status)) status = time(here_, memory, &read);
  if (is_error(status)) return status;
  keep(out, pcie ? &DeviceCosts::pcie_write : &DeviceCosts::nvlink_write, written);
  keep(out, pcie ? &DeviceCosts::pcie_read : &DeviceCosts::nvlink_read, read);
  return TW_OK;
}

/// Until the kernel runs it takes nothing: the second copy that it is asked for has it launched.
Status DeviceBench::persistent_copy(PersistentCopier& persistent, uint64_t length, double* took) {
  const uint64_t to = there_[0] != 0 ? there_[0] : there_[1] != 0 ? there_[1] : also_;
  PersistentCopier::Ticket ticket;
  uint64_t start = monotonic_ns();
  Status status = TW_AGAIN;
  while ((status = persistent.copy(to, here_, length, &ticket)) == TW_AGAIN) {
    start = monotonic_ns();
    if (start > deadline_) return fail(TW_AGAIN, "its kernel takes nothing");
  }
  if (is_error(status)) return status;
  for (unsigned polls = 1; (status = persistent.poll(ticket)) == TW_IN_PROGRESS; ++polls) {
    if (polls % 256 != 0 || monotonic_ns() < deadline_) continue;
    persistent.forget(ticket);
    occupied_ = true;
    return fail(TW_ERR_TIMED_OUT, kBusy);
  }
  *took = static_cast<double>(monotonic_ns() - start);
  return status;
}

Status DeviceBench::measure_persistent(PersistentCopier& persistent, uint64_t limit_ns, DeviceCosts* out) {
  if (Status s = open(); is_error(s)) return s;
  const uint64_t until = monotonic_ns() + limit_ns;
  deadline_ = monotonic_ns() + kPatience * limit_ns;
  double least[2] = {kNone, kNone};
  for (unsigned round = 0; round < kRounds && (round < 2 || monotonic_ns() < until); ++round) {
    for (const size_t which : {0, 1}) {
      double took = 0;
      const Status status = persistent_copy(persistent, which == 0 ? kShort : kPersistentLong, &took);
      if (is_error(status) || monotonic_ns() > deadline_) return is_error(status) ? status : fail(TW_ERR_TIMED_OUT, kBusy);
      if (status == TW_OK && round > 0) least[which] = std::min(least[which], took);
    }
  }
  if (std::max(least[0], least[1]) == kNone) return fail(TW_AGAIN, "its kernel takes nothing");
  const unsigned blocks = persistent.blocks();
  CopyCosts measured = costs_of(least[0], least[1], kPersistentLong);
  measured.fixed = std::max(kFixedLeast, measured.fixed - out->persistent_block * (blocks - 1));
  measured.byte = std::max(kByteLeast, measured.byte * 3 / (blocks + 2));
  keep(out, &DeviceCosts::persistent, measured);
  return TW_OK;
}

}  // namespace thalweg::impl
