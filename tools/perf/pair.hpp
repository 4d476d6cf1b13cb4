// SPDX-License-Identifier: Apache-2.0
// Two processes and what they share during a measurement. Rank 0 asks and measures, rank 1 answers.
#pragma once
#include <thalweg/thalweg.h>

#include <string>
#include <vector>

#include "options.hpp"

namespace perf {

/// One measurement as rank 0 orders it; travels as a message.
struct Order {
  char test[24];
  uint64_t size;        // bytes moved; 0: end
  uint64_t iterations;  // round trips, or windows
  uint64_t window;
  uint64_t seed;    // of the payload
  uint64_t verify;  // 1: check payload, do not care about time
  Layout layout;
  uint8_t sleep, trigger, waits, reuse, unused[4];  // trigger: Trigger; waits: TW_WAITS_*
  char memory[2][kMemoryName];                      // of rank 0's buffers and of rank 1's: as in --memory
};

[[noreturn]] void die(const char* what, tw_status status);
/// What goes wrong outside of the library: the text, and the end of the process.
[[noreturn]] void end_with(const std::string& text);
inline void must(tw_status status, const char* what) {
  if (status < 0) die(what, status);
}
uint64_t now_ns();
uint64_t thread_ns();  // of this thread's processor time
void pin_to_core(unsigned core);

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
  void sync();  // both ranks have arrived
  /// The way of an operation on a local buffer to the memory that the order gives the peer; remote: of one-sided operations.
  std::string route(const char* verb, const Order& order, const void* local, tw_remote_memory* remote = nullptr);

  tw_context* context;
  tw_worker* worker = nullptr;
  tw_endpoint* endpoint = nullptr;
  int rank;
  bool sleep;
  double predicted_us = 0;  // of the way of route(); 0: none

 private:
  void finish_connecting();
  bool tls_;
};

inline constexpr uint64_t kControlTag = 0xffff000000000001ull, kDataTag = 7, kAckTag = 8;

}  // namespace perf
