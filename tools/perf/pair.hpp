// SPDX-License-Identifier: Apache-2.0
// Two processes and what they share during a measurement. Rank 0 asks and measures, rank 1 answers.
#pragma once
#include <thalweg/thalweg.h>

#include <string>
#include <vector>

#include "order.hpp"

namespace perf {

/// Called where this process ends by what follows, if set: what it leaves otherwise.
extern void (*before_failing)();
[[noreturn]] void die(const char* what, tw_status status);
/// What goes wrong outside of the library: the text, and the end of the process.
[[noreturn]] void end_with(const std::string& text);
inline void must(tw_status status, const char* what) {
  if (status < 0) die(what, status);
}
uint64_t now_ns();
uint64_t thread_ns();  // of this thread's processor time
void pin_to_core(unsigned core);
/// Of a loop that polls memory.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// By which others connect to it.
std::vector<unsigned char> address_of(tw_worker* worker);

/// A worker with one endpoint to its counterpart.
class Pair {
 public:
  Pair(const Options& options, tw_context* context, int rank);
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  /// Over a socket to the process that this one started (or was started by).
  void connect_local(int socket, const char* transport);
  void connect_to(const std::string& host);
  void accept_from(tw_listener* listener);

  void send(const void* data, size_t length, uint64_t tag);
  void receive(void* data, size_t length, uint64_t tag);
  tw_request post_receive(void* data, size_t length, uint64_t tag);
  void wait(tw_request request);  // progresses (or sleeps) until done, releases
  void progress();
  /// Until the other process has stored what makes seen() true, into memory that it maps, where nothing has to progress. Now and then
  /// this does all the same: nothing else tells that it is gone.
  template <class Seen>
  void await_store(Seen seen) {
    constexpr unsigned kPolls = 4096;  // some 100 us: none of a ping-pong has so many
    for (unsigned polls = 1; !seen(); ++polls) {
      if (polls % kPolls == 0)
        progress();
      else
        relax();
    }
  }
  void sync();  // both ranks have arrived
  /// From now on the other process may go.
  void part() { talking_ = false; }
  /// The way of an operation on a local buffer to the memory that the order gives the peer; remote: of one-sided operations.
  std::string route(const char* verb, const Order& order, const void* local, tw_remote_memory* remote = nullptr);

  tw_context* context;
  tw_worker* worker = nullptr;
  tw_endpoint* endpoint = nullptr;
  int rank;
  bool sleep;
  double predicted_us = 0;  // of the way of route(); 0: none

 private:
  tw_endpoint_options endpoint_options();
  static void lost(void* pair, tw_endpoint* endpoint, tw_status why);  // ends this process, wherever it waits
  void finish_connecting();
  bool tls_, talking_ = false;
};

inline constexpr uint64_t kControlTag = 0xffff000000000001ull, kDataTag = 7, kAckTag = 8;

}  // namespace perf
