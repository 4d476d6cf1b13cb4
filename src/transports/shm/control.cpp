// SPDX-License-Identifier: Apache-2.0
// Control channels on the service thread.
//
// The callbacks hold the Control alive while its descriptors are in the loop; detach() takes both out and ends that.
#include "transports/shm/control.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
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

/// Segments one peer may hold of us: what it requested and we have not released.
constexpr size_t kMaxHandedOut = 65536;
constexpr int kMessagesPerTurn = 32;
/// Requests of a peer that wait behind answers that it has not read. A port of ours has 256 under way (ShmPort::kMaxWanted).
constexpr size_t kMaxRequests = 512;
constexpr uint64_t kFlushAgainNs = 10 * kMillisecond;

/// What a peer may say of an import that failed; anything else means that the memory has been released.
Status told(int64_t status) {
  return status == TW_ERR_LIMIT || status == TW_ERR_NO_DESCRIPTORS ? static_cast<Status>(status) : TW_ERR_STALE;
}

const char* import_text(Status status) {
  if (status == TW_ERR_NO_DESCRIPTORS) return "the peer is out of file descriptors to hand out its memory; raise its ulimit -n";
  if (status == TW_ERR_LIMIT) return "the peer hands out no more memory over this connection: too much of it is mapped here";
  return "the peer's memory was released, or it cannot hand it out";
}

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

void Mailbox::send_release(uint64_t segment) {
  std::lock_guard lock(mutex_);
  for (const auto& control : controls_) control->send_release(segment);
}

std::vector<std::shared_ptr<Control>> Mailbox::controls() {
  std::lock_guard lock(mutex_);
  return controls_;
}

bool Mailbox::await_copies(uint64_t limit_ns) {
  const Deadline deadline(limit_ns);
  const auto all = controls();
  return std::all_of(all.begin(), all.end(), [&](const auto& control) { return control->await_copy(deadline, limit_ns); });
}

void Mailbox::waited_in_vain(pid_t process, uint64_t for_ns) {
  if (process == kOurs) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(in_vain_, [](const auto& one) { return one.second.passed(); });
  in_vain_.insert_or_assign(process, Deadline(for_ns));
}

bool Mailbox::waits_in_vain(pid_t process) {
  const std::lock_guard lock(mutex_);
  const auto found = in_vain_.find(process);
  return found != in_vain_.end() && !found->second.passed();
}

bool Mailbox::await_dropped(uint64_t segment, uint64_t limit_ns) {
  const Deadline deadline(limit_ns);
  const auto all = controls();
  return std::all_of(all.begin(), all.end(), [&](const auto& control) { return control->await_dropped(segment, deadline); });
}

Control::Control(std::shared_ptr<Mailbox> mailbox, EventLoop* loop, Registry* registry, uint64_t link, uint64_t incarnation,
                 pid_t process)
    : mailbox_(std::move(mailbox)),
      loop_(loop),
      registry_(registry),
      link_(link),
      process_(process),
      devices_(*this, mailbox_->imports, loop, registry, link, incarnation) {}

Control::~Control() = default;

void Control::start(LinkInit& init, UniqueFd pidfd) {
  SSL* const tls = static_cast<SSL*>(std::exchange(init.tls, nullptr));
  channel_ = std::make_unique<SetupChannel>(std::move(init.socket), tls, init.session);
  pidfd_ = std::move(pidfd);
  loop_->post([self = shared_from_this()] { self->begin(); });
}

void Control::begin() {
  // Also when stop() was called already: its messages to the peer follow this.
  if (is_error(loop_->add(channel_->fd(), EPOLLIN | EPOLLRDHUP, [self = shared_from_this()](uint32_t events) {
        if (events & EPOLLOUT) self->writable();
        if (events & ~uint32_t(EPOLLOUT)) self->readable();
      })))
    return end(TW_ERR_IO, "the control channel cannot be watched");
  attached_ = true;
  if (pidfd_) {
    watching_pidfd_ = !is_error(loop_->add(pidfd_.get(), EPOLLIN, [self = shared_from_this()](uint32_t) {
      self->read_rest();
      self->lost();
    }));
  }
  readable();  // TLS may hold bytes for which the socket no longer becomes readable
}

