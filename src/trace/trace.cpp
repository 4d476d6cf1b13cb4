// SPDX-License-Identifier: Apache-2.0
// The one timeline of a process: who records, where, and since when.
#include "trace/trace.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/platform/fork.hpp"
#include "trace/ring.hpp"
#include "trace/session.hpp"

namespace thalweg::impl::trace {

std::atomic<bool> on_word{false};

namespace {

constexpr size_t kMostRings = 256;  // of 4 MiB

/// A forked child has a fresh one: its parent's thread writes its parent's file.
struct State {
  std::mutex mutex;
  std::vector<std::shared_ptr<Ring>> rings;
  std::vector<Clock> clocks;  // numbers are indices + 1
  std::vector<Track> tracks;  // as well
  std::mutex sources_mutex;   // held while they are asked
  std::map<uint64_t, Take> sources;
  uint64_t last_source = 0;
  std::unique_ptr<Session> session;
  bool changing = false;                       // a timeline is begun or ended, without the mutex
  std::string process;                         // its name, once it has one
  uint64_t events_gone = 0, dropped_gone = 0;  // of rings that are not there any more
  std::atomic<uint64_t> without_ring{0};       // events of threads that got none, and those that sources have dropped
  bool asked = false;                          // start_by_environment()
};
State& state() { return state_of_process<State>(); }

struct Quick {
  Ring* ring = nullptr;
  uint32_t generation = 0;  // of forks
  bool gone = false;        // the thread is ending: destructors may still record
};
constinit thread_local Quick quick;  // of the next, without the guard that a destructor costs, in one access
/// The calling thread's ring, until the thread ends.
struct Mine {
  std::shared_ptr<Ring> ring;
  ~Mine() {
    quick = {nullptr, 0, true};
    if (ring != nullptr) ring->leave();
  }
};
thread_local Mine mine;

[[gnu::cold]] Ring* make_ring() {
  if (quick.gone) return nullptr;
  quick = {};
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (all.session == nullptr) {
    on_word.store(false, std::memory_order_relaxed);  // a child of one that records
    return nullptr;
  }
  if (all.rings.size() >= kMostRings) return nullptr;
  std::shared_ptr<Ring> made = Ring::make();
  if (made == nullptr) return nullptr;
  all.rings.push_back(made);
  mine.ring = std::move(made);
  quick = {mine.ring.get(), fork_generation(), false};
  return quick.ring;
}

/// "%p" is the process's id.
std::string expand(const std::string& path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    const bool pid = path[i] == '%' && i + 1 < path.size() && path[i + 1] == 'p';
    if (pid) ++i;
    out += pid ? std::to_string(getpid()) : std::string(1, path[i]);
  }
  return out;
}

/// Also of a timeline that a context began: what was recorded is in the file.
void stop_at_exit() {
  std::unique_ptr<Session> session;
  {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    on_word.store(false, std::memory_order_relaxed);
    session = std::move(all.session);
  }
  if (session != nullptr) (void)session->stop();  // it has warned of errors
}

/// "name.ending" -> "name-2.ending".
std::string numbered(std::string path, const std::string& number) {
  const size_t name = path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1, dot = path.rfind('.');
  return path.insert(dot != std::string::npos && dot > name ? dot : path.size(), "-" + number);
}

/// The file, empty and locked while it is written: processes of two containers or hosts may have one number, and one folder. *path is
/// the name that was free.
Status open_alone(std::string* path, UniqueFd* out) {
  constexpr int kMost = 1000;
  const std::string wanted = *path;
  for (int i = 1; i <= kMost; ++i) {
    if (i > 1) *path = numbered(wanted, std::to_string(i));
    UniqueFd fd(open(path->c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!fd) return fail_errno(errno, ("open the timeline " + *path).c_str());
    // A file system without locks has no other way than before; what is no file (a pipe, a terminal) has nothing to cut.
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) continue;
    if (ftruncate(fd.get(), 0) != 0 && errno != EINVAL) return fail_errno(errno, ("empty the timeline " + *path).c_str());
    *out = std::move(fd);
    return TW_OK;
  }
  return fail(TW_ERR_BUSY, "%d timelines named as %s are being written: give another name", kMost, wanted.c_str());
}

/// By one thread at a time.
Status begin_session(const std::string& path, const void* owner, std::unique_ptr<Session>* out) {
  std::string file = expand(path);
  UniqueFd fd;
  if (Status s = open_alone(&file, &fd); is_error(s)) return s;
  static const int registered = atexit(stop_at_exit);
  (void)registered;
  *out = std::make_unique<Session>(std::move(fd), file, owner);
  return (*out)->begin();
}

}  // namespace

