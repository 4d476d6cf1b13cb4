// SPDX-License-Identifier: Apache-2.0
// One connected peer over a stream socket: what the port keeps about it. An idle one costs about a kilobyte here; the rest
// is the kernel's socket.
#pragma once
#include <memory>
#include <string>

#include "transports/link_count.hpp"
#include "transports/tcp/frame_reader.hpp"
#include "transports/tcp/output_queue.hpp"
#include "transports/tcp/socket.hpp"

namespace thalweg::impl::tcp {

struct TcpLink final : Link {
  TcpLink(UniqueFd descriptor, void* tls, Sink& sink, ChunkPool& pool, uint32_t largest)
      : socket(std::move(descriptor), static_cast<SSL*>(tls)), reader(*this, sink, largest), out(pool) {}

  [[no_unique_address]] LinkCount counted;
  Socket socket;
  FrameReader reader;
  OutputQueue out;
  uint32_t sequence = 0;  // of the next frame sent

  // Polling.
  uint32_t interest = 0;  // EPOLL* registered; 0: not in the epoll set
  bool hot = false;
  bool blocked = false;  // the kernel took less than offered: wait for writability
  bool dirty = false;    // in the port's list of links to flush or report
  bool resume = false;   // in the port's list of links with more to read at once
  bool watched = false;  // in the list of links whose data the peer has not acknowledged
  uint32_t idle_rounds = 0;
  uint64_t active_round = 0;
  uint64_t burst_round = 0;  // the round `burst` counts in
  unsigned burst = 0;        // frames sent in it

  // The end.
  bool silent = false;     // nothing more is delivered: closed, or gone
  bool gone = false;       // no further call to the sink; freed at the end of the round
  bool lost = false;       // an error was seen; on_lost is due
  bool lingering = false;  // closed gracefully: flushes, then waits for the peer's end of stream
  bool shut = false;       // our half is shut down: nothing follows
  uint64_t linger_until = 0;
  int write_error = 0;    // a write failed: what the peer sent before is still read
  Status status = TW_OK;  // why it is lost
  std::string why;

  size_t index = 0;  // in the port's table
};

}  // namespace thalweg::impl::tcp
