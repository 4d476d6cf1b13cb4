// SPDX-License-Identifier: Apache-2.0
// Sending: straight to the socket when nothing waits, else through the link's queue.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transports/tcp/port.hpp"

namespace thalweg::impl::tcp {

namespace {

constexpr size_t kGather = 64;  // pieces per system call

TcpLink& own(Link& link) { return static_cast<TcpLink&>(link); }

bool unusable(const TcpLink& link) { return link.lost || link.silent || link.write_error != 0; }

Status refused(const TcpLink& link) {
  if (link.silent && !link.lost) return fail(TW_ERR_CLOSED, "the connection was closed");
  return fail(TW_ERR_PEER_LOST, "the peer is lost: its connection has ended");
}
Status broken(int error) { return fail(TW_ERR_PEER_LOST, "the connection to the peer broke: %s", std::strerror(error)); }

}  // namespace

/// May one more frame of this link go out at once, or has a burst begun?
bool TcpPort::immediate(TcpLink& link) {
  if (link.burst_round != round_) {
    link.burst_round = round_;
    link.burst = 0;
  }
  return link.burst++ < kImmediate;
}

bool TcpPort::make_room(TcpLink& link) {
  if (!link.out.full()) return true;
  if (!link.blocked) flush(link);
  return !link.out.full();
}

/// There is no memory for a link's queue, and nothing of the frame has gone: a later attempt finds some. No event tells when, so nobody
/// sleeps until then.
Status TcpPort::no_queue() {
  starved_ = true;
  return TW_AGAIN;
}

void TcpPort::mark_dirty(TcpLink& link) {
  if (link.dirty) return;
  link.dirty = true;
  dirty_.push_back(&link);
}

void TcpPort::after_append(TcpLink& link) {
  if (link.blocked) return;
  if (link.out.bytes() >= kBatch || immediate(link)) {
    flush(link);
  } else {
    mark_dirty(link);
  }
}

/// Something was written, or could not be.
void TcpPort::after_write(TcpLink& link, bool blocked) {
  if (blocked != link.blocked) {
    link.blocked = blocked;
    poller_.update(link);
  }
  if (!link.watched) {
    link.watched = true;
    watched_.push_back(&link);
  }
}

/// The peer may have sent something before it closed (a goodbye, an error): the loss is reported once that is read.
void TcpPort::write_failed(TcpLink& link, int error) {
  if (link.write_error != 0) return;
  link.write_error = error;
  link.blocked = false;
  read_again(link);
}

Status TcpPort::send(Link& base, const FrameHeader& header, const void* body) {
  TcpLink& link = own(base);
  if (unusable(link)) [[unlikely]]
    return refused(link);
  const size_t n = header.length;
  if (n > kCopyMax) [[unlikely]]
    return fail(TW_ERR_INVALID, "a tcp frame of %zu bytes is too long to be copied", n);
  poller_.touch(link, round_);
  if (link.out.empty() && immediate(link)) {
    std::byte head[kFrameHead + kInline];
    write_head(head, link.sequence++, header);
    iovec pieces[2] = {{head, kFrameHead}, {const_cast<void*>(body), n}};
    size_t count = n == 0 ? 1 : 2;
    if (n > 0 && n <= kInline) {
      std::memcpy(head + kFrameHead, body, n);
      pieces[0].iov_len += n;
      count = 1;
    }
    const IoResult result = link.socket.send(pieces, count);
    if (result.moved == kFrameHead + n) [[likely]] {
      after_write(link, false);
      return TW_OK;
    }
    return keep_rest(link, result, pieces, count);
  }
  if (!make_room(link)) return TW_AGAIN;
  std::byte* at = link.out.room(kFrameHead + n);
  if (at == nullptr) return no_queue();
  write_head(at, link.sequence++, header);
  if (n > 0) std::memcpy(at + kFrameHead, body, n);
  link.out.added(kFrameHead + n);
  after_append(link);
  return TW_OK;
}

/// The socket did not take everything of a frame that went around the (empty) queue.
Status TcpPort::keep_rest(TcpLink& link, const IoResult& result, const iovec* pieces, size_t count) {
  if (result.error != 0 && result.error != EAGAIN) {
    write_failed(link, result.error);
    return broken(result.error);
  }
  size_t skip = result.moved;
  for (size_t i = 0; i < count; ++i) {
    if (skip >= pieces[i].iov_len) {
      skip -= pieces[i].iov_len;
      continue;
    }
    const size_t rest = pieces[i].iov_len - skip;
    std::byte* at = link.out.room(rest);
    if (at == nullptr) {
      lose(link, TW_ERR_NO_MEMORY, "no memory for the output queue of a tcp link");
      return TW_ERR_NO_MEMORY;
    }
    std::memcpy(at, static_cast<const std::byte*>(pieces[i].iov_base) + skip, rest);
    link.out.added(rest);
    skip = 0;
  }
  after_write(link, true);
  return TW_OK;
}

std::byte* TcpPort::reserve(Link& base, size_t n) {
  TcpLink& link = own(base);
  if (n > kCopyMax || unusable(link) || !make_room(link)) return nullptr;
  std::byte* at = link.out.room(kFrameHead + n);
  if (at != nullptr) return at + kFrameHead;
  no_queue();
  return nullptr;
}

void TcpPort::commit(Link& base, const FrameHeader& header) {
  TcpLink& link = own(base);
  poller_.touch(link, round_);
  write_head(link.out.room(kFrameHead + header.length), link.sequence++, header);
  link.out.added(kFrameHead + header.length);
  after_append(link);
}

Status TcpPort::send_reference(Link& base, const FrameHeader& header, const iovec* pieces, size_t count, void* token) {
  TcpLink& link = own(base);
  if (unusable(link)) [[unlikely]]
    return refused(link);
  const size_t n = header.length;
  if (n == 0) return send(base, header, nullptr);
  if (n > link.reference_max || count > kMaxPieces) [[unlikely]]
    return fail(TW_ERR_INVALID, "a tcp frame of %zu bytes in %zu pieces is too much for one fragment", n, count);
  poller_.touch(link, round_);
  std::byte head[kFrameHead];
  IoResult result;
  // What the socket does not take waits in the queue, where bodies that are not reported yet count.
  const bool direct = link.out.empty() && !link.blocked && !link.out.has_finished() && count < kGather;
  if (direct) {
    iovec all[kGather];
    write_head(head, link.sequence, header);
    all[0] = {head, kFrameHead};
    std::memcpy(all + 1, pieces, count * sizeof(iovec));
    result = link.socket.send(all, count + 1);
    if (result.moved == kFrameHead + n) {
      ++link.sequence;
      after_write(link, false);
      return TW_OK;
    }
    if (result.error != 0 && result.error != EAGAIN) {
      write_failed(link, result.error);
      return broken(result.error);
    }
  } else if (!link.out.takes_reference()) {
    if (!link.blocked) flush(link);
    if (!link.out.takes_reference()) return TW_AGAIN;
  }
  const size_t head_sent = std::min(result.moved, kFrameHead);
  std::byte* at = link.out.room(kFrameHead);
  if (at == nullptr) {
    // TLS has made a record of it, which the next write would send as its own.
    if (!direct || (result.moved == 0 && !link.socket.tls())) return no_queue();
    lose(link, TW_ERR_NO_MEMORY, "no memory for the output queue of a tcp link");
    return TW_ERR_NO_MEMORY;
  }
  write_head(head, link.sequence++, header);
  std::memcpy(at, head + head_sent, kFrameHead - head_sent);
  link.out.added(kFrameHead - head_sent);
  link.out.add_reference(pieces, count, result.moved - head_sent, n, token);
  if (direct) {
    after_write(link, true);
    return TW_IN_PROGRESS;
  }
  if (!link.blocked) flush(link);
  // The last body queued is gone when none is left; then its caller learns it here.
  if (!link.out.has_reference() && link.out.retract(token)) return TW_OK;
  return TW_IN_PROGRESS;
}

void TcpPort::flush(TcpLink& link) {
  bool blocked = false;
  while (!link.out.empty() && !link.lost && link.write_error == 0) {
    iovec pieces[kGather];
    const size_t count = link.out.gather(pieces, kGather);
    const IoResult result = link.socket.send(pieces, count);
    if (result.moved > 0) link.out.sent(result.moved);
    if (result.error == EAGAIN) {
      blocked = !link.out.empty();
      break;
    }
    if (result.error != 0) {
      write_failed(link, result.error);
      break;
    }
  }
  after_write(link, blocked);
  if (link.out.has_finished()) mark_dirty(link);
  if (link.lingering && !link.shut && link.out.empty()) {
    link.shut = true;
    link.socket.finish();
  }
}

void TcpPort::withdraw(Link& link, std::byte* destination) { own(link).reader.withdraw(destination); }

Status TcpPort::import(Link&, uint64_t, Mapping**) {
  return fail(TW_ERR_UNSUPPORTED, "a tcp connection cannot map the peer's memory");
}

int64_t TcpPort::read_peer(Link&, const iovec*, size_t, const iovec*, size_t) { return TW_ERR_UNSUPPORTED; }
int64_t TcpPort::write_peer(Link&, const iovec*, size_t, const iovec*, size_t) { return TW_ERR_UNSUPPORTED; }

}  // namespace thalweg::impl::tcp