/// While a turn of reading waits in the loop, the descriptor's readiness starts no second one: a peer with endless messages would
/// have more of them in every turn.
void Control::readable() {
  if (!reading_again_) read_turn();
}

/// A few messages a turn: a peer with endless requests does not monopolise this thread.
void Control::read_turn() {
  for (int i = 0; attached_; ++i) {
    if (i == kMessagesPerTurn) {
      // Of a link that has ended here only imports of our memory count, and they need no TLS, which alone needs the post: a peer that
      // floods its channel would keep the loop from its end.
      if (stopped_.load() || std::exchange(reading_again_, true)) return;
      return loop_->post([self = shared_from_this()] {
        self->reading_again_ = false;
        self->readable();
      });
    }
    if (!read_message()) return;
  }
}

bool Control::read_message() {
  SetupChannel::Message message;
  const Status s = channel_->receive(&message);
  if (s == TW_IN_PROGRESS) return false;
  if (s == TW_OK || s == TW_ERR_NO_DESCRIPTORS) {
    handle(message, s);
  } else if (s == TW_ERR_PROTOCOL || s == TW_ERR_AUTHENTICATION) {
    end(TW_ERR_PROTOCOL, "the peer sent a malformed control message");
  } else {
    lost();
  }
  return true;
}

/// What the peer's process sent before its end, its goodbye behind the rest. Another process may hold the socket and go on: it can no
/// more.
void Control::read_rest() {
  reading_rest_ = true;
  shutdown(channel_->fd(), SHUT_RD);
  while (attached_ && read_message()) {
  }
}

void Control::lost() {
  if (closed_) return end(TW_ERR_CLOSED, "the peer closed the endpoint");
  end(TW_ERR_PEER_LOST, "the peer's process has ended, or it dropped the connection");
}

