// SPDX-License-Identifier: Apache-2.0
// The conformance table: operation x layouts x size class x transport x {one process, two processes} x {blocking,
// asynchronous} x {plain, library memory}, generated. One GoogleTest per (transport, processes, operation); its rows share a
// connection, as an application's operations do. THALWEG_CONFORMANCE_TABLE=FILE appends one line per group.
// THALWEG_CONFORMANCE_SHARE=N: of the rows with a layout or a device one of N, drawn by a seed that a failure tells.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <thread>

#include "side.hpp"

namespace conformance {
namespace {

struct Way {
  const char* transport;
  bool tls;
  int processes;
  std::string name() const {
    return std::string(transport) + (tls ? "_tls" : "") + (processes == 2 ? "_two_processes" : "_one_process");
  }
};
constexpr Way kWays[] = {{"self", false, 1}, {"shm", false, 1}, {"shm", false, 2},
                         {"tcp", false, 1},  {"tcp", false, 2}, {"tcp", true, 2}};

/// Rank 1: runs rows as they come and reports how they ended.
void answer(Side& side) {
  for (;;) {
    Row row{};
    side.receive_control(&row, sizeof row);
    if (row.end) return;
    char outcome[512] = {};
    try {
      run_row(side, row);
    } catch (const Failure& f) {
      std::snprintf(outcome, sizeof outcome, "rank 1: %s", f.text.c_str());
      std::fprintf(stderr, "%s %llu: %s\n", row.operation, (unsigned long long)row.size, outcome);
      _exit(9);  // the two sides are out of step: rank 0 sees the loss
    }
    side.send_control(outcome, sizeof outcome);
  }
}

void connect_and_answer(int socket, const char* transport, bool tls) {
  tw_context_options co = TW_CONTEXT_OPTIONS_INIT;
  tw_context* context = nullptr;
  must(tw_context_create(&co, &context), "tw_context_create");
  {
    Side side(context, 1);
    side.connect(socket, transport, tls);
    answer(side);
  }
  tw_context_destroy(context);
}

/// Rank 0 with its counterpart in a thread or a process, kept for all operations of a way.
class Counterpart {
 public:
  explicit Counterpart(const Way& way) : way_(way) {
    must(tw_context_create(nullptr, &context_), "tw_context_create");
    if (std::strcmp(way.transport, "self") == 0) {
      start_self();
    } else {
      start_other();
    }
  }
  ~Counterpart() {
    Row end{};
    end.end = 1;
    try {
      side_->send_control(&end, sizeof end);
    } catch (const Failure&) {
    }
    if (self_ && thread_.joinable()) thread_.join();  // it uses our worker
    self_.reset();
    side_.reset();
    if (thread_.joinable()) thread_.join();
    if (child_ > 0) {
      int status = 0;
      ::waitpid(child_, &status, 0);
    }
    tw_context_destroy(context_);
  }
  void run(const Row& row) {
    side_->send_control(&row, sizeof row);
    try {
      run_row(*side_, row);
    } catch (const Failure& f) {
      std::fprintf(stderr, "rank 0: %s\n", f.text.c_str());  // rank 1 may end this process when it notices
      throw;
    }
    char outcome[512] = {};
    side_->receive_control(outcome, sizeof outcome);
    if (outcome[0]) failed("%s", outcome);
  }

 private:
  /// Both ranks are threads of one worker: what one sends to the worker itself, the other receives there.
  void start_self() {
    side_ = std::make_unique<Side>(context_, 0, TW_THREADS_MULTI);
    side_->connect(-1, way_.transport, false);
    self_ = std::make_unique<Side>(*side_, 1);
    thread_ = std::thread([this] { answer(*self_); });
  }
  void start_other() {
    int sockets[2];
    check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0, "socketpair");
    if (way_.processes == 2)
      start_process(sockets[1]);
    else
      thread_ = std::thread([way = way_, fd = sockets[1]] { connect_and_answer(fd, way.transport, way.tls); });
    side_ = std::make_unique<Side>(context_, 0);
    side_->connect(sockets[0], way_.transport, way_.tls);
    ::close(sockets[0]);
  }
  void start_process(int fd) {
    child_ = ::fork();
    check(child_ >= 0, "fork");
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      int kept = ::dup(fd);  // without close-on-exec
      std::string text = std::to_string(kept);
      ::execl("/proc/self/exe", "conformance", "--answer", text.c_str(), way_.transport, way_.tls ? "tls" : "", nullptr);
      _exit(127);
    }
    ::close(fd);
  }
  Way way_;
  tw_context* context_ = nullptr;
  std::unique_ptr<Side> side_, self_;  // self_: rank 1 of one worker
  std::thread thread_;
  pid_t child_ = -1;
};

