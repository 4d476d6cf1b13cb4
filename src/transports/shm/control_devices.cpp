// SPDX-License-Identifier: Apache-2.0
// Control channels: device memory of both sides.
//
// Owner: lend() sends handles, kReleased asks for them back, kDropped (or the end of the peer's side) says that the peer's
// drivers have let go. Importer: take_pieces() imports, close() and close_link() end it, release_imports() calls the drivers
// as soon as no work uses the memory; then the owner is notified. A side that ends its link closes the socket only after its
// last import, and before that reads the other side's messages about its own loans (finish()).
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "transports/shm/control.hpp"

namespace thalweg::impl::shm {
namespace {

constexpr uint64_t kLookAgainNs = kMillisecond;       // at imports that were to be released while in use
constexpr uint64_t kLossFirstNs = 20 * kMillisecond;  // for the loss of an owner whose memory has gone

}  // namespace

// ------------------------------------------------------------------------------------------------ the owner's side

void Control::lend(uint64_t segment) {
  std::vector<ExportedMemory> pieces;
  const DeviceLoans::Added added = loans_.add(segment);
  Status status = added == DeviceLoans::Added::refused ? TW_ERR_LIMIT : TW_ERR_STALE;
  if (status == TW_ERR_STALE && registry_ != nullptr) status = registry_->export_device_segment(segment, &pieces);
  if (status != TW_OK) {
    if (added == DeviceLoans::Added::fresh) loans_.settle(segment);
    const DeviceAnswer refusal{segment, status, 0, 0};
    return queue(kDevicePieces, &refusal, sizeof refusal, {});
  }
  for (size_t first = 0; first < pieces.size() && attached_; first += kHandlesPerPart) {
    const DevicePart part = write_device_part(segment, pieces, first);
    queue(kDevicePieces, part.bytes.data(), part.bytes.size(), part.fds);
    // They are on their way as duplicates: a long row must not use up this process's descriptors.
    for (size_t i = first; i < std::min(first + kHandlesPerPart, pieces.size()); ++i) pieces[i].fd.reset();
  }
}

// ------------------------------------------------------------------------------------------------ the importer's side

void Control::request_device(uint64_t segment, Device& device) {
  loop_->post([self = shared_from_this(), segment, to = &device] {
    if (!self->attached_) return;  // the loss is on its way
    self->asked_devices_.push_back({segment, to});
    self->queue(kImportDevice, &segment, sizeof segment, {});
  });
}

void Control::take_pieces(SetupChannel::Message& message) {
  const Status status = assembly_.add(message.bytes, std::move(message.fds), incarnation_);
  if (is_error(status)) return end(TW_ERR_PROTOCOL, std::string(last_error()).c_str());
  // Only what was requested: otherwise a peer could fill this process's devices with mappings.
  const auto asked = std::find_if(asked_devices_.begin(), asked_devices_.end(),
                                  [&](const AskedDevice& one) { return one.segment == assembly_.segment; });
  if (asked == asked_devices_.end()) return end(TW_ERR_PROTOCOL, "the peer sent device memory that was not asked for");
  if (status == TW_IN_PROGRESS) return;
  Device& device = *asked->device;
  asked_devices_.erase(asked);
  import_pieces(device, std::exchange(assembly_.pieces, {}));
}

void Control::import_pieces(Device& device, std::vector<ExportedMemory> pieces) {
  const DeviceImports::Source source{shared_from_this(), assembly_.segment};
  Event event;
  event.kind = Event::Kind::imported;
  event.link = link_;
  event.segment = source.segment;
  event.device = &device;
  event.status = assembly_.status;
  uint64_t length = 0, address = 0;
  bool gone = false;
  for (const ExportedMemory& piece : pieces) length += piece.handle.length;
  if (event.status != TW_OK) {
    event.why = "the peer's device memory was released, or it cannot share it; let it go through staging";
  } else if (event.status = device.import_memory(pieces, &address); event.status != TW_OK) {
    event.why = last_error();
    gone = event.status == TW_ERR_STALE;
  } else {
    mailbox_->imports.insert(source, link_, device, address, length);
  }
  release_imports();
  tell_if_dropped(source.segment);
  if (!gone) return mailbox_->post(std::move(event));
  // An owner that dies loses its memory a moment before its sockets: its peers must see the loss, not stale memory.
  loop_->after(kLossFirstNs, [self = shared_from_this(), event = std::move(event)]() mutable {
    if (self->attached_) self->mailbox_->post(std::move(event));
  });
}

/// The peer takes its memory back.
void Control::give_back(uint64_t segment) {
  mailbox_->imports.close({shared_from_this(), segment});
  release_imports();
}

void Control::release_unused(DeviceImports& imports) {
  for (const DeviceImports::Source& gone : imports.release_unused()) {
    gone.control->tell_if_dropped(gone.segment);
    gone.control->finish();
  }
}

void Control::release_imports() {
  DeviceImports& imports = mailbox_->imports;
  release_unused(imports);
  if (!imports.closing() || std::exchange(mailbox_->looking_again, true)) return;
  loop_->after(kLookAgainNs, [self = shared_from_this()] {
    self->mailbox_->looking_again = false;
    self->release_imports();
  });
}

void Control::tell_if_dropped(uint64_t segment) {
  const bool asked = std::any_of(asked_devices_.begin(), asked_devices_.end(),
                                 [segment](const AskedDevice& one) { return one.segment == segment; });
  if (attached_ && !asked && !mailbox_->imports.holds({shared_from_this(), segment}))
    queue(kDropped, &segment, sizeof segment, {});
}

// ------------------------------------------------------------------------------------------------ the end of the link

void Control::stop(bool graceful) {
  stopped_.store(true);
  loans_.refuse();
  loop_->post([self = shared_from_this(), graceful] {
    if (const uint64_t none = 0; graceful && self->attached_) self->queue(kClosed, &none, sizeof none, {});
    self->mailbox_->imports.close_link(*self);
    self->release_imports();
    self->finish();
  });
}

/// Of a link that ends: as far as it can go now. Called again when an import is released and when the peer drops one.
void Control::finish() {
  if (mailbox_->imports.holds_any(*this)) return;
  if (!attached_) {
    channel_.reset();
  } else if (stopped_.load()) {
    if (!loans_.refuse()) return detach();
    loop_->modify(channel_->fd(), EPOLLIN | EPOLLRDHUP);
    shutdown(channel_->fd(), SHUT_WR);  // the peer drops what it has imported, and then ends its side
  }
}

}  // namespace thalweg::impl::shm