void record(const Event& event) {
  const Quick& mine_now = quick;
  Ring* ring = mine_now.ring;
  if (ring == nullptr || mine_now.generation != fork_generation()) [[unlikely]] {
    ring = make_ring();
    if (ring == nullptr) {
      state().without_ring.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  ring->push(event);
}

[[gnu::cold]] void Span::keep() {
  Event event;
  event.what = what_;
  event.phase = Phase::span;
  event.begin = std::exchange(began_, 0);
  event.bytes = bytes;
  event.peer = peer;
  record_now(event);
}

uint64_t new_activity() {
  static std::atomic<uint64_t> last{0};
  constexpr uint64_t kNoPool = uint64_t{0xfff}
                               << 52;  // requests' numbers have theirs here (protocols/run_pool.hpp), counted from 0
  return kNoPool | last.fetch_add(1, std::memory_order_relaxed);
}

uint64_t clock(const std::string& name, std::function<bool(uint64_t* now)> now) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const auto at = std::find_if(all.clocks.begin(), all.clocks.end(), [&](const Clock& one) { return one.name == name; });
  if (at != all.clocks.end()) return static_cast<uint64_t>(at - all.clocks.begin()) + 1;
  all.clocks.push_back({name, std::move(now)});
  return all.clocks.size();
}

uint64_t track(const std::string& name, uint64_t clock) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  all.tracks.push_back({name, clock});
  return all.tracks.size();
}

uint64_t add_source(Take take) {
  State& all = state();
  const std::lock_guard lock(all.sources_mutex);
  all.sources.emplace(++all.last_source, std::move(take));
  return all.last_source;
}

void remove_source(uint64_t source) {
  State& all = state();
  const std::lock_guard lock(all.sources_mutex);
  const auto at = all.sources.find(source);
  if (at == all.sources.end()) return;  // of this process's parent
  if (on()) at->second([](const Event& event) { record(event); });
  all.sources.erase(at);
}

void take_sources(const Keep& keep) {
  State& all = state();
  const std::lock_guard lock(all.sources_mutex);
  for (const auto& [number, take] : all.sources) take(keep);
}

void count_dropped(uint64_t events) { state().without_ring.fetch_add(events, std::memory_order_relaxed); }

std::vector<std::shared_ptr<Ring>> rings() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  return all.rings;
}

void drop_left_rings() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.rings, [&](const std::shared_ptr<Ring>& ring) {
    if (!ring->left() || !ring->empty()) return false;  // in this order: nothing comes behind `left`
    all.events_gone += ring->pushed();
    all.dropped_gone += ring->dropped();
    return true;
  });
}

std::vector<Clock> clocks() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  return all.clocks;
}

Track track_of(uint64_t number) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  return number == 0 || number > all.tracks.size() ? Track{} : all.tracks[number - 1];
}

Recorded recorded() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const uint64_t without = all.without_ring.load(std::memory_order_relaxed);
  Recorded sum{all.events_gone, all.dropped_gone + without};
  for (const auto& ring : all.rings) {
    sum.events += ring->pushed();
    sum.dropped += ring->dropped();
  }
  return sum;
}

Status start(const std::string& path, const void* owner) {
  if (path.empty())
    return fail(TW_ERR_INVALID, "the path of the timeline is empty: give one, \"trace-%%p.pftrace\" for example");
  State& all = state();
  {
    const std::lock_guard lock(all.mutex);
    if (all.session != nullptr) {
      return fail(TW_ERR_BUSY,
                  "this process's timeline is being recorded into %s: end that first (tw_context_trace without a file)",
                  all.session->path().c_str());
    }
    if (all.changing) return fail(TW_ERR_BUSY, "another thread is beginning or ending a timeline of this process");
    all.changing = true;
  }
  std::unique_ptr<Session> session;
  const Status status = begin_session(path, owner, &session);
  const std::lock_guard lock(all.mutex);
  all.changing = false;
  if (is_error(status)) return status;
  if (!all.process.empty()) session->call_process(all.process);
  all.session = std::move(session);
  on_word.store(true, std::memory_order_relaxed);
  return TW_OK;
}

Status stop(const void* owner) {
  State& all = state();
  std::unique_ptr<Session> session;
  {
    const std::lock_guard lock(all.mutex);
    if (all.session == nullptr) return fail(TW_ERR_INVALID, "no timeline of this process is recorded");
    if (all.session->owner() != owner) {
      return fail(TW_ERR_INVALID,
                  "the timeline in %s was not begun by this context: end it there, or with the process (THALWEG_TRACE)",
                  all.session->path().c_str());
    }
    on_word.store(false, std::memory_order_relaxed);
    session = std::move(all.session);
    all.changing = true;  // its thread still reads the rings
  }
  const Status status = session->stop();
  session.reset();
  const std::lock_guard lock(all.mutex);
  all.changing = false;
  return status;
}

/// Several processes may have the same environment, so each has a file of its own: a name without "%p" gets the process's id.
Status start_by_environment() {
  State& all = state();
  {
    const std::lock_guard lock(all.mutex);
    if (std::exchange(all.asked, true)) return TW_OK;
  }
  const char* const asked = getenv("THALWEG_TRACE");
  if (asked == nullptr || *asked == 0) return TW_OK;
  std::string path = asked;
  if (path.find("%p") == std::string::npos) path = numbered(path, "%p");
  return start(path, &all);
}

void call_process(const std::string& name) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  all.process = name;
  if (all.session != nullptr) all.session->call_process(name);
}

}  // namespace thalweg::impl::trace