/// Sizes around every switch: inline, one frame, fragments, eager limits, staging wraps.
std::vector<uint64_t> sizes_of(const Operation& o, bool layouts) {
  if (o.size_limit <= 8) return {8};
  if (layouts) return {48, 3120, 9360, 65520, 262080, 1048320};
  return {0,    1,    7,     8,     39,    40,    41,    63,    64,    65,     255,    1023,   2047,    2048,    2049,   8191,
          8192, 8193, 16383, 16384, 16385, 32769, 65535, 65536, 65537, 131073, 262143, 262145, 1048575, 1048577, 4194305};
}

std::vector<std::pair<Shape, Shape>> shapes_of(const Operation& o) {
  using S = Shape;
  std::vector<std::pair<Shape, Shape>> pairs = {{S::contiguous, S::contiguous}};
  if (!o.layouts) return pairs;
  if (o.rows == Rows::fewest) return {pairs[0], {S::strided1, S::list}, {S::subarray, S::strided3}};
  for (S s : {S::strided1, S::strided2, S::strided3, S::subarray, S::list}) {
    pairs.push_back({s, S::contiguous});
    if (!o.remote_layout) continue;
    pairs.push_back({S::contiguous, s});
    pairs.push_back({s, s});
  }
  if (o.remote_layout) {
    pairs.push_back({S::strided1, S::list});
    pairs.push_back({S::subarray, S::strided3});
  }
  if (o.callbacks != Callbacks::none) pairs.push_back({S::callbacks, S::contiguous});
  if (o.callbacks != Callbacks::both) return pairs;
  for (S s : {S::contiguous, S::list, S::callbacks}) pairs.push_back({s, S::callbacks});
  return pairs;
}

/// Fewer of them with devices, around the switches that there are: nothing, a word, a chunk of staging.
std::vector<uint64_t> device_sizes_of(const Operation& o, bool layouts) {
  if (o.size_limit <= 8) return {8};
  if (layouts) return {48, 9360, 262080};
  return {0, 1, 8193, 65537, 1048577, 4194305};
}

std::vector<uint64_t> few_sizes_of(const Operation& o, bool layouts) {
  if (o.size_limit <= 8) return {8};
  if (layouts) return {9360};
  if (o.rows == Rows::fewest) return {0, 40009};
  return {0, 1, 8193, 300001};
}

/// Host memory of both sorts, and device memory of every kind at either end.
std::vector<std::pair<uint8_t, uint8_t>> places_of(const Operation& o, bool layouts) {
  std::vector<std::pair<uint8_t, uint8_t>> pairs;
  if (std::getenv("THALWEG_CONFORMANCE_DEVICE") == nullptr) pairs = {{kPlain, kPlain}, {kLibrary, kLibrary}};
  if (o.devices == Devices::none) return pairs;
  if (o.rows != Rows::all) {  // each executor with each, and every kind of memory once
    for (auto [mine, theirs] : {std::pair{kFirstDevice, uint8_t{kFirstDevice + 1}}, {kPlain, kFirstDevice}})
      pairs.emplace_back(mine, theirs);
    if (layouts) return pairs;
    pairs.emplace_back(kFirstDevice, kLibrary);
    for (uint8_t place = kPinned; place < kPlaces; ++place) pairs.emplace_back(place, kFirstDevice);
    return pairs;
  }
  constexpr uint8_t ordinary = kFirstDevice, other = kFirstDevice + 1;
  if (layouts) {
    for (auto [mine, theirs] : {std::pair{ordinary, other}, {kPlain, ordinary}, {ordinary, kPlain}})
      pairs.emplace_back(mine, theirs);
    return pairs;
  }
  for (uint8_t place = kPlain; place < kPlaces; ++place) {
    pairs.emplace_back(ordinary, place);
    if (place != ordinary) pairs.emplace_back(place, place == other ? ordinary : other);
  }
  for (uint8_t place = other + 1; place < kPlaces; ++place) pairs.emplace_back(place, place);
  return pairs;
}

/// Large or layout rows are not all crossed with everything, to stay within minutes.
bool left_out(const Operation& o, uint8_t mine, uint8_t theirs, bool layouts, uint64_t size, bool async) {
  const bool device = mine > kLibrary || theirs > kLibrary;
  if (async && (size > 300000 || (layouts && (device || o.rows != Rows::all)))) return true;
  const bool usual = mine < kPinned || theirs == kFirstDevice + 1;
  return o.rows == Rows::fewest && (size == 0 ? async || !usual : async && !usual);
}

/// What no host touches is packed by no callback, nor put from one, or got into one.
bool beyond_callbacks(const Operation& o, Shape local, Shape remote, uint8_t mine, uint8_t theirs) {
  const bool there = remote == Shape::callbacks || (local == Shape::callbacks && o.callbacks == Callbacks::local);
  return (local == Shape::callbacks && mine >= kPinned) || (there && theirs >= kPinned);
}

