// SPDX-License-Identifier: Apache-2.0
// What to measure, as given on the command line and as sent to the other process.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace perf {

struct Layout {  // --layout strided:COUNT,BLOCK,STRIDE
  uint64_t count = 0, block = 0, stride = 0;
  explicit operator bool() const { return count != 0; }
  uint64_t bytes() const { return count * block; }
};

inline constexpr size_t kMemoryName = 24;  // bytes of a place's name, with its end

/// What starts an operation. call: its own function, at once; host, queue, graph: a prepared plan; kernel: device code.
/// Collectives: host, plan: a plan, by the host or on a queue; queue, graph: single ones on a queue.
enum class Trigger : uint8_t { call, host, queue, graph, kernel, plan };
const char* trigger_name(Trigger trigger);  // call: ""

enum class Format { table, json, csv };

struct Options {
  std::string test;
  std::string host;      // empty: start the other process here
  int listen_port = -1;  // >= 0: serve
  std::string transport = "auto";
  std::vector<size_t> sizes;  // empty: the test's own list
  unsigned window = 64;
  double seconds = 0.5;  // per size
  unsigned threads = 0;  // not given: 1, or what a test of the machine takes by itself
  Layout layout;
  bool tls = false;
  std::string memory[2];  // of this process's buffers and of the other's: "plain", "huge" or a place
  Trigger trigger = Trigger::call;
  uint8_t waits = 0;  // TW_WAITS_*
  bool progress_thread = false;
  bool sleep = false;  // wait by tw_worker_wait instead of polling
  bool reuse = false;  // send the same buffer again and again, untouched
  Format format = Format::table;
  bool list = false;
  bool check = false;              // of tune: save no measurement, but check the choices
  unsigned rounds = 3;             // ... how often all ways take turns
  std::vector<std::string> paths;  // ... those; empty: all that there are
  unsigned ranks = 0;              // of a collective's test; not given: a launcher's, or 2
  bool nonblocking = false;        // ... with a request, and what a computation hides of it
  std::string algorithm;           // ... by name; empty: the predicted one
  std::string tmpfs, disk;         // folders of the test of tiers; empty: its own
  int inherited = -1;              // the started process: descriptor to the starter
};

/// Parses; prints the reason and the usage to stderr and returns false when it makes no sense.
bool parse(int argc, char** argv, Options* out);
void print_help();
const std::vector<const char*>& test_names();
/// Memory that the host may not simply touch, or that moves when it does.
bool on_device(const std::string& memory);

}  // namespace perf
