// SPDX-License-Identifier: Apache-2.0
// Making links: the two set-up messages and what follows from them.
//
// offer(), answer() and adopt() run on the service thread and keep nothing in the port: the descriptors travel in the
// messages, adopt() maps the rings and starts the control channel, establish() does the rest. So a set-up that is given up
// leaves nothing behind, and a peer's imports do not wait for this side's progress.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "base/platform/membarrier.hpp"
#include "base/platform/process.hpp"
#include "transports/shm/port.hpp"
#include "transports/shm/single_copy.hpp"

namespace thalweg::impl::shm {
namespace {

constexpr size_t kDoorbellFd = 0, kRingerFd = 1, kSegmentFd = 2;

Status pass_copy(int fd, SetupMessage& message) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return fail_errno(errno, "duplicating a descriptor for the peer");
  message.fds.emplace_back(copy);
  return TW_OK;
}

}  // namespace

Status ShmPort::open(const PortOptions& options, std::unique_ptr<Port>* port) {
  auto mailbox = std::make_shared<Mailbox>();
  if (Status s = mailbox->doorbell.open(); is_error(s)) return s;
  membarrier::available();  // registers this process
  port->reset(new ShmPort(options, std::move(mailbox)));
  return TW_OK;
}

ShmPort::ShmPort(const PortOptions& options, std::shared_ptr<Mailbox> mailbox)
    : options_(options), sink_(options.sink), mailbox_(std::move(mailbox)) {
  if (options_.registry != nullptr) options_.registry->add_listener(this);
}

Status ShmPort::start_setup(SetupMessage& mine) {
  SetupBody body{};
  body.magic = kSetupMagic;
  body.version = kSetupVersion;
  body.membarrier = membarrier::available() ? 1 : 0;
  body.segment_size = sizeof(Connection);
  // Bits are assigned round-robin and may repeat: two rings with one bit only cost a superfluous poll.
  body.doorbell_bit = next_bit_.fetch_add(1, std::memory_order_relaxed) % kDoorbellBits;
  body.doorbell_address = reinterpret_cast<uintptr_t>(mailbox_->doorbell.segment().data());
  mine.bytes.resize(sizeof body);
  std::memcpy(mine.bytes.data(), &body, sizeof body);
  mine.fds.clear();
  if (Status s = pass_copy(mailbox_->doorbell.segment().fd(), mine); is_error(s)) return s;
  return pass_copy(mailbox_->doorbell.ringer_fd(), mine);
}

Status ShmPort::offer(const PeerIdentity&, SetupMessage& mine) {
  if (Status s = start_setup(mine); is_error(s)) return s;
  Segment segment;
  if (Status s = Segment::create("thalweg-ring", sizeof(Connection), true, false, &segment); is_error(s)) return s;
  return pass_copy(segment.fd(), mine);
}

Status ShmPort::answer(const PeerIdentity&, const SetupMessage& theirs, SetupMessage& mine) {
  SetupBody body;
  if (Status s = check_setup(theirs, 3, &body); is_error(s)) return s;
  return start_setup(mine);
}

/// Untrusted. `fds`: how many descriptors must be there.
Status ShmPort::check_setup(const SetupMessage& theirs, size_t fds, SetupBody* out) const {
  if (theirs.bytes.size() != sizeof *out)
    return fail(TW_ERR_PROTOCOL, "a shm set-up message of %zu bytes", theirs.bytes.size());
  std::memcpy(out, theirs.bytes.data(), sizeof *out);
  if (out->magic != kSetupMagic) return fail(TW_ERR_PROTOCOL, "not a shm set-up message");
  if (out->version != kSetupVersion || out->segment_size != sizeof(Connection))
    return fail(TW_ERR_VERSION, "the peer's shm rings are of version %u (%u bytes), these of %u (%zu bytes)", out->version,
                out->segment_size, kSetupVersion, sizeof(Connection));
  if (out->doorbell_bit >= kDoorbellBits || theirs.fds.size() != fds)
    return fail(TW_ERR_PROTOCOL, "a shm set-up message with %zu descriptors and doorbell bit %u", theirs.fds.size(),
                out->doorbell_bit);
  return TW_OK;
}

