// SPDX-License-Identifier: Apache-2.0
// From rings to the file.
//
// Order. Perfetto sorts packets by their times, and keeps the order of the file among equal ones. Rings are read one after the other, so
// an event may be in one while an older one is still being stored into another: events younger than a millisecond stay until the
// next turn, and what is written is sorted. A span is recorded at its end; its begin and its end are two packets, so that one that
// encloses others comes before them.
#include "trace/session.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <system_error>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/platform/process.hpp"
#include "base/platform/signals.hpp"

namespace thalweg::impl::trace {
namespace {

constexpr auto kTurn = std::chrono::milliseconds(10);
constexpr uint64_t kYoungNs = kMillisecond;
constexpr size_t kMostWaiting = size_t{1} << 20;

/// The clock of the format's timestamps.
uint64_t boot_ns() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return uint64_t(now.tv_sec) * kSecond + uint64_t(now.tv_nsec);
}

std::string own_name() {
  const std::string program = program_name();
  return program.empty() ? "thalweg" : program;
}

}  // namespace

struct Session::Point {
  uint64_t time;   // ns
  uint64_t order;  // of spans of one time: the longest begins first, and ends last
  enum Kind : uint8_t { ends, begins, other } kind;
  const Taken* taken;
};

namespace {

/// What the last timeline knew of other clocks: one that begins at once behind it finds that a device's has been read as often as it may
/// be for now. Timelines follow each other.
struct LastClocks {
  std::map<uint64_t, ClockMap> maps;
  uint64_t at = 0;  // cpu_ticks()
};
LastClocks& last_clocks() {
  static auto* const last = new LastClocks;  // a timeline may end after main
  return *last;
}

}  // namespace

Session::Session(UniqueFd file, std::string path, const void* owner)
    : file_(std::move(file)),
      path_(std::move(path)),
      owner_(owner),
      packets_(process_incarnation(), getpid()),
      host_(cpu_ticks_per_second(), 1e9 / double(cpu_ticks_per_second())) {
  process_ = own_name();
  for (const auto& ring : rings()) {  // of an earlier timeline
    ring->drain([](const Event&) {});
    Line* const line = line_of(*ring);
    line->dropped_before = line->dropped = ring->dropped();
  }
  take_sources([](const Event&) {});
  const Recorded before = recorded();
  events_ = before.events;
  dropped_ = before.dropped;
  if (cpu_ticks() - last_clocks().at < cpu_ticks_per_second()) clocks_ = last_clocks().maps;
  read_clocks();
}

Status Session::begin() {
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    ended_ = true;
    return fail(TW_ERR_LIMIT, "no thread for the timeline: %s; raise the limit (ulimit -u, pids cgroup)", error.what());
  }
  return TW_OK;
}

Session::~Session() {
  if (born_.forked()) {
    thread_.detach();  // it is the parent's
    return;
  }
  (void)stop();
}

Status Session::stop() {
  if (!ended_) {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
    ended_ = true;
  }
  return is_error(failed_) ? fail(failed_, "%s", why_.c_str()) : Status{TW_OK};
}

void Session::call_process(const std::string& name) {
  const std::lock_guard lock(mutex_);
  process_ = own_name() + ", " + name;
}

void Session::run() {
  pthread_setname_np(pthread_self(), "thalweg-trace");
  std::unique_lock lock(mutex_);
  for (bool last = false; !last;) {
    changed_.wait_for(lock, kTurn, [this] { return stopping_; });
    last = stopping_;
    std::string name = std::exchange(process_, {});
    lock.unlock();
    std::string out;
    if (!name.empty()) packets_.process(name, &out);
    append(out);
    turn(last);
    lock.lock();
  }
}

void Session::turn(bool last) {
  // Nothing older than this is stored any more when the rings have been read.
  const uint64_t young = static_cast<uint64_t>(double(kYoungNs) * 1e-9 * double(cpu_ticks_per_second()));
  const uint64_t horizon = cpu_ticks() - young;
  take();
  read_clocks();
  write(last ? UINT64_MAX : horizon);
  drop_left_rings();
  if (last) end();
}

/// Sources first: what one has when it is removed goes into a ring, and must not come behind what others had later.
void Session::take() {
  take_sources([&](const Event& event) { taken_.push_back({event, nullptr}); });
  for (const auto& ring : rings()) {
    Line* const line = line_of(*ring);
    ring->drain([&](const Event& event) { taken_.push_back({event, line}); });
    line->dropped = ring->dropped();
  }
}

Session::Line* Session::line_of(const Ring& ring) {
  const auto [at, fresh] = lines_.try_emplace(ring.number());
  if (fresh) {
    at->second.thread = ring.thread();
    at->second.name = ring.name();
  }
  return &at->second;
}

/// Both clocks at once: the narrowest of a few pairs.
void Session::read_clocks() {
  constexpr int kTries = 5;
  const auto read = [](const auto& one, ClockMap* map, bool from_ticks) {
    uint64_t best = UINT64_MAX, ticks = 0, value = 0;
    for (int i = 0; i < kTries; ++i) {
      const uint64_t before = cpu_ticks();
      uint64_t now = 0;
      if (!one(&now)) break;
      const uint64_t after = cpu_ticks();
      if (after - before >= best) continue;
      best = after - before;
      ticks = before + best / 2;
      value = now;
    }
    if (best == UINT64_MAX) return;
    from_ticks ? map->add(ticks, value) : map->add(value, ticks);
  };
  read([](uint64_t* now) { return *now = boot_ns(), true; }, &host_, true);
  const double rate = double(cpu_ticks_per_second()) / 1e9;
  uint64_t number = 0;
  for (const Clock& clock : clocks()) read(clock.now, &clocks_.try_emplace(++number, kSecond, rate).first->second, false);
}

