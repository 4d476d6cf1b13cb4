// SPDX-License-Identifier: Apache-2.0
// The writing thread of a timeline. See trace.hpp.
#pragma once
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/platform/fork.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "trace/clock_map.hpp"
#include "trace/packets.hpp"
#include "trace/ring.hpp"
#include "trace/trace.hpp"

namespace thalweg::impl::trace {

struct Clock {
  std::string name;
  std::function<bool(uint64_t*)> now;
};
/// A line that is no thread's.
struct Track {
  std::string name;
  uint64_t clock = 0;
};

/// One recorded timeline, from start() to stop().
class Session {
 public:
  /// What was recorded before is discarded.
  Session(UniqueFd file, std::string path, const void* owner);
  ~Session();  // stop()
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Its thread.
  Status begin();
  /// Everything that was recorded is in the file, or an error is returned. Once.
  Status stop();
  const void* owner() const { return owner_; }
  const std::string& path() const { return path_; }
  void call_process(const std::string& name);

 private:
  /// A thread, or a track with a clock of its own.
  struct Line {
    int thread = 0;
    std::string name;
    uint64_t track = 0;                        // 0: not described yet
    uint64_t dropped_before = 0, dropped = 0;  // by its ring: before this timeline, and in all
  };
  struct Taken {
    Event event;
    Line* line;  // of its thread; null: on a track
  };
  struct Point;  // what one packet is made of

  void run();
  void turn(bool last);
  void take();
  void read_clocks();
  void write(uint64_t horizon);
  void emit(const Point& point, std::string* out);
  Line* line_of(const Ring& ring);
  uint64_t track_of(const Taken& taken, std::string* out);
  uint64_t track_of(Line& line, std::string* out);
  void note_dropped(uint64_t dropped, std::string* out);
  uint64_t ns_of(const Taken& taken, uint64_t time);
  const Track& track(uint64_t number);
  const ClockMap* clock_of(const Event& event);
  void append(const std::string& text);
  void end();

  const UniqueFd file_;
  const std::string path_;
  const void* const owner_;
  BornHere born_;
  Packets packets_;
  ClockMap host_;  // from ticks to the format's clock, in ns
  std::map<uint64_t, ClockMap> clocks_;
  std::map<uint64_t, Track> tracks_;          // of which there are events
  std::unordered_map<uint64_t, Line> lines_;  // by the numbers of their rings; they stay where they are
  std::map<uint64_t, uint64_t> ends_;         // of tracks: what is written behind comes later
  std::vector<Taken> taken_;                  // not written yet: younger than the last horizon
  uint64_t events_ = 0, dropped_ = 0;
  Status failed_ = TW_OK;
  std::string why_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool ended_ = false;
  std::string process_;  // its name, when it has changed
  std::thread thread_;
};

/// Of this process: rings of threads that record, and clocks.
std::vector<std::shared_ptr<Ring>> rings();
/// Forgets those whose threads have ended, once they are empty.
void drop_left_rings();
std::vector<Clock> clocks();  // by number - 1
Track track_of(uint64_t number);
/// Asks all sources.
void take_sources(const Keep& keep);

}  // namespace thalweg::impl::trace
