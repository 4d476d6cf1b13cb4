// SPDX-License-Identifier: Apache-2.0
// The self port: queues of frames, one per link, delivered by progress. Memory of the peer is memory of this process.
#include "transports/self/self.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "transports/link_count.hpp"
#include "transports/self/frame_queue.hpp"

namespace thalweg::impl {
namespace self {
namespace {

constexpr uint32_t kCopyMax = 64 * 1024;
constexpr uint32_t kInlineMax = 40;

struct SelfLink final : Link {
  [[no_unique_address]] LinkCount counted;
  FrameQueue queue;
  bool closed = false;
};

class SelfPort final : public Port {
 public:
  explicit SelfPort(const PortOptions& options) : sink_(options.sink) {}
  Status open() {
    event_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return event_ ? TW_OK : fail_errno(errno, "eventfd");
  }
  const char* name() const override { return "self"; }

  Status offer(const PeerIdentity&, SetupMessage&) override { return TW_OK; }
  Status answer(const PeerIdentity&, const SetupMessage&, SetupMessage&) override { return TW_OK; }
  Status establish(LinkInit&& init, Link** link) override;

  Status send(Link& link, const FrameHeader& header, const void* body) override;
  std::byte* reserve(Link& link, size_t n) override;
  void commit(Link& link, const FrameHeader& header) override;
  Status send_reference(Link&, const FrameHeader&, const iovec*, size_t, void*) override {
    return fail(TW_ERR_UNSUPPORTED, "self has no sends by reference");
  }
  void withdraw(Link&, std::byte*) override {}

  Status import(Link&, uint64_t, Mapping**) override {
    return fail(TW_ERR_UNSUPPORTED, "memory of this process needs no import: its addresses are ours");
  }
  Status import_device(Link&, uint64_t, Device&, Mapping**) override {
    return fail(TW_ERR_UNSUPPORTED, "device memory of this process needs no import: its addresses are ours");
  }
  int64_t read_peer(Link&, const iovec* local, size_t locals, const iovec* remote, size_t remotes) override {
    return copy(local, locals, remote, remotes);
  }
  int64_t write_peer(Link&, const iovec* local, size_t locals, const iovec* remote, size_t remotes) override {
    return copy(remote, remotes, local, locals);
  }

  uint64_t taken(const Link& link) override { return static_cast<const SelfLink&>(link).queue.popped() + 1; }
  uint64_t sent(const Link& link) override { return static_cast<const SelfLink&>(link).queue.pushed(); }
  unsigned progress(unsigned budget) override;
  int fd() const override { return event_.get(); }
  Status arm() override;
  void wake() override {
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t n = write(event_.get(), &one, sizeof one);
  }
  void ring(Link&) override {
    if (!armed_) return;
    rung_ = true;
    wake();
  }
  void close(Link& link, bool graceful) override;
  size_t queued(const Link& link) const override { return static_cast<const SelfLink&>(link).queue.bytes(); }

 private:
  static int64_t copy(const iovec* to, size_t tos, const iovec* from, size_t froms);
  unsigned deliver(SelfLink& link, unsigned budget);

