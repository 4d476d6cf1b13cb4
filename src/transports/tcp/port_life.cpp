// SPDX-License-Identifier: Apache-2.0
// The life of links: set-up, loss, graceful and forced close.
#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/clock.hpp"
#include "base/passed_descriptors.hpp"
#include "base/sockets.hpp"
#include "transports/tcp/port.hpp"
#include "transports/tcp/silence.hpp"

namespace thalweg::impl::tcp {

namespace {

constexpr size_t kMostDrained = 8 << 20;  // bytes, of a link that lingers when its port ends

/// The set-up message that the two ports exchange before a link begins.
struct Offer {
  uint16_t version;  // kFrameVersion
  uint16_t rails;    // sockets per link; 1
  uint32_t largest;  // body that this side accepts
};
static_assert(sizeof(Offer) == 8);

void write_offer(SetupMessage& mine) {
  const Offer offer{kFrameVersion, 1, kReferenceMax};
  mine.bytes.resize(sizeof(offer));
  std::memcpy(mine.bytes.data(), &offer, sizeof(offer));
}

Status read_offer(const SetupMessage& theirs, Offer* offer) {
  if (theirs.bytes.size() != sizeof(*offer)) return fail(TW_ERR_PROTOCOL, "the peer's tcp set-up message has a wrong size");
  std::memcpy(offer, theirs.bytes.data(), sizeof(*offer));
  if (offer->version != kFrameVersion)
    return fail(TW_ERR_VERSION, "the peer speaks version %u of the tcp framing, this side %u", offer->version, kFrameVersion);
  if (offer->rails != 1 || offer->largest < kSmallestReferenceMax || offer->largest < kCopyMax)
    return fail(TW_ERR_PROTOCOL, "the peer's tcp set-up message makes no sense");
  return TW_OK;
}

}  // namespace

Status TcpPort::start() {
  watch_period_ns_ = watch_period(options_.silent_timeout_ns);
  return poller_.open();
}

// No callbacks: the sink may be gone already. What was accepted by the kernel is still delivered by it.
TcpPort::~TcpPort() {
  for (auto& link : links_) {
    if (link->lingering) {
      // Unread bytes would make the kernel reset the connection. A peer that sends on and on has no claim to that.
      const iovec place{read_buffer_.fresh(), kReadBuffer};
      for (size_t left = kMostDrained; left >= kReadBuffer && link->socket.receive(&place, 1).moved == kReadBuffer;)
        left -= kReadBuffer;
    }
    poller_.remove(*link);
  }
}

Status TcpPort::offer(const PeerIdentity&, SetupMessage& mine) {
  write_offer(mine);
  return TW_OK;
}

Status TcpPort::answer(const PeerIdentity&, const SetupMessage& theirs, SetupMessage& mine) {
  Offer offer;
  if (Status s = read_offer(theirs, &offer); s != TW_OK) return s;
  write_offer(mine);
  return TW_OK;
}

Status TcpPort::establish(LinkInit&& init, Link** out) {
  // Owned from here on, also by an error return.
  auto link = std::make_unique<TcpLink>(std::move(init.socket), init.tls, *options_.sink, chunks_, kReferenceMax);
  init.tls = nullptr;
  Offer theirs;
  if (Status s = read_offer(init.theirs, &theirs); s != TW_OK) return s;
  const int fd = link->socket.fd();
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return fail_errno(errno, "fcntl of a connected socket");
  // A unix socket's peer is on this machine: its kernel reports the end at once.
  link->watched = !tune_socket(fd, options_.silent_timeout_ns);
  if (is_unix_socket(fd)) refuse_descriptors(fd);
  link->port = this;
  link->peer = init.peer;
  link->features = kLinkByReference | (is_unix_socket(fd) || link->socket.tls() ? uint32_t(kLinkProtected) : 0u);
  link->inline_max = kInline;
  link->copy_max = kCopyMax;
  link->reference_max = std::min(kReferenceMax, theirs.largest);
  link->fragment =
      link->reference_max == kReferenceMax ? kFragment : link->reference_max / 2;  // with what stands before a payload
  link->index = links_.size();
  for (auto* list : {&dirty_, &resume_, &scratch_, &lost_, &watched_, &lingering_}) list->reserve(links_.size() + 1);
  if (Status s = poller_.add(*link); s != TW_OK) return s;
  TcpLink& established = *link;
  links_.push_back(std::move(link));
  quiet = false;
  read_again(established);  // TLS may hold frames that came with the last set-up message
  *out = &established;
  return TW_OK;
}

void TcpPort::lose(TcpLink& link, Status status, std::string why) {
  if (link.lost || link.gone) return;
  poller_.remove(link);
  link.status = status;
  if (link.lingering) {
    const Round open(*this);
    abandon(link, status);
    if (!link.gone) bury(link);
    return;
  }
  link.lost = true;
  link.why = std::move(why);
  lost_.push_back(&link);
}

void TcpPort::lose_errno(TcpLink& link, const char* doing, int error) {
  std::string why = error == EPROTO ? std::string("the peer's TLS stream is broken") : std::string();
  if (why.empty())
    why = std::string("the connection to the peer ended while ") + doing + ": " + std::generic_category().message(error);
  lose(link, error == EPROTO ? TW_ERR_PROTOCOL : TW_ERR_PEER_LOST, std::move(why));
}

/// Reports every body by reference: those that the kernel took as sent, the others with `status`.
void TcpPort::abandon(TcpLink& link, Status status) {
  std::vector<void*> done, rest;
  while (link.out.has_finished()) done.push_back(link.out.finished());
  link.out.abandon(&rest);
  for (void* token : done) options_.sink->on_sent(link, token, TW_OK);
  for (void* token : rest) options_.sink->on_sent(link, token, status);
}

void TcpPort::close(Link& base, bool graceful) {
  TcpLink& link = static_cast<TcpLink&>(base);
  if (link.gone || link.lingering) return;
  const Round open(*this);
  if (graceful && !link.lost && link.write_error == 0) {
    linger(link);
    return;
  }
  link.silent = true;
  abandon(link, link.lost ? link.status : TW_ERR_CLOSED);
  bury(link);
}

size_t TcpPort::undelivered(const Link& base) const {
  const auto& link = static_cast<const TcpLink&>(base);
  int unacknowledged = 0;
  if (!is_unix_socket(link.socket.fd()) && ::ioctl(link.socket.fd(), SIOCOUTQ, &unacknowledged) != 0) unacknowledged = 0;
  return queued(base) + static_cast<size_t>(unacknowledged);
}

void TcpPort::linger(TcpLink& link) {
  link.silent = true;
  link.lingering = true;
  const uint64_t patience = std::min<uint64_t>(options_.silent_timeout_ns, 60 * kSecond);
  link.linger_until = monotonic_ns() + patience;
  lingering_.push_back(&link);
  poller_.remove(link);
  flush(link);
  if (poller_.add(link) != TW_OK || link.write_error != 0) {
    lose(link, TW_ERR_CLOSED, "");
    return;
  }
  read_again(link);
}

void TcpPort::bury(TcpLink& link) {
  if (link.gone) return;
  link.gone = link.silent = true;
  poller_.remove(link);
  const size_t at = link.index;
  graveyard_.push_back(std::move(links_[at]));
  if (at + 1 != links_.size()) {
    links_[at] = std::move(links_.back());
    links_[at]->index = at;
  }
  links_.pop_back();
}

void TcpPort::clean() {
  const auto gone = [](const TcpLink* link) { return link->gone; };
  for (auto* list : {&dirty_, &resume_, &lost_, &watched_, &lingering_}) std::erase_if(*list, gone);
  graveyard_.clear();
}

}  // namespace thalweg::impl::tcp
