// SPDX-License-Identifier: Apache-2.0
// Control channels on the service thread.
//
// The callbacks hold the Control alive while its descriptors are in the loop; detach() takes both out and ends that.
#include "transports/shm/control.hpp"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "transports/shm/layout.hpp"

namespace thalweg::impl::shm {
namespace {

struct ImportedBody {
  uint64_t segment;
  int64_t status;
  uint64_t length;
};

/// Segments one peer may hold of us: what it asked for and we have not released.
constexpr size_t kMaxHandedOut = 65536;
constexpr int kMessagesPerTurn = 32;

}  // namespace

void Mailbox::post(Event&& event) {
  {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    full.store(true, std::memory_order_release);
  }
  doorbell.wake();
}

std::vector<Event> Mailbox::take() {
  std::lock_guard lock(mutex_);
  full.store(false, std::memory_order_relaxed);
  return std::exchange(events_, {});
}

void Mailbox::add(std::shared_ptr<Control> control) {
  std::lock_guard lock(mutex_);
  controls_.push_back(std::move(control));
}

void Mailbox::remove(const std::shared_ptr<Control>& control) {
  std::lock_guard lock(mutex_);
  std::erase(controls_, control);
}

void Mailbox::announce_release(uint64_t segment) {
  std::lock_guard lock(mutex_);
  for (const auto& control : controls_) control->announce_release(segment);
}

std::vector<std::shared_ptr<Control>> Mailbox::controls() {
  std::lock_guard lock(mutex_);
  return controls_;
}

bool Mailbox::await_copies(uint64_t limit_ns) {
  const auto all = controls();
  return std::all_of(all.begin(), all.end(), [&](const auto& control) { return control->await_copy(limit_ns); });
}

bool Mailbox::await_dropped(uint64_t segment, uint64_t limit_ns) {
  const Deadline deadline(limit_ns);
  const auto all = controls();
  return std::all_of(all.begin(), all.end(), [&](const auto& control) { return control->await_dropped(segment, deadline); });
}

Control::Control(std::shared_ptr<Mailbox> mailbox, EventLoop* loop, Registry* registry, uint64_t link, uint64_t incarnation)
    : mailbox_(std::move(mailbox)),
      loop_(loop),
      registry_(registry),
      link_(link),
      devices_(*this, mailbox_->imports, loop, registry, link, incarnation) {}

Control::~Control() = default;

void Control::start(LinkInit& init, UniqueFd pidfd) {
  SSL* const tls = static_cast<SSL*>(std::exchange(init.tls, nullptr));
  channel_ = std::make_unique<SetupChannel>(std::move(init.socket), tls, init.session);
  pidfd_ = std::move(pidfd);
  loop_->post([self = shared_from_this()] { self->begin(); });
}

void Control::begin() {
  // Also when stop() was called already: what it says to the peer comes behind this.
  if (is_error(loop_->add(channel_->fd(), EPOLLIN | EPOLLRDHUP, [self = shared_from_this()](uint32_t events) {
        if (events & EPOLLOUT) self->flush();
        if (events & ~uint32_t(EPOLLOUT)) self->readable();
      })))
    return end(TW_ERR_IO, "the control channel cannot be watched");
  attached_ = true;
  if (pidfd_) {
    watching_pidfd_ = !is_error(loop_->add(pidfd_.get(), EPOLLIN, [self = shared_from_this()](uint32_t) {
      self->readable();  // what it said before
      self->lost();
    }));
  }
  readable();  // TLS may hold bytes that the socket no longer announces
}

/// A few messages a turn: a peer that asks without end leaves this thread to the others.
void Control::readable() {
  for (int i = 0; attached_; ++i) {
    if (i == kMessagesPerTurn) return loop_->post([self = shared_from_this()] { self->readable(); });
    SetupChannel::Message message;
    const Status s = channel_->receive(&message);
    if (s == TW_IN_PROGRESS) return;
    if (s == TW_OK) {
      handle(message);
    } else if (s == TW_ERR_PROTOCOL || s == TW_ERR_AUTHENTICATION) {
      end(TW_ERR_PROTOCOL, "the peer sent a malformed control message");
    } else {
      lost();
    }
  }
}

void Control::lost() {
  if (closed_) return end(TW_ERR_CLOSED, "the peer closed the endpoint");
  end(TW_ERR_PEER_LOST, "the peer's process has ended, or it dropped the connection");
}

void Control::handle(SetupChannel::Message& message) {
  uint64_t segment = 0;
  if (message.bytes.size() < sizeof segment) return end(TW_ERR_PROTOCOL, "the peer sent a short control message");
  std::memcpy(&segment, message.bytes.data(), sizeof segment);
  if (stopped_.load() && message.type != kDropped) return;  // only its imports of our memory count any more
  switch (message.type) {
    case kImport:
      return hand_out(segment);
    case kImported:
      return take_in(message);
    case kImportDevice:
      return devices_.lend(segment);
    case kDevicePieces:
      return devices_.take_pieces(message.bytes, std::move(message.fds));
    case kClosed:
      closed_ = true;
      return;
    case kRing:
      return ring_offered(message, segment);
    case kRingTaken:
      return ring_taken();
    case kDropped:
      devices_.settle(segment);
      return stopped_.load() ? finish() : void();
    case kReleased: {
      if (segment != 0) revoke(segment, TW_ERR_STALE);
      devices_.close(segment);
      Event event;
      event.kind = Event::Kind::released;
      event.link = link_;
      event.segment = segment;
      return mailbox_->post(std::move(event));
    }
    default:
      return end(TW_ERR_PROTOCOL, "the peer sent an unknown control message");
  }
}

void Control::hand_out(uint64_t segment) {
  int fd = -1;
  size_t length = 0;
  Status s = TW_ERR_STALE;
  if (handed_out_.size() >= kMaxHandedOut)
    s = TW_ERR_LIMIT;
  else if (registry_ != nullptr)
    s = registry_->segment_fd(segment, &fd, &length);
  UniqueFd owned(s == TW_OK ? fd : -1);
  const ImportedBody body{segment, s, length};
  if (s == TW_OK && std::find(handed_out_.begin(), handed_out_.end(), segment) == handed_out_.end())
    handed_out_.push_back(segment);
  queue(kImported, &body, sizeof body, {&fd, s == TW_OK ? 1u : 0u});
}

void Control::take_in(SetupChannel::Message& message) {
  ImportedBody body;
  if (message.bytes.size() != sizeof body) return end(TW_ERR_PROTOCOL, "the peer sent a malformed import answer");
  std::memcpy(&body, message.bytes.data(), sizeof body);
  // Only what was asked for: otherwise a peer could fill this process's address space.
  const auto asked = std::find(asked_.begin(), asked_.end(), body.segment);
  if (asked == asked_.end()) return end(TW_ERR_PROTOCOL, "the peer answered an import that was not asked for");
  asked_.erase(asked);
  Event event;
  event.kind = Event::Kind::imported;
  event.link = link_;
  event.segment = body.segment;
  if (body.status == TW_OK && message.fds.size() == 1) {
    Segment memory;
    event.status = Segment::open(std::move(message.fds[0]), body.length, &memory);
    if (is_error(event.status)) {
      event.why = last_error();
    } else {
      event.import = std::make_shared<Import>(std::move(memory));
      std::erase_if(imported_, [](const Imported& one) { return one.import.expired(); });
      imported_.push_back({body.segment, event.import});
    }
  } else {
    event.status = TW_ERR_STALE;
    event.why = "the peer's memory was released, or it cannot hand it out";
  }
  mailbox_->post(std::move(event));
}

/// Here and not in the port's progress: whoever only stores into mapped memory never progresses.
void Control::revoke(uint64_t segment, Status why) {
  for (const Imported& one : imported_) {
    if (segment != 0 && one.segment != segment) continue;
    if (const auto import = one.import.lock()) import->mapping.revoke(why);
  }
  std::erase_if(imported_, [segment](const Imported& one) { return segment == 0 || one.segment == segment; });
}

void Control::request(uint64_t segment) {
  loop_->post([self = shared_from_this(), segment] {
    if (!self->attached_) return;  // the loss is on its way
    self->asked_.push_back(segment);
    self->queue(kImport, &segment, sizeof segment, {});
  });
}

void Control::offer_ring(uint64_t bytes) {
  loop_->post([self = shared_from_this(), bytes] {
    if (!self->attached_ || self->stopped_.load()) return;
    if (is_error(Segment::create("thalweg ring", bytes, true, false, &self->ring_))) return;  // it stays as it is
    const int fd = self->ring_.fd();
    self->queue(kRing, &bytes, sizeof bytes, {&fd, 1});
    self->ring_.close_fd();
  });
}

void Control::take_ring() {
  loop_->post([self = shared_from_this()] {
    self->ring_waits_ = false;
    if (!self->attached_ || self->stopped_.load()) return;
    const uint64_t nothing = 0;
    self->queue(kRingTaken, &nothing, sizeof nothing, {});
  });
}

void Control::ring_offered(SetupChannel::Message& message, uint64_t bytes) {
  if (message.fds.size() != 1 || (bytes != kDeepBytes && bytes != kWideBytes) || std::exchange(ring_waits_, true))
    return end(TW_ERR_PROTOCOL, "the peer offers a deep ring of no known size or without its memory, or one after the other");
  Event event;
  event.kind = Event::Kind::ring_offered;
  event.link = link_;
  event.ring = std::make_shared<Segment>();
  if (is_error(Segment::open(std::move(message.fds[0]), bytes, event.ring.get()))) return end(TW_ERR_PROTOCOL, last_error());
  event.ring->close_fd();
  mailbox_->post(std::move(event));
}

void Control::ring_taken() {
  if (ring_.data() == nullptr) return end(TW_ERR_PROTOCOL, "the peer takes a deep ring that was not offered");
  Event event;
  event.kind = Event::Kind::ring_taken;
  event.link = link_;
  event.ring = std::make_shared<Segment>(std::move(ring_));
  ring_ = Segment();
  mailbox_->post(std::move(event));
}

void Control::announce_release(uint64_t segment) {
  loop_->post([self = shared_from_this(), segment] {
    if (!self->attached_ || self->stopped_.load()) return;
    if (std::erase(self->handed_out_, segment) == 0 && !self->devices_.lends(segment)) return;
    self->queue(kReleased, &segment, sizeof segment, {});
  });
}

void Control::queue(uint16_t type, const void* bytes, size_t length, std::span<const int> fds) {
  if (is_error(channel_->queue(type, bytes, length, fds.data(), fds.size())))
    return end(TW_ERR_PROTOCOL, "the peer does not read its control channel");
  flush();
}

void Control::flush() {
  if (!attached_) return;
  const Status s = channel_->flush();
  if (is_error(s)) return lost();
  loop_->modify(channel_->fd(), EPOLLIN | EPOLLRDHUP | (s == TW_IN_PROGRESS ? uint32_t(EPOLLOUT) : 0u));
}

bool Control::await_copy(uint64_t limit_ns) {
  const uint32_t seen = copying.count();
  if ((seen & 1) == 0) return true;
  const Deadline deadline(limit_ns);
  while (copying.count() == seen && !gone_.load(std::memory_order_relaxed)) {
    if (deadline.passed()) return false;
    sched_yield();
  }
  return true;
}

/// Afterwards the watch is told of the end, or was: who sets ended_ looks at the watches behind it.
void Control::watch(const std::shared_ptr<LossWatch>& watch) {
  {
    const std::lock_guard lock(watching_);
    std::erase_if(watches_, [](const auto& one) { return one.expired(); });
    watches_.push_back(watch);
  }
  if (const Status status = ended_.load(); status != TW_OK) watch->on_loss(status, why_.c_str());
}

void Control::tell_watches(Status status, const char* why) {
  const std::lock_guard lock(watching_);
  for (const auto& one : watches_) {
    if (const auto watch = one.lock()) watch->on_loss(status, why);
  }
}

void Control::end(Status status, const char* why) {
  if (status == TW_ERR_PEER_LOST || status == TW_ERR_CLOSED) gone_.store(true, std::memory_order_relaxed);
  detach();
  if (peer_ended()) return;
  why_ = why;
  ended_.store(status);  // seq_cst: who adds a watch, or a link, looks at it behind that
  revoke(0, status);
  tell_watches(status, why);
  tell_end();
}

void Control::tell_end() {
  Event event;
  event.link = link_;
  event.status = ended_.load();
  event.why = why_;
  mailbox_->post(std::move(event));
}

/// May be called from a callback of the descriptors it removes: the loop keeps a running callback alive, and so does `self`.
void Control::detach() {
  const std::shared_ptr<Control> self = shared_from_this();
  if (std::exchange(attached_, false)) loop_->remove(channel_->fd());
  if (std::exchange(watching_pidfd_, false)) loop_->remove(pidfd_.get());
  pidfd_.reset();
  devices_.settle_all();
  mailbox_->remove(self);
  devices_.close_link();
  finish();
}

void Control::stop(bool graceful) {
  stopped_.store(true);
  devices_.refuse();
  loop_->post([self = shared_from_this(), graceful] {
    if (const uint64_t none = 0; graceful && self->attached_) self->queue(kClosed, &none, sizeof none, {});
    self->devices_.close_link();
    self->finish();
  });
}

/// Of a link that ends: as far as it can go now. Called again when an import is released and when the peer drops one.
void Control::finish() {
  if (devices_.holds_any()) return;
  if (!attached_) {
    channel_.reset();
  } else if (stopped_.load()) {
    if (!devices_.refuse()) return detach();
    loop_->modify(channel_->fd(), EPOLLIN | EPOLLRDHUP);
    shutdown(channel_->fd(), SHUT_WR);  // the peer drops what it has imported, and then ends its side
  }
}

// ------------------------------------------------------------------------------------------------ device memory

void Control::send(DeviceMemoryMessage message, const void* bytes, size_t length, std::span<const int> fds) {
  constexpr MessageType kTypes[] = {kImportDevice, kDevicePieces, kDropped};
  queue(kTypes[static_cast<size_t>(message)], bytes, length, fds);
}

void Control::imported(uint64_t segment, Device& device, Status status, std::string why) {
  Event event;
  event.kind = Event::Kind::imported;
  event.link = link_;
  event.segment = segment;
  event.device = &device;
  event.status = status;
  event.why = std::move(why);
  mailbox_->post(std::move(event));
}

void Control::import_gone(uint64_t segment) {
  devices_.tell_if_dropped(segment);
  finish();
}

}  // namespace thalweg::impl::shm