  Sink* sink_;
  UniqueFd event_;
  std::vector<std::unique_ptr<SelfLink>> links_;
  std::vector<std::unique_ptr<SelfLink>> graveyard_;  // closed by a callback
  uint32_t armed_ = 0;                                // Link::sleeping
  bool rung_ = false, progressing_ = false;
};

Status SelfPort::establish(LinkInit&& init, Link** out) {
  auto link = std::make_unique<SelfLink>();
  link->port = this;
  link->peer = init.peer;
  link->features = kLinkSameProcess | kLinkProtected;
  link->inline_max = kInlineMax;
  link->copy_max = kCopyMax;
  link->fragment = kCopyMax;
  link->sleeping = &armed_;
  *out = link.get();
  links_.push_back(std::move(link));
  quiet = false;
  return TW_OK;
}

Status SelfPort::send(Link& base, const FrameHeader& header, const void* body) {
  if (header.length > kCopyMax) return fail(TW_ERR_INVALID, "a self frame of %u bytes: at most %u", header.length, kCopyMax);
  std::byte* to = reserve(base, header.length);
  if (to == nullptr) return static_cast<SelfLink&>(base).closed ? TW_ERR_CLOSED : TW_AGAIN;
  if (header.length != 0) std::memcpy(to, body, header.length);
  commit(base, header);
  return TW_OK;
}

std::byte* SelfPort::reserve(Link& base, size_t n) {
  auto& link = static_cast<SelfLink&>(base);
  return n > kCopyMax || link.closed ? nullptr : link.queue.room(n);
}

void SelfPort::commit(Link& base, const FrameHeader& header) {
  static_cast<SelfLink&>(base).queue.push(header);
  if (armed_) [[unlikely]]
    wake();
}

/// Only what was there on entry: frames that callbacks send wait for the next progress.
unsigned SelfPort::deliver(SelfLink& link, unsigned budget) {
  const size_t count = std::min<size_t>(budget, link.queue.frames());
  unsigned done = 0;
  while (done < count && !link.closed && !sink_->pause) {
    const std::byte* body;
    const FrameHeader& header = link.queue.front(&body);
    ++done;
    sink_->on_frame(link, header, body);
    link.queue.pop();
  }
  return done;
}

unsigned SelfPort::progress(unsigned budget) {
  if (progressing_) return 0;
  if (armed_) [[unlikely]] {
    armed_ = 0;
    uint64_t count;
    [[maybe_unused]] ssize_t n = read(event_.get(), &count, sizeof count);
  }
  progressing_ = true;
  unsigned done = std::exchange(rung_, false) ? 1 : 0;
  // By index: a callback may make or close links.
  sink_->pause = false;
  for (size_t i = 0; i < links_.size() && done < budget; ++i) {
    if (links_[i]->queue.frames() != 0) done += deliver(*links_[i], budget - done);
  }
  progressing_ = false;
  if (!graveyard_.empty()) [[unlikely]]
    graveyard_.clear();
  quiet = links_.empty();
  return done;
}

Status SelfPort::arm() {
  quiet = false;
  for (const auto& link : links_)
    if (link->queue.frames() != 0) return TW_ERR_BUSY;
  armed_ = 1;
  return TW_OK;
}

void SelfPort::close(Link& base, bool) {
  // Both ends close at once, so no receiver is left: to deliver everything, progress until queued() is 0.
  auto& link = static_cast<SelfLink&>(base);
  if (link.closed) return;
  link.closed = true;
  const auto at = std::find_if(links_.begin(), links_.end(), [&link](const auto& other) { return other.get() == &link; });
  if (at == links_.end()) return;
  std::unique_ptr<SelfLink> owned = std::move(*at);
  links_.erase(at);
  if (progressing_) graveyard_.push_back(std::move(owned));
}

int64_t SelfPort::copy(const iovec* to, size_t tos, const iovec* from, size_t froms) {
  int64_t moved = 0;
  size_t i = 0, j = 0, to_offset = 0, from_offset = 0;
  while (i < tos && j < froms) {
    const size_t n = std::min(to[i].iov_len - to_offset, from[j].iov_len - from_offset);
    std::memmove(static_cast<char*>(to[i].iov_base) + to_offset, static_cast<const char*>(from[j].iov_base) + from_offset, n);
    moved += int64_t(n);
    to_offset += n;
    from_offset += n;
    if (to_offset == to[i].iov_len) ++i, to_offset = 0;
    if (from_offset == from[j].iov_len) ++j, from_offset = 0;
  }
  return moved;
}

}  // namespace
}  // namespace self

namespace {

class SelfTransport final : public Transport {
 public:
  const char* name() const override { return "self"; }
  TransportTraits traits() const override { return {.to_itself = true, .same_host_only = true}; }
  std::string unavailable() const override { return {}; }
  std::vector<std::string> remarks() const override { return {}; }
  Status open(const PortOptions& options, std::unique_ptr<Port>* port) override {
    auto opened = std::make_unique<self::SelfPort>(options);
    if (Status s = opened->open(); is_error(s)) return s;
    *port = std::move(opened);
    return TW_OK;
  }
};

}  // namespace

std::unique_ptr<Transport> make_self_transport() { return std::make_unique<SelfTransport>(); }

}  // namespace thalweg::impl
