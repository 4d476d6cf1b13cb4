// SPDX-License-Identifier: Apache-2.0
// Lending and importing device memory over one link.
#include "transports/device_memory/exchange.hpp"

#include <algorithm>
#include <utility>

namespace thalweg::impl {
namespace {

constexpr uint64_t kLookAgainNs = kMillisecond;       // at imports that were to be released while in use
constexpr uint64_t kLossFirstNs = 20 * kMillisecond;  // for the loss of an owner whose memory has gone

}  // namespace

// ------------------------------------------------------------------------------------------------ the owner's side

void DeviceExchange::lend(uint64_t segment) {
  std::vector<ExportedMemory> pieces;
  const DeviceLoans::Added added = loans_.add(segment);
  Status status = added == DeviceLoans::Added::refused ? TW_ERR_LIMIT : TW_ERR_STALE;
  if (status == TW_ERR_STALE && registry_ != nullptr) status = registry_->export_device_segment(segment, &pieces);
  if (status != TW_OK) {
    if (added == DeviceLoans::Added::fresh) loans_.settle(segment);
    const DeviceAnswer refusal{segment, status, 0, 0};
    return channel_.send(DeviceMemoryMessage::pieces, &refusal, sizeof refusal, {});
  }
  for (size_t first = 0; first < pieces.size() && channel_.attached(); first += kHandlesPerPart) {
    const DevicePart part = write_device_part(segment, pieces, first);
    std::vector<UniqueFd> fds;  // they go themselves: a long row must not use up this process's descriptors
    for (size_t i = first; i < std::min(first + kHandlesPerPart, pieces.size()); ++i) {
      if (pieces[i].fd) fds.push_back(std::move(pieces[i].fd));
    }
    channel_.send(DeviceMemoryMessage::pieces, part.bytes.data(), part.bytes.size(), std::move(fds));
  }
}

// ------------------------------------------------------------------------------------------------ the importer's side

void DeviceExchange::request(uint64_t segment, Device& device) {
  loop_->post([this, self = channel_.self(), segment, to = &device] {
    if (!self->attached()) return;  // the loss is on its way
    asked_.push_back({segment, to});
    self->send(DeviceMemoryMessage::request, &segment, sizeof segment, {});
  });
}

void DeviceExchange::take_pieces(std::span<const std::byte> bytes, std::vector<UniqueFd>&& fds, Status came) {
  const Status status = assembly_.add(bytes, std::move(fds), incarnation_, is_error(came));
  if (is_error(status)) return channel_.violated(std::string(last_error()).c_str());
  // Only what was asked for: otherwise a peer could fill this process's devices with mappings.
  const auto asked =
      std::find_if(asked_.begin(), asked_.end(), [&](const Asked& one) { return one.segment == assembly_.segment; });
  if (asked == asked_.end()) return channel_.violated("the peer sent device memory that was not asked for");
  if (status == TW_IN_PROGRESS) return;
  Device& device = *asked->device;
  asked_.erase(asked);
  import(device, std::exchange(assembly_.pieces, {}));
}

void DeviceExchange::import(Device& device, std::vector<ExportedMemory> pieces) {
  const uint64_t segment = assembly_.segment;
  Status status = assembly_.status;
  std::string why;
  uint64_t length = 0, address = 0;
  bool gone = false;
  for (const ExportedMemory& piece : pieces) length += piece.handle.length;
  if (status == TW_ERR_NO_DESCRIPTORS) {
    why = "this process or the peer is out of file descriptors to share device memory; raise ulimit -n";
  } else if (status != TW_OK) {
    why = "the peer's device memory was released, or it cannot share it; let it go through staging";
  } else if (status = device.import_memory(pieces, &address); status != TW_OK) {
    why = last_error();
    gone = status == TW_ERR_STALE;
  } else {
    imports_.insert(source(segment), link_, device, address, length);
  }
  release();
  tell_if_dropped(segment);
  if (!gone) return channel_.imported(segment, device, status, std::move(why));
  // An owner that dies loses its memory a moment before its sockets: its peers are to be told of the loss, not of stale memory.
  loop_->after(kLossFirstNs, [self = channel_.self(), segment, to = &device, status, why = std::move(why)]() mutable {
    if (self->attached()) self->imported(segment, *to, status, std::move(why));
  });
}

void DeviceExchange::close(uint64_t segment) {
  imports_.close(source(segment));
  release();
}

void DeviceExchange::close_link() {
  imports_.close_link(channel_);
  release();
}

void DeviceExchange::release() {
  imports_.release_unused();
  if (!imports_.closing() || std::exchange(imports_.looking_again, true)) return;
  loop_->after(kLookAgainNs, [this, self = channel_.self()] {
    imports_.looking_again = false;
    release();
  });
}

void DeviceExchange::tell_if_dropped(uint64_t segment) {
  const bool asked = std::any_of(asked_.begin(), asked_.end(), [segment](const Asked& one) { return one.segment == segment; });
  if (channel_.attached() && !asked && !imports_.holds(source(segment)))
    channel_.send(DeviceMemoryMessage::dropped, &segment, sizeof segment, {});
}

}  // namespace thalweg::impl