const Track& Session::track(uint64_t number) {
  const auto [at, fresh] = tracks_.try_emplace(number);
  if (fresh) at->second = trace::track_of(number);
  return at->second;
}

/// Of the event's track; null: it has not been read yet.
const ClockMap* Session::clock_of(const Event& event) {
  const auto clock = clocks_.find(track(event.id).clock);
  return clock == clocks_.end() || !clock->second.known() ? nullptr : &clock->second;
}

uint64_t Session::ns_of(const Taken& taken, uint64_t time) {
  return host_.map(taken.event.phase == Phase::on_track ? clock_of(taken.event)->map(time) : time);
}

uint64_t Session::track_of(const Taken& taken, std::string* out) {
  if (taken.event.phase == Phase::on_track) return packets_.named_track(taken.event.id, track(taken.event.id).name, out);
  return track_of(*taken.line, out);
}

uint64_t Session::track_of(Line& line, std::string* out) {
  if (line.track == 0) line.track = packets_.thread_track(line.thread, line.name, out);
  return line.track;
}

void Session::emit(const Point& point, std::string* out) {
  const Taken& taken = *point.taken;
  const Event& event = taken.event;
  switch (event.phase) {
    case Phase::begins:
      return packets_.activity_begins(event, point.time, out);
    case Phase::ends:
      return packets_.activity_ends(event, point.time, out);
    case Phase::instant:
      return packets_.instant(event, track_of(taken, out), point.time, out);
    case Phase::span:
    case Phase::on_track:
      return point.kind == Point::begins ? packets_.span_begins(event, track_of(taken, out), point.time, out)
                                         : packets_.span_ends(track_of(taken, out), point.time, out);
  }
}

/// What happened before `horizon`; the rest stays.
void Session::write(uint64_t horizon) {
  // What is by another clock waits until that has been read, and is then sorted by what it maps to. A plan's run comes with its steps,
  // by one source; kernels of collectives are of several, which are read one after the other as rings are, and share a line.
  const auto old = [&](const Taken& one) {
    if (one.event.phase != Phase::on_track) return one.event.at <= horizon;
    const ClockMap* const clock = clock_of(one.event);
    return clock != nullptr && (one.event.what != What::collective || clock->map(one.event.at) <= horizon);
  };
  const auto young = std::stable_partition(taken_.begin(), taken_.end(), old);
  std::vector<Point> points;
  for (auto at = taken_.begin(); at != young; ++at) {
    const Event& event = at->event;
    const bool spans = event.phase == Phase::span || event.phase == Phase::on_track;
    uint64_t end = ns_of(*at, event.at);
    if (!spans) {
      points.push_back({end, 0, Point::other, &*at});
      continue;
    }
    uint64_t begin = std::min(ns_of(*at, event.begin), end);
    const uint64_t length = event.at - event.begin;
    if (event.phase == Phase::on_track) {
      begin = std::max(begin, ends_[event.id]);  // two turns may know its clock a little differently
      end = std::max(begin, end);
    }
    points.push_back({begin, ~length, Point::begins, &*at});
    points.push_back(
        {std::max(end, begin + 1), length, Point::ends, &*at});  // one that begins and ends at once has an end, too
  }
  std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    if (a.time != b.time) return a.time < b.time;
    return a.kind != b.kind ? a.kind < b.kind : a.order < b.order;
  });
  std::string out;
  for (const Point& point : points) {
    if (point.taken->event.phase == Phase::on_track) ends_[point.taken->event.id] = point.time;  // they are in order
    emit(point, &out);
    if (out.size() < (1u << 20)) continue;
    append(out);
    out.clear();
  }
  append(out);
  taken_.erase(taken_.begin(), young);
  if (horizon == UINT64_MAX || taken_.size() > kMostWaiting) {  // for a clock that cannot be read
    count_dropped(taken_.size());
    taken_.clear();
  }
}

void Session::append(const std::string& text) {
  for (size_t done = 0; done < text.size() && !is_error(failed_);) {
    const ssize_t n = ::write(file_.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n > 0) {
      done += static_cast<size_t>(n);
      continue;
    }
    failed_ = TW_ERR_IO;
    why_ = "the timeline " + path_ + " cannot be written: " + std::strerror(errno) + "; what was written before is in it";
    warn_once("trace-write", why_);
  }
}

/// By thread; the rest, of plans' rings and of threads that got none, by the process.
void Session::note_dropped(uint64_t dropped, std::string* out) {
  const uint64_t now = host_.map(cpu_ticks());
  for (auto& [ring, line] : lines_) {
    const uint64_t own = std::min(line.dropped - line.dropped_before, dropped);
    if (own == 0) continue;
    packets_.note("dropped", own, track_of(line, out), now, out);
    dropped -= own;
  }
  if (dropped != 0) packets_.note("dropped", dropped, 0, now, out);
}

void Session::end() {
  last_clocks() = {clocks_, cpu_ticks()};
  const Recorded all = recorded();
  std::string out;
  packets_.note("recorded", all.events - events_, 0, host_.map(cpu_ticks()), &out);
  if (all.dropped != dropped_) {
    note_dropped(all.dropped - dropped_, &out);
    warn_once("trace-dropped", std::to_string(all.dropped - dropped_) +
                                   " events of the timeline found their thread's ring full and are " + "not in " + path_ +
                                   ": trace a shorter part, or leave a core to the thread that writes");
  }
  append(out);
}

}  // namespace thalweg::impl::trace