void Control::handle(SetupChannel::Message& message, Status came) {
  uint64_t segment = 0;
  if (message.bytes.size() < sizeof segment) return end(TW_ERR_PROTOCOL, "the peer sent a short control message");
  std::memcpy(&segment, message.bytes.data(), sizeof segment);
  if (stopped_.load() && message.type != kDropped) return;  // only its imports of our memory count any more
  switch (message.type) {
    case kImport:
    case kImportDevice:
      return asked(message.type, segment);
    case kImported:
      return take_in(message, came);
    case kDevicePieces:
      return devices_.take_pieces(message.bytes, std::move(message.fds), came);
    case kClosed:
      closed_ = true;
      return;
    case kRing:
      return ring_offered(message, segment, came);
    case kRingTaken:
      return ring_taken(segment != 0);
    case kDropped:
      devices_.settle(segment);
      return stopped_.load() ? finish() : void();
    case kReleased: {
      devices_.close(segment);
      if (segment == 0 || !revoke(segment, TW_ERR_STALE)) return;  // nothing that the port could have
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

/// A peer that does not read its answers pins neither descriptors nor memory: its next request waits until they are written.
void Control::asked(uint16_t type, uint64_t segment) {
  if (requests_.size() >= kMaxRequests)
    return end(TW_ERR_PROTOCOL, "the peer asks for memory on and on without reading the answers");
  requests_.emplace_back(type, segment);
  serve();
}

void Control::serve() {
  while (attached_ && !requests_.empty() && !stopped_.load() && channel_->all_written()) {
    const auto [type, segment] = requests_.front();
    requests_.pop_front();
    if (type == kImport)
      hand_out(segment);
    else
      devices_.lend(segment);
  }
}

void Control::writable() {
  flush();
  serve();
}

void Control::hand_out(uint64_t segment) {
  int fd = -1;
  size_t length = 0;
  Status s = TW_ERR_STALE;
  if (handed_out_.size() >= kMaxHandedOut)
    s = TW_ERR_LIMIT;
  else if (registry_ != nullptr)
    s = registry_->segment_fd(segment, &fd, &length);
  std::vector<UniqueFd> fds;
  if (s == TW_OK) fds.emplace_back(fd);
  const ImportedBody body{segment, s, length};
  if (s == TW_OK && std::find(handed_out_.begin(), handed_out_.end(), segment) == handed_out_.end())
    handed_out_.push_back(segment);
  queue(kImported, &body, sizeof body, std::move(fds));
}

void Control::take_in(SetupChannel::Message& message, Status came) {
  ImportedBody body;
  if (message.bytes.size() != sizeof body) return end(TW_ERR_PROTOCOL, "the peer sent a malformed import answer");
  std::memcpy(&body, message.bytes.data(), sizeof body);
  // Only what was requested: otherwise a peer could fill this process's address space.
  const auto asked = std::find(asked_.begin(), asked_.end(), body.segment);
  if (asked == asked_.end()) return end(TW_ERR_PROTOCOL, "the peer answered an import that was not asked for");
  asked_.erase(asked);
  Event event;
  event.kind = Event::Kind::imported;
  event.link = link_;
  event.segment = body.segment;
  if (is_error(came)) {
    event.status = came;
    event.why = "this process has no file descriptor left to map the peer's memory; raise ulimit -n, or close endpoints";
  } else if (body.status == TW_OK && message.fds.size() == 1) {
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
    event.status = told(body.status);
    event.why = import_text(event.status);
  }
  mailbox_->post(std::move(event));
}

/// Here and not in the port's progress: a worker that only stores into mapped memory never progresses.
bool Control::revoke(uint64_t segment, Status why) {
  for (const Imported& one : imported_) {
    if (segment != 0 && one.segment != segment) continue;
    if (const auto import = one.import.lock()) import->mapping.revoke(why);
  }
  return std::erase_if(imported_, [segment](const Imported& one) { return segment == 0 || one.segment == segment; }) != 0;
}

void Control::request(uint64_t segment) {
  loop_->post([self = shared_from_this(), segment] {
    if (!self->attached_) return;  // the loss is on its way
    self->asked_.push_back(segment);
    self->queue(kImport, &segment, sizeof segment);
  });
}

void Control::offer_ring(uint64_t bytes) {
  loop_->post([self = shared_from_this(), bytes] {
    if (!self->attached_ || self->stopped_.load()) return;
    std::vector<UniqueFd> fds(1);
    if (!is_error(Segment::create("thalweg ring", bytes, true, false, &self->ring_)))
      fds[0] = UniqueFd(fcntl(self->ring_.fd(), F_DUPFD_CLOEXEC, 0));
    self->ring_.close_fd();
    if (fds[0]) return self->queue(kRing, &bytes, sizeof bytes, std::move(fds));
    self->ring_ = Segment();
    self->tell_ring_taken(nullptr);  // memory or descriptors are short; another time
  });
}

void Control::take_ring() {
  loop_->post([self = shared_from_this()] {
    self->offered_ = nullptr;
    self->offered_ring_.store(false, std::memory_order_relaxed);
    if (!self->attached_ || self->stopped_.load()) return;
    const uint64_t taken = 0;
    self->queue(kRingTaken, &taken, sizeof taken);
  });
}

void Control::tell_ring() {
  if (!offered_ring_.load(std::memory_order_relaxed)) return;  // what the port has missed came before
  loop_->post([self = shared_from_this()] {
    if (self->offered_ == nullptr) return;
    Event event;
    event.kind = Event::Kind::ring_offered;
    event.link = self->link_;
    event.ring = self->offered_;
    self->mailbox_->post(std::move(event));
  });
}

void Control::ring_offered(SetupChannel::Message& message, uint64_t bytes, Status came) {
  if (came == TW_ERR_NO_DESCRIPTORS) {
    const uint64_t refused = 1;
    return queue(kRingTaken, &refused, sizeof refused);
  }
  if (message.fds.size() != 1 || (bytes != kDeepBytes && bytes != kWideBytes) || offered_ != nullptr)
    return end(TW_ERR_PROTOCOL, "the peer offers a deep ring of no known size or without its memory, or one after the other");
  Event event;
  event.kind = Event::Kind::ring_offered;
  event.link = link_;
  event.ring = std::make_shared<Segment>();
  if (is_error(Segment::open(std::move(message.fds[0]), bytes, event.ring.get()))) return end(TW_ERR_PROTOCOL, last_error());
  event.ring->close_fd();
  offered_ = event.ring;
  offered_ring_.store(true, std::memory_order_relaxed);
  mailbox_->post(std::move(event));
}

void Control::ring_taken(bool refused) {
  if (ring_.data() == nullptr) return end(TW_ERR_PROTOCOL, "the peer takes a deep ring that was not offered");
  auto ring = std::make_shared<Segment>(std::move(ring_));
  ring_ = Segment();
  tell_ring_taken(refused ? nullptr : std::move(ring));
}

void Control::tell_ring_taken(std::shared_ptr<Segment> ring) {
  Event event;
  event.kind = Event::Kind::ring_taken;
  event.link = link_;
  event.ring = std::move(ring);
  mailbox_->post(std::move(event));
}

void Control::send_release(uint64_t segment) {
  loop_->post([self = shared_from_this(), segment] {
    if (!self->attached_ || self->stopped_.load()) return;
    if (std::erase(self->handed_out_, segment) == 0 && !self->devices_.lends(segment)) return;
    self->queue(kReleased, &segment, sizeof segment);
  });
}

void Control::queue(uint16_t type, const void* bytes, size_t length, std::vector<UniqueFd>&& fds) {
  if (is_error(channel_->queue(type, bytes, length, std::move(fds))))
    return end(TW_ERR_PROTOCOL, "the peer does not read its control channel");
  flush();
}

void Control::flush() {
  if (!attached_ || flushing_again_) return;
  const Status s = channel_->flush();
  if (s == TW_ERR_NO_DESCRIPTORS) {
    flushing_again_ = true;
    loop_->after(kFlushAgainNs, [self = shared_from_this()] {
      self->flushing_again_ = false;
      self->writable();
    });
  } else if (is_error(s)) {
    return reading_rest_ ? void() : lost();  // nobody reads it; what the peer has said last is still to be read
  }
  loop_->modify(channel_->fd(), EPOLLIN | EPOLLRDHUP | (s == TW_IN_PROGRESS ? uint32_t(EPOLLOUT) : 0u));
}

bool Control::await_copy(const Deadline& deadline, uint64_t limit_ns) {
  const uint32_t seen = copying.count();
  if ((seen & 1) == 0) return true;
  if (mailbox_->waits_in_vain(process_)) return gone_.load(std::memory_order_relaxed);
  while (copying.count() == seen && !gone_.load(std::memory_order_relaxed)) {
    if (deadline.passed()) {
      mailbox_->waited_in_vain(process_, limit_ns);
      return false;
    }
    sched_yield();
  }
  return true;
}

/// Afterwards the watch will be called at the end, or was: the thread that sets ended_ reads the watches behind it.
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
  ended_.store(status);  // seq_cst: a thread that adds a watch, or a link, reads it behind that
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
    if (const uint64_t none = 0; graceful && self->attached_) self->queue(kClosed, &none, sizeof none);
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

void Control::send(DeviceMemoryMessage message, const void* bytes, size_t length, std::vector<UniqueFd>&& fds) {
  constexpr MessageType kTypes[] = {kImportDevice, kDevicePieces, kDropped};
  queue(kTypes[static_cast<size_t>(message)], bytes, length, std::move(fds));
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
