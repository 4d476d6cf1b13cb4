// SPDX-License-Identifier: Apache-2.0
// The tcp transport's Port: links over connected, authenticated stream sockets (IPv4, IPv6, unix-domain, TLS 1.3).
//
// Life of a frame out: send() -> written at once, or coalesced in the link's OutputQueue -> flush() in progress().
// Life of a frame in: progress() -> recv into the shared ReadBuffer or the destination -> FrameReader -> Sink.
//
// What the engine may count on beyond transport.hpp:
//  - Sink::destination is asked for bodies of at least kDestinationMin bytes, with a prefix of at least kPrefix of them.
//  - A frame sent without a progress() or arm() after it may wait in user space: the first kImmediate frames of a link
//    between two rounds are written at once, the others when kBatch bytes have gathered or in the next round.
//  - The sink may send, close links and withdraw destinations from its callbacks; it may not call progress().
//  - A lost link is freed after on_lost returns. send() on a link whose loss is not reported yet: TW_ERR_PEER_LOST.
//  - close(graceful) keeps reporting on_sent for bodies that are still queued; close(forced) reports them, with
//    TW_ERR_CLOSED, before it returns.
#pragma once
#include <memory>
#include <vector>

#include "transports/tcp/link.hpp"
#include "transports/tcp/poller.hpp"

namespace thalweg::impl::tcp {

class TcpPort final : public Port {
 public:
  explicit TcpPort(const PortOptions& options) : options_(options) {}
  ~TcpPort() override;
  Status start();

  const char* name() const override { return "tcp"; }
  Status offer(const PeerIdentity& peer, SetupMessage& mine) override;
  Status answer(const PeerIdentity& peer, const SetupMessage& theirs, SetupMessage& mine) override;
  Status establish(LinkInit&& init, Link** link) override;

  Status send(Link& link, const FrameHeader& header, const void* body) override;
  std::byte* reserve(Link& link, size_t n) override;
  void commit(Link& link, const FrameHeader& header) override;
  Status send_reference(Link& link, const FrameHeader& header, const iovec* pieces, size_t count, void* token) override;
  void withdraw(Link& link, std::byte* destination) override;

  Status import(Link& link, uint64_t segment, Mapping** mapping) override;
  int64_t read_peer(Link& link, const iovec* local, size_t locals, const iovec* remote, size_t remotes) override;
  int64_t write_peer(Link& link, const iovec* local, size_t locals, const iovec* remote, size_t remotes) override;

  uint64_t taken(const Link& link) override { return static_cast<const TcpLink&>(link).reader.taken_frames(); }
  uint64_t sent(const Link& link) override { return static_cast<const TcpLink&>(link).sequence; }
  unsigned progress(unsigned budget) override;
  int fd() const override { return poller_.fd(); }
  Status arm() override;
  void wake() override { poller_.wake(); }

  void close(Link& link, bool graceful) override;
  size_t queued(const Link& link) const override { return static_cast<const TcpLink&>(link).out.bytes(); }
  size_t undelivered(const Link& link) const override;

  size_t link_count() const { return links_.size(); }

 private:
  /// Nothing is freed while callbacks may be running: in a round, or in a close() that reports.
  class Round {
   public:
    explicit Round(TcpPort& port) : port_(port) { ++port_.rounds_open_; }
    ~Round() {
      if (--port_.rounds_open_ == 0 && !port_.graveyard_.empty()) port_.clean();
    }

   private:
    TcpPort& port_;
  };

  // sending (port_send.cpp)
  bool immediate(TcpLink& link);
  bool make_room(TcpLink& link);
  [[gnu::cold]] Status no_queue();
  void after_append(TcpLink& link);
  Status keep_rest(TcpLink& link, const IoResult& result, const iovec* pieces, size_t count);
  void flush(TcpLink& link);
  void mark_dirty(TcpLink& link);
  void after_write(TcpLink& link, bool blocked);
  void write_failed(TcpLink& link, int error);

  // progress (port_progress.cpp)
  unsigned flush_dirty();
  unsigned resume(unsigned budget);
  unsigned poll_hot(unsigned budget);
  unsigned poll_cold(unsigned budget);
  unsigned serve(TcpLink& link, unsigned budget);
  unsigned read(TcpLink& link, unsigned budget);
  void read_again(TcpLink& link);
  void read_lingering(TcpLink& link);
  unsigned report_finished(TcpLink& link);
  unsigned report_lost();
  void check_silence(bool due);

  // the end (port_life.cpp)
  void lose(TcpLink& link, Status status, std::string why);
  void lose_errno(TcpLink& link, const char* doing, int error);
  void abandon(TcpLink& link, Status status);
  void linger(TcpLink& link);
  void bury(TcpLink& link);
  void clean();

  const PortOptions options_;
  Poller poller_;
  ReadBuffer read_buffer_;
  ChunkPool chunks_;
  std::vector<std::unique_ptr<TcpLink>> links_;
  std::vector<std::unique_ptr<TcpLink>> graveyard_;  // freed when no callback can still be using them
  // Lists of links with something to do; each has room for all links, so that the hot path does not allocate.
  std::vector<TcpLink*> dirty_, resume_, scratch_, lost_, watched_, lingering_;
  uint64_t round_ = 1;
  uint64_t watch_period_ns_ = 0, next_watch_ns_ = 0;
  unsigned rounds_open_ = 0;
  bool starved_ = false;         // since the last arm() memory for a queue was missing
  bool look_everywhere_ = true;  // the next round asks epoll: after a sleep, or when arm() saw something
};

}  // namespace thalweg::impl::tcp
