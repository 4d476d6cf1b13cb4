// SPDX-License-Identifier: Apache-2.0
// A whole timeline, as it is in the file.
#include "trace/trace.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "timeline_file.hpp"

namespace thalweg::impl::trace {
namespace {

using File = tests::TimelineFile;
using tests::Seen;

class Trace : public testing::Test {
 protected:
  Trace() {
    std::string pattern = (std::filesystem::temp_directory_path() / "thalweg_trace_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  ~Trace() override {
    if (on()) (void)stop(this);
    std::filesystem::remove_all(folder);
  }
  std::string path(const char* name) const { return folder + "/" + name; }
  std::string folder;
};

TEST_F(Trace, RecordsNothingUnasked) {
  EXPECT_FALSE(on());
  const uint64_t before = recorded().events;
  { const Span span(What::wait); }
  LateSpan late(What::wait);
  late.begin();
  EXPECT_EQ(recorded().events, before);
  EXPECT_EQ(stop(this), TW_ERR_INVALID);
}

TEST_F(Trace, SpansNestAndAreInTheOrderOfTheirTimes) {
  ASSERT_EQ(start(path("nested"), this), TW_OK);
  constexpr int kThreads = 3, kRounds = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < kRounds; ++i) {
        const Span outer(What::wait);
        {
          const Span inner(What::copy);
          Event event;
          event.what = What::sent;
          event.flow = static_cast<uint64_t>(i) + 1;
          record_now(event);
        }
        const Span second(What::sleep);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(stop(this), TW_OK);
  const File file(path("nested"));
  EXPECT_EQ(file.count("wait"), size_t{kThreads} * kRounds);
  EXPECT_EQ(file.count("copy"), size_t{kThreads} * kRounds);
  EXPECT_EQ(file.count("sent"), size_t{kThreads} * kRounds);
  EXPECT_EQ(file.count("dropped"), 0u);
  std::map<uint64_t, std::vector<std::string>> open;
  std::map<uint64_t, uint64_t> last;
  for (const Seen& one : file.events) {
    EXPECT_GE(one.ns, last[one.track]) << "back in time";
    last[one.track] = one.ns;
    std::vector<std::string>& stack = open[one.track];
    if (one.type == 1) {
      EXPECT_EQ(stack.empty(), one.name == "wait") << one.name;
      stack.push_back(one.name);
    } else if (one.type == 2) {
      ASSERT_FALSE(stack.empty());
      stack.pop_back();
    } else if (one.name == "sent") {
      ASSERT_FALSE(stack.empty());
      EXPECT_EQ(stack.back(), "copy");
    }
  }
  for (const auto& [track, stack] : open) EXPECT_TRUE(stack.empty());
}

TEST_F(Trace, ActivitiesThatOverlapHaveLinesOfTheirOwn) {
  ASSERT_EQ(start(path("lanes"), this), TW_OK);
  const uint64_t ids[] = {new_activity(), new_activity(), new_activity()};
  Event event;
  event.what = What::recv;
  event.phase = Phase::begins;
  for (const uint64_t id : ids) {
    event.id = id;
    record_now(event);
  }
  event.phase = Phase::ends;
  std::thread other([&] {
    for (const uint64_t id : {ids[1], ids[0]}) {
      event.id = id;
      record_now(event);
    }
  });
  other.join();
  event.id = new_activity();  // was never begun
  record_now(event);
  ASSERT_EQ(stop(this), TW_OK);
  const File file(path("lanes"));
  std::set<uint64_t> begun;
  std::map<uint64_t, int> open;
  for (const Seen& one : file.events) {
    if (one.type == 1) begun.insert(one.track);
    if (one.type == 1) ++open[one.track];
    if (one.type == 2) --open[one.track];
  }
  EXPECT_EQ(begun.size(), 3u);
  int left = 0;
  for (const auto& [track, n] : open) left += n;
  EXPECT_EQ(left, 1) << "the third has no end";
}

TEST_F(Trace, ADevicesTimesAreWhereTheyBelong) {
  const auto other = [](uint64_t host) { return host + host / 20'000 + 5000 * kSecond; };
  const uint64_t clock_id = clock("clock of a test", [&](uint64_t* now) { return *now = other(monotonic_ns()), true; });
  EXPECT_EQ(clock("clock of a test", nullptr), clock_id);
  const uint64_t track_id = track("device of a test", clock_id);
  ASSERT_EQ(start(path("device"), this), TW_OK);
  const uint64_t before = monotonic_ns(), from = cpu_ticks();
  Event step;
  step.what = What::step;
  step.phase = Phase::on_track;
  step.id = track_id;
  const uint64_t began = monotonic_ns(), until = began + 2 * kMillisecond;
  step.begin = other(began);
  while (monotonic_ns() < until) continue;
  const uint64_t over = monotonic_ns();
  step.at = other(over);
  record(step);
  Event host;
  host.what = What::copy;
  host.phase = Phase::span;
  host.begin = from;
  record_now(host);
  const uint64_t late = (began - before) + (monotonic_ns() - over);  // others had the core meanwhile
  ASSERT_EQ(stop(this), TW_OK);
  const File file(path("device"));
  std::map<std::string, std::vector<uint64_t>> times;  // of a line
  for (const Seen& one : file.events) times[file.tracks.at(one.track)].push_back(one.ns);
  const std::vector<uint64_t>& device = times["device of a test"];
  ASSERT_EQ(device.size(), 2u);
  EXPECT_NEAR(double(device[1] - device[0]), double(over - began), 1e6);
  uint64_t begin = 0, end = 0;
  for (const Seen& one : file.events) {
    if (one.name == "copy") begin = one.ns;
    if (begin != 0 && one.type == 2 && one.track != 0 && file.tracks.at(one.track) != "device of a test") end = one.ns;
  }
  const double off = 200'000 + double(late);
  EXPECT_NEAR(double(device[0]), double(begin), off);
  EXPECT_NEAR(double(device[1]), double(end), off);
}

TEST_F(Trace, IsOneAtATimeAndItsOwners) {
  int another = 0;
  ASSERT_EQ(start(path("first"), this), TW_OK);
  EXPECT_EQ(start(path("second"), &another), TW_ERR_BUSY);
  EXPECT_FALSE(std::filesystem::exists(path("second")));
  EXPECT_EQ(stop(&another), TW_ERR_INVALID);
  EXPECT_EQ(stop(this), TW_OK);
  ASSERT_EQ(start(path("again-%p"), &another), TW_OK);
  EXPECT_EQ(stop(&another), TW_OK);
  EXPECT_TRUE(std::filesystem::exists(path(("again-" + std::to_string(getpid())).c_str())));
  EXPECT_EQ(start("", this), TW_ERR_INVALID);
  EXPECT_EQ(start(path("no/such/folder"), this), TW_ERR_IO);
}

/// Beginning and ending by several threads, while others record: each file is whole, and nothing is in two of them.
TEST_F(Trace, IsBegunAndEndedByManyThreads) {
  constexpr int kTurns = 10;
  std::atomic<bool> go_on{true};
  std::atomic<int> files{0};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    while (go_on) {
      const Span span(What::wait);
      std::this_thread::yield();
    }
  });
  for (int number = 0; number < 3; ++number) {
    threads.emplace_back([&, number] {
      for (int i = 0; i < kTurns; ++i) {
        const std::string name = path(("turn" + std::to_string(number) + "." + std::to_string(i)).c_str());
        const Status begun = start(name, &files);
        EXPECT_TRUE(begun == TW_OK || begun == TW_ERR_BUSY) << begun;
        if (begun == TW_OK) ++files;
        const Status ended = stop(&files);
        EXPECT_TRUE(ended == TW_OK || ended == TW_ERR_INVALID) << ended;
      }
    });
  }
  for (size_t i = 1; i < threads.size(); ++i) threads[i].join();
  go_on = false;
  threads[0].join();
  (void)stop(&files);
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const File file(entry.path());
    found += file.count("recorded") == 1;
  }
  EXPECT_EQ(found, files.load());
}

/// Objects of a thread may end behind its ring.
TEST_F(Trace, AThreadsLastDestructorsMayRecord) {
  struct Late {
    ~Late() { const Span span(What::handler); }
  };
  ASSERT_EQ(start(path("late"), this), TW_OK);
  for (int i = 0; i < 20; ++i) {
    std::thread([] {
      thread_local const Late late;  // made before the ring, ends behind it
      (void)&late;
      { const Span span(What::wait); }
    }).join();
  }
  ASSERT_EQ(stop(this), TW_OK);
  EXPECT_EQ(File(path("late")).count("wait"), 20u);
}

TEST_F(Trace, AFileThatCannotBeWrittenIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  ASSERT_EQ(start("/dev/full", this), TW_OK);
  { const Span span(What::wait); }
  EXPECT_EQ(stop(this), TW_ERR_IO);
  EXPECT_NE(std::string(last_error()).find("/dev/full"), std::string::npos) << last_error();
}

TEST_F(Trace, AFullRingIsReported) {
  ASSERT_EQ(start(path("full"), this), TW_OK);
  Event event;
  event.what = What::sent;
  for (int i = 0; i < 3'000'000; ++i) record_now(event);
  ASSERT_EQ(stop(this), TW_OK);
  const File file(path("full"));
  const uint64_t kept = file.count("sent");
  EXPECT_GT(kept, 60'000u);
  EXPECT_EQ(file.count("dropped"), kept < 3'000'000 ? 1u : 0u);
}

/// By the thread whose ring it was, whether it still runs or not; not those of an earlier timeline.
TEST_F(Trace, DroppedEventsAreToldByThread) {
  constexpr uint64_t kEach = 400'000;
  Event event;
  event.what = What::sent;
  const auto fill = [&](const char* name) {
    pthread_setname_np(pthread_self(), name);
    for (uint64_t i = 0; i < kEach; ++i) record_now(event);
  };
  ASSERT_EQ(start(path("before"), this), TW_OK);
  std::thread([&] { fill("before"); }).join();
  for (uint64_t i = 0; i < kEach; ++i) record_now(event);  // of this thread, whose ring stays
  ASSERT_EQ(stop(this), TW_OK);
  ASSERT_EQ(start(path("dropped"), this), TW_OK);
  std::thread first([&] { fill("first"); });
  first.join();
  std::thread second([&] { fill("second"); });
  second.join();
  record_now(event);
  ASSERT_EQ(stop(this), TW_OK);
  const File file(path("dropped"));
  std::map<std::string, uint64_t> kept, dropped;
  for (const auto& one : file.events) {
    kept[file.tracks.at(one.track)] += one.name == "sent" ? 1 : 0;
    dropped[file.tracks.at(one.track)] += one.name == "dropped" ? one.dropped : 0;
  }
  for (const char* const name : {"first", "second"}) EXPECT_EQ(kept[name] + dropped[name], kEach) << name;
  uint64_t all = 0;
  for (const auto& [line, count] : dropped) all += count;
  EXPECT_EQ(all, dropped["first"] + dropped["second"]) << "of other lines, or of the timeline before";
}

TEST_F(Trace, AForkedChildRecordsNothing) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer lets no child of several threads start one";
#endif
  ASSERT_EQ(start(path("parent"), this), TW_OK);
  { const Span span(What::wait); }
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    for (int i = 0; i < 1000; ++i) const Span span(What::handler);
    const bool silent = !on();
    // One of its own.
    const bool own = start(path("child"), nullptr) == TW_OK;
    { const Span span(What::handler); }
    const bool ended = own && stop(nullptr) == TW_OK;
    _exit(silent && ended ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  { const Span span(What::wait); }
  ASSERT_EQ(stop(this), TW_OK);
  const File parent(path("parent"));
  EXPECT_EQ(parent.count("wait"), 2u);
  EXPECT_EQ(parent.count("handler"), 0u);
  EXPECT_EQ(File(path("child")).count("handler"), 1u);
}

}  // namespace
}  // namespace thalweg::impl::trace