EarlyLink::~EarlyLink() {
  if (control == nullptr) return;
  copier.close();
  if (trusted && !control->await_copy(Deadline(copy_limit), copy_limit))
    warn_once("shm.copy", "shm: a peer is stopped in the middle of a copy; its link ends without it");
  control->copying.forget();
  control->stop(false);
  if (!control->lends()) mailbox->remove(control);
}

void ShmPort::adopt(LinkInit& init) {
  auto early = std::make_unique<EarlyLink>();
  early->status = open_early(init, *early);
  if (is_error(early->status)) early->why = last_error();
  init.adopted = std::move(early);
}

Status ShmPort::open_early(LinkInit& init, EarlyLink& early) {
  SetupBody mine, theirs;
  if (Status s = check_setup(init.theirs, init.initiator ? 2 : 3, &theirs); is_error(s)) return s;
  if (Status s = check_setup(init.mine, init.initiator ? 3 : 2, &mine); is_error(s)) return s;
  SetupMessage& maker = init.initiator ? init.mine : init.theirs;
  if (Status s = Segment::open(std::move(maker.fds[kSegmentFd]), sizeof(Connection), &early.segment); is_error(s)) return s;
  early.segment.close_fd();
  early.id = next_id_.fetch_add(1);
  early.seen = init.socket ? peer_pid(init.socket.get()) : 0;
  auto& connection = *reinterpret_cast<Connection*>(early.segment.data());
  early.copier.open(connection.direction[init.initiator ? 0 : 1].control, connection.direction[init.initiator ? 1 : 0].control);
  early.copy_limit = copy_limit();
  watch(early, init);
  return TW_OK;
}

Status ShmPort::establish(LinkInit&& init, Link** out) {
  if (init.adopted == nullptr) adopt(init);
  auto link = std::make_unique<ShmLink>();
  if (Status s = open_link(*link, init); is_error(s)) {
    // A lack of memory or descriptors of ours is no rule that the peer has broken.
    if (s == TW_ERR_PROTOCOL || s == TW_ERR_VERSION || s == TW_ERR_AUTHENTICATION)
      static_cast<EarlyLink&>(*init.adopted).trusted = false;
    return s;
  }
  ShmLink& made = *link;
  *out = &made;
  links_.emplace(made.id, std::move(link));
  quiet = false;
  if (made.control) {  // events that had no listener
    made.control->tell_ring();
    if (made.control->peer_ended()) made.control->tell_end();
  }
  return TW_OK;
}

Status ShmPort::open_link(ShmLink& link, LinkInit& init) {
  auto& early = static_cast<EarlyLink&>(*init.adopted);
  if (is_error(early.status)) return fail(early.status, "%s", early.why.c_str());
  SetupBody mine, theirs;
  if (Status s = check_setup(init.theirs, init.initiator ? 2 : 3, &theirs); is_error(s)) return s;
  if (Status s = check_setup(init.mine, init.initiator ? 3 : 2, &mine); is_error(s)) return s;
  if (Status s = link.doorbell.open(std::move(init.theirs.fds[kDoorbellFd]), std::move(init.theirs.fds[kRingerFd]));
      is_error(s))
    return s;

  link.port = this;
  link.peer = init.peer;
  link.id = early.id;
  link.inline_max = kInlineMax;
  link.copy_max = kCopyMax;
  link.fragment = kFragment;
  link.my_bit = mine.doorbell_bit;
  link.peer_bit = theirs.doorbell_bit;
  auto& connection = *reinterpret_cast<Connection*>(early.segment.data());
  const bool fence_needed = mine.membarrier == 0 || theirs.membarrier == 0;
  link.sleeping = link.doorbell.sleeping();
  link.fence_before_sleeping = fence_needed;
  link.out.open(connection.direction[init.initiator ? 0 : 1], fence_needed);
  link.in.open(connection.direction[init.initiator ? 1 : 0], fence_needed);
  link.offers = {&connection.offers[init.initiator ? 0 : 1], &connection.offers[init.initiator ? 1 : 0]};
  link.copier = early.copier;
  if (Status s = find_features(link, theirs, early.seen); is_error(s)) return s;
  link.segment = std::move(early.segment);
  link.control = std::move(early.control);
  if (link.control) link.features |= kLinkMaps;
  if (by_bit_.size() <= link.my_bit) by_bit_.resize(link.my_bit + 1);
  link.next_same_bit = by_bit_[link.my_bit];
  by_bit_[link.my_bit] = &link;
  ++live_;
  if (!same_process(link)) ++foreign_;
  heat(link);
  if (armed_) wake();  // frames may be there already
  return TW_OK;
}

