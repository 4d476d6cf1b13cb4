// SPDX-License-Identifier: Apache-2.0
// The timeline of this process: what its threads record, and a file that has it all (THALWEG_TRACE, tw_context_trace).
//
// Recording. A thread stores events into a ring of its own, without a lock; nothing is formatted there. Where nothing is traced, each
// place asks one word and goes on. A full ring drops what comes, and the file says how much.
//
// Writing. A thread of its own takes the events out of all rings every few milliseconds, in the order of their times, and appends them to
// the file as packets of Perfetto's format (docs/observing.md). So a process that is killed leaves a file that can be read, without its last
// moments.
//
// There is one timeline in a process, whatever contexts it has. A forked child does not record, and its parent's file is not touched.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/platform/cpu.hpp"
#include "base/status.hpp"
#include "trace/event.hpp"

namespace thalweg::impl::trace {

extern std::atomic<bool> on_word;

/// Is anything recorded? One load, one predictable branch.
inline bool on() { return on_word.load(std::memory_order_relaxed); }

/// This moment, for an event that is recorded when it is known that there is one; 0 where nothing is recorded.
inline uint64_t moment() { return on() ? cpu_ticks() : 0; }

/// Keeps the event, of this thread. Only where on().
void record(const Event& event);
/// The same, happening now.
inline void record_now(Event event) {
  event.at = cpu_ticks();
  record(event);
}

/// What happens between its making and its end, in one thread.
class Span {
 public:
  explicit Span(What what) : Span(what, moment()) {}
  /// The same of what began at a moment() before; 0: nothing is recorded.
  Span(What what, uint64_t began) : what_(what), began_(began) {}
  ~Span() { finish(); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  /// It ends here.
  void finish() {
    if (began_ != 0) [[unlikely]]
      keep();
  }
  uint64_t bytes = 0, peer = 0;  // of the event; filled in at any time

 protected:
  struct Late {};
  Span(What what, Late) : what_(what), began_(0) {}
  void begin() {
    if (began_ == 0 && on()) [[unlikely]]
      began_ = cpu_ticks();
  }

 private:
  [[gnu::cold]] void keep();
  const What what_;
  uint64_t began_;
};

/// The same, of what begins only where it is called for: a blocking call that has to wait.
class LateSpan : public Span {
 public:
  explicit LateSpan(What what) : Span(what, Late{}) {}
  using Span::begin;
};

/// A name for what begins in one place and ends in another (Phase::begins, Phase::ends), none of a request's.
uint64_t new_activity();

/// Another clock than the host's: a device's. now: its time, in nanoseconds, or false, not this time; the writing thread asks again and
/// again, as long as a timeline is recorded, and it must outlive the process's last one. Returns its number; the same for the same name.
uint64_t clock(const std::string& name, std::function<bool(uint64_t* now)> now);
/// A line of the timeline that is no thread's, by such a clock. Returns its number, for Phase::on_track.
uint64_t track(const std::string& name, uint64_t clock);

/// Events that are kept elsewhere until the writing thread takes them, which it does every few milliseconds: `take` gives each one to
/// `keep`. They are of tracks.
using Keep = std::function<void(const Event&)>;
using Take = std::function<void(const Keep& keep)>;
uint64_t add_source(Take take);
/// It is asked once more, if a timeline is recorded, by this thread; and never again once this returns.
void remove_source(uint64_t source);
/// Events that such a place had to drop.
void count_dropped(uint64_t events);

/// Begins to record into a new file; "%p" in the path is this process's id. TW_ERR_BUSY: it is recorded already.
Status start(const std::string& path, const void* owner);
/// Ends it, with everything that was recorded before. TW_ERR_INVALID: nothing is recorded, or it was begun by another owner. An error of
/// the file is reported here.
Status stop(const void* owner);
/// What the environment asks for (THALWEG_TRACE), once per process. Recorded until the process exits.
Status start_by_environment();
/// Names this process in the timeline, from here on: "rank 3".
void call_process(const std::string& name);
/// Events of all threads since start(), and those that found their ring full.
struct Recorded {
  uint64_t events = 0, dropped = 0;
};
Recorded recorded();

}  // namespace thalweg::impl::trace