uint64_t number_of(const char* environment, uint64_t otherwise) {
  const char* const text = std::getenv(environment);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// One of `share`, and one of each pair of layouts and of places at least. Of contiguous host memory all, because most of the
/// transport's switches are sizes.
std::vector<Row> drawn(const std::vector<Row>& all, uint64_t share, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Row> some;
  const auto alike = [](const Row& a, const Row& b) {
    return a.local == b.local && a.remote == b.remote && a.place[0] == b.place[0] && a.place[1] == b.place[1];
  };
  for (auto first = all.begin(); first != all.end();) {
    const auto end = std::find_if(first, all.end(), [&](const Row& row) { return !alike(*first, row); });
    const bool layouts = first->local != Shape::contiguous || first->remote != Shape::contiguous;
    const bool device = first->place[0] > kLibrary || first->place[1] > kLibrary;
    const auto count = static_cast<uint64_t>(end - first);
    std::sample(first, end, std::back_inserter(some), layouts || device ? (count + share - 1) / share : count, random);
    first = end;
  }
  return some;
}

/// Rows of one operation.
std::vector<Row> rows_of(const Operation& o, uint64_t seed) {
  std::vector<Row> rows;
  std::mt19937_64 random(seed);
  for (auto [local, remote] : shapes_of(o)) {
    bool layouts = local != Shape::contiguous || remote != Shape::contiguous;
    for (auto [mine, theirs] : places_of(o, layouts)) {
      if (beyond_callbacks(o, local, remote, mine, theirs)) continue;
      const bool device = mine > kLibrary || theirs > kLibrary;
      for (uint64_t size : o.rows != Rows::all ? few_sizes_of(o, layouts)
                           : device            ? device_sizes_of(o, layouts)
                                               : sizes_of(o, layouts)) {
        for (int async = 0; async < 2; ++async) {
          if (left_out(o, mine, theirs, layouts, size, async != 0)) continue;
          Row row{};
          std::snprintf(row.operation, sizeof row.operation, "%s", o.name);
          row.size = size;
          row.seed = random();
          row.local = local;
          row.remote = remote;
          row.place[0] = mine;
          row.place[1] = theirs;
          row.asynchronous = static_cast<uint8_t>(async);
          row.routes = 1;
          rows.push_back(row);
        }
      }
    }
  }
  return rows;
}

std::string describe(const Row& r) {
  return std::string(r.operation) + " size " + std::to_string(r.size) + " " + shape_name(r.local) + "->" +
         shape_name(r.remote) + " " + place_name(r.place[0]) + "->" + place_name(r.place[1]) +
         (r.asynchronous ? " asynchronous" : " blocking") + " seed " + std::to_string(r.seed);
}

void tell_table(const Way& way, const Operation& o, size_t rows) {
  const char* path = std::getenv("THALWEG_CONFORMANCE_TABLE");
  FILE* file = path ? std::fopen(path, "a") : nullptr;
  if (!file) return;
  std::fprintf(file, "%s,%s,%zu\n", way.name().c_str(), o.name, rows);
  std::fclose(file);
}

class Group : public testing::Test {
 public:
  Group(Way way, const Operation* operation) : way_(way), operation_(operation) {}
  void TestBody() override {
    const uint64_t seed = number_of("THALWEG_CONFORMANCE_SEED", std::random_device{}());
    const uint64_t share = std::max<uint64_t>(number_of("THALWEG_CONFORMANCE_SHARE", 1), 1);
    std::string at = "connecting";
    const std::vector<Row> rows = drawn(rows_of(*operation_, seed), share, seed);
    if (rows.empty()) GTEST_SKIP() << "no rows with these places";
    try {
      Counterpart counterpart(way_);
      const char* const only = std::getenv("THALWEG_CONFORMANCE_ROWS");  // a part of their description
      for (const Row& row : rows) {
        at = describe(row);
        if (only != nullptr && at.find(only) == std::string::npos) continue;
        counterpart.run(row);
      }
      tell_table(way_, *operation_, rows.size());
    } catch (const Failure& f) {
      FAIL() << at << ": " << f.text << " (THALWEG_CONFORMANCE_SHARE=" << share << " THALWEG_CONFORMANCE_SEED=" << seed
             << " runs the same rows)";
    }
  }

 private:
  Way way_;
  const Operation* operation_;
};

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
  using namespace conformance;
  ::setenv("THALWEG_EMULATED", "devices=2,release_delay_ns=3000000", 0);
  if (argc >= 4 && std::strcmp(argv[1], "--answer") == 0) {
    try {
      connect_and_answer(std::atoi(argv[2]), argv[3], argc > 4 && std::strcmp(argv[4], "tls") == 0);
    } catch (const Failure& f) {
      std::fprintf(stderr, "rank 1: %s\n", f.text.c_str());
      return 9;
    }
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  for (const Way& way : kWays) {
    for (const Operation& o : operations()) {
      testing::RegisterTest(way.name().c_str(), o.name, nullptr, nullptr, __FILE__, __LINE__,
                            [way, &o]() -> testing::Test* { return new Group(way, &o); });
    }
  }
  return RUN_ALL_TESTS();
}