/// The kernel identifies the peer: the process that made the socket's other end (0: not to be seen from here). What the
/// peer says of itself, its incarnation, only distinguishes two ports of this process from ports that a test connects.
Status ShmPort::find_features(ShmLink& link, const SetupBody& theirs, pid_t seen) {
  link.features |= kLinkProtected;
  link.peer.pid = seen;
  const bool ours = seen == getpid(), claims_ours = link.peer.incarnation == options_.incarnation && options_.incarnation != 0;
  if (claims_ours && !ours) {
    return fail(TW_ERR_AUTHENTICATION, "a peer says that it is this process, and the kernel says that it is process %d", seen);
  }
  if (ours) {  // never the kernel's copy: within a process its addresses are plain memory
    if (claims_ours) link.features |= kLinkSameProcess;
    return TW_OK;
  }
  if (seen <= 0) return TW_OK;
  if (link.doorbell.probe(seen, theirs.doorbell_address, theirs.doorbell_bit)) {
    link.pid = seen;
    link.features |= kLinkSingleCopy;
  } else if (errno == EPERM || errno == ENOSYS) {
    warn_once("shm.single_copy",
              "shm: this process may not read its peer's memory (process_vm_readv is forbidden), so large messages are copied "
              "twice. Remedy: sysctl kernel.yama.ptrace_scope=0, or the container capability SYS_PTRACE");
  }
  return TW_OK;
}

/// Hands the socket to the service thread.
void ShmPort::watch(EarlyLink& early, LinkInit& init) {
  if (options_.service == nullptr || !init.socket) return;
  early.mailbox = mailbox_;
  early.control = std::make_shared<Control>(mailbox_, options_.service, options_.registry, early.id, init.peer.incarnation,
                                            early.seen != getpid() ? early.seen : Mailbox::kOurs);
  early.control->copying.open(
      reinterpret_cast<const Connection*>(early.segment.data())->direction[init.initiator ? 1 : 0].control);
  mailbox_->add(early.control);
  UniqueFd pidfd;
  if (early.seen > 0 && early.seen != getpid()) (void)open_peer_pidfd(init.socket.get(), &pidfd);
  early.control->start(init, std::move(pidfd));
}

/// A process number may be given again to another process: none is used whose end is known.
int64_t ShmPort::copy_peer(ShmLink& link, CopyDirection direction, const iovec* local, size_t locals, const iovec* remote,
                           size_t remotes) {
  if (link.state != TW_OK) return link.state;
  if (link.pid == 0) return TW_ERR_UNSUPPORTED;
  if (link.control && link.control->peer_ended()) return TW_ERR_PEER_LOST;
  return copy_between(direction, link.pid, local, locals, remote, remotes);
}

int64_t ShmPort::read_peer(Link& link, const iovec* local, size_t locals, const iovec* remote, size_t remotes) {
  return copy_peer(static_cast<ShmLink&>(link), CopyDirection::from_peer, local, locals, remote, remotes);
}

int64_t ShmPort::write_peer(Link& link, const iovec* local, size_t locals, const iovec* remote, size_t remotes) {
  return copy_peer(static_cast<ShmLink&>(link), CopyDirection::to_peer, local, locals, remote, remotes);
}

}  // namespace thalweg::impl::shm
