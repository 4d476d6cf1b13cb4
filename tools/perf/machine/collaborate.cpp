// SPDX-License-Identifier: Apache-2.0
// Host and device solve a problem together, in two forms. D: each side has its part in memory of its own, and what it needs and gives is
// copied. U: one memory for both, from whose counter both claim what is next. The host's share in D is what it claimed in U. Without a
// GPU further threads are the device, and both memories are the host's.
#include <algorithm>
#include <cmath>
#include <optional>

#include "driver.hpp"
#include "machine/alone.hpp"
#include "machine/arena.hpp"
#include "machine/numa.hpp"
#include "machine/rows.hpp"
#include "machine/workers.hpp"
#include "report.hpp"

namespace perf {
namespace {

constexpr size_t kBytes = 16u << 20;
constexpr uint64_t kSmall = 1024;  // a search's frontier of fewer nodes is the host's

/// Seconds of one solution, by what they went to.
struct Split {
  double allocation = 0, copy = 0, kernel = 0;
  double total() const { return allocation + copy + kernel; }
};

class Collaborate {
 public:
  Collaborate(tw_context* context, Workers& workers, const Problem& problem, std::string shared, std::string own,
              double share = 0.5)
      : context_(context), workers_(workers), p_(problem), shared_(std::move(shared)), own_(std::move(own)), share_(share) {}

  bool right() const { return right_; }
  size_t compared() const { return compared_; }  // solutions, each with what a sequential program makes
  double share() const { return share_; }        // of the device: of the elements that are shared out

  Split shared() {
    Split s;
    std::optional<Arena> all;
    s.allocation = timed([&] { all.emplace(context_, shared_, p_); });
    all->fill(p_);
    if (p_.pattern == Pattern::search) {
      search(*all, *all, &s);
    } else {
      Collaboration host = all->view(p_), device = host;
      device.tiles += kApart * (Arena::tiles_device - Arena::tiles_host);
      if (p_.pattern == Pattern::histogram_output) {  // both read all, each for its own bins
        device.next += kApart * (Arena::next_device - Arena::next_host);
        host.last_bin = device.first_bin = kBins / 2;
      }
      s.kernel = workers_.together(&host, &device);
      const auto by_host = static_cast<double>(all->read(Arena::tiles_host)),
                 by_device = static_cast<double>(all->read(Arena::tiles_device));
      share_ = std::clamp(by_device / std::max(1.0, by_host + by_device), 0.05, 0.95);
    }
    judge(*all, all->read(Arena::found));
    s.allocation += timed([&] { all->release(); });
    return s;
  }

  Split copied(const std::string& hosts) {
    Split s;
    std::optional<Arena> host, device;
    s.allocation = timed([&] {
      host.emplace(context_, hosts, p_);
      device.emplace(context_, own_, p_);
    });
    host->fill(p_);
    uint64_t found = 0;
    if (p_.pattern == Pattern::search) {
      search(*host, *device, &s);
    } else {
      found = apart(*host, *device, &s);
    }
    judge(*host, found);
    s.allocation += timed([&] {
      device->release();
      host->release();
    });
    return s;
  }

 private:
  static constexpr size_t kApart = 8;  // words between an arena's counters

  void judge(const Arena& arena, uint64_t found) {
    ++compared_;
    right_ = right_ && p_.right(arena.output(), found);
  }

  /// What the device's part of the output becomes part of the host's by. Returns what a compaction found.
  uint64_t apart(Arena& host, Arena& device, Split* s) {
    const bool bins = p_.pattern == Pattern::histogram_output;
    const uint64_t split =
        bins ? 0
             : p_.elements -
                   std::min(p_.elements, static_cast<uint64_t>(std::lround(share_ * static_cast<double>(p_.elements))));
    Collaboration mine = host.view(p_), theirs = device.view(p_);
    if (bins)
      mine.last_bin = theirs.first_bin = kBins / 2;
    else
      mine.last = theirs.first = split;
    s->copy = timed([&] {
      device.take(host, device.in_part(p_, split, p_.elements));
      if (p_.out_each == 0 && p_.pattern != Pattern::compaction) device.take(host, device.out_words(0, kBins));  // zeros
      device.zero_all();
    });
    s->kernel = workers_.together(&mine, &theirs);
    uint64_t found = 0;
    s->copy += timed([&] { found = merge(host, device, split); });
    return found;
  }
  uint64_t merge(Arena& host, const Arena& device, uint64_t split) {
    if (p_.pattern == Pattern::histogram_output) {
      host.take(device, host.out_words(kBins / 2, kBins));
    } else if (p_.pattern == Pattern::histogram_input) {
      u32 counted[kBins];
      device.read(device.out_words(0, kBins), counted);
      for (u32 bin = 0; bin < kBins; ++bin) host.out()[bin] += counted[bin];
    } else if (p_.out_each != 0) {
      host.take(device, host.out_words(split * p_.out_each, p_.elements * p_.out_each));
    } else {
      const uint64_t before = host.read(Arena::found), more = device.read(Arena::found);
      if (before + more > p_.in.size()) return ~uint64_t{0};  // no result
      device.read(device.out_words(0, more), host.out() + before);
      return before + more;
    }
    return 0;
  }

  /// Level by level: small frontiers by the host, others by the device; in D what the next one needs is copied where the side changes.
  void search(Arena& host, Arena& device, Split* s) {
    const bool one = &host == &device;
    double* const between = one ? &s->kernel : &s->copy;  // what a level needs of the one before
    if (!one) s->copy = timed([&] { device.take(host, device.everything_in()); });
    const u32 root = 0, level = 0;
    host.write(host.out_words(0, 1), &level);
    host.write(host.frontier_part(0, 1), &root);
    Arena* now = &host;
    uint64_t count = 1;
    for (u32 next = 1, which = 0; count != 0 && next < p_.elements; ++next, which = 1 - which) {
      Arena* const then = count < kSmall ? &host : &device;
      *between += timed([&] {
        if (then != now) {
          then->take(*now, now->out_words(0, p_.elements));
          then->take(*now, now->frontier_part(which, count));
        }
        then->zero(Arena::next_host);
        then->zero(Arena::found);
      });
      now = then;
      Collaboration part = now->view(p_);
      part.last = count;
      part.level = next;
      part.frontier = now->frontier(which);
      part.next_frontier = now->frontier(1 - which);
      s->kernel += count < kSmall ? workers_.together(&part, nullptr) : workers_.together(nullptr, &part);
      *between += timed([&] { count = now->read(Arena::found); });
      if (count > p_.elements) end_with("a search found more nodes than there are");
    }
    if (now != &host) s->copy += timed([&] { host.take(device, host.out_words(0, p_.elements)); });
  }

  tw_context* const context_;
  Workers& workers_;
  const Problem& p_;
  const std::string shared_, own_;
  double share_;
  bool right_ = true;
  size_t compared_ = 0;
};

void report(const Options& o, const Problem& p, const char* form, const std::string& memory, const Workers& workers,
            Collaborate& work, const std::vector<Split>& all) {
  const auto median = [&](auto what) {
    std::vector<double> each;
    for (const Split& s : all) each.push_back(what(s) * 1e9);
    return percentile(each, 50);
  };
  Row row("collaborate");
  row.label("pattern", p.name).label("form", form).label("memory", memory).label("device", workers.device());
  row.label("threads", workers.host_threads()).label("device_threads", workers.device_threads());
  row.size((p.in.size() + p.edges.size()) * sizeof(u32)).label("iterations", all.size());
  row.label("compared", work.compared());
  const bool alone =
      workers.device_threads() == 0 && !workers.native_atomics();  // each for itself, as far as the driver promises
  if (!work.right() && alone && std::string(form) == "U" && memory == "pinned") {
    row.unavailable(
           "host and device need atomic operations on the same words, which this link does not have: results were wrong")
        .print(o.format);
    return;
  }
  row.value("allocation_ns", median([](const Split& s) { return s.allocation; }));
  row.value("copy_ns", median([](const Split& s) { return s.copy; }));
  row.value("kernel_ns", median([](const Split& s) { return s.kernel; }));
  row.value("total_ns", median([](const Split& s) { return s.total(); }));
  if (p.pattern != Pattern::search) row.value("device_percent", 100 * work.share());
  row.verified(work.right()).print(o.format);
}

/// Runs `once` for this long; the first one warms up.
template <class Once>
std::vector<Split> solutions(double seconds, Once once) {
  (void)once();
  std::vector<Split> all;
  for (const uint64_t end = now_ns() + static_cast<uint64_t>(seconds * 1e9); all.size() < 3 || now_ns() < end;)
    all.push_back(once());
  return all;
}

/// U's memory; then D's two.
struct Places {
  std::string shared, hosts, own;
};

void solve_all(const Options& o, tw_context* context, Workers& workers, const Places& places, bool copied) {
  for (const Pattern pattern : kPatterns) {
    const Problem problem = make_problem(pattern, o.sizes.empty() ? kBytes : o.sizes[0], fresh_seed());
    Collaborate u(context, workers, problem, places.shared, places.own);
    report(o, problem, "U", places.shared, workers, u, solutions(o.seconds / 2, [&] { return u.shared(); }));
    if (!copied) continue;
    Collaborate d(context, workers, problem, places.shared, places.own, u.share());
    report(o, problem, "D", places.hosts + "+" + places.own, workers, d,
           solutions(o.seconds / 2, [&] { return d.copied(places.hosts); }));
  }
}

void solve_on(const Options& o, tw_context* context, unsigned ordinal, unsigned threads) {
  Gpu gpu(ordinal);
  Workers workers(&gpu, threads);
  const bool any = o.memory[0].empty() || o.memory[0].rfind("cuda", 0) == 0;
  if (any || o.memory[0] == "pinned") solve_all(o, context, workers, {"pinned", "pinned", gpu.place()}, true);
  if (!any && o.memory[0].rfind("managed", 0) != 0) return;
  const std::string managed = "managed:" + std::to_string(ordinal);
  if (cuda::attribute_of(ordinal, cuda::kConcurrentManaged) != 0)
    solve_all(o, context, workers, {managed, "pinned", gpu.place()}, !any);
  else
    Row("collaborate")
        .label("memory", managed)
        .unavailable("host and device may not touch this device's managed memory at once")
        .print(o.format);
}

}  // namespace

void run_collaborate(const Options& o) {
  const std::string& memory = o.memory[0];
  const bool host = memory == "host";
  if (!memory.empty() && !host && memory != "pinned" && memory.rfind("cuda", 0) != 0 && memory.rfind("managed", 0) != 0)
    end_with("collaborate: --memory host (threads in a device's place), pinned, managed[:N] or cuda[:N] (both of them)");
  const std::string why = host ? "" : why_no_gpu();
  if (!memory.empty() && !why.empty()) end_with(why);
  const unsigned threads = o.threads != 0 ? o.threads : static_cast<unsigned>(allowed_processors().size());
  tw_context* context = nullptr;
  must(tw_context_create(nullptr, &context), "tw_context_create");
  if (host || !why.empty()) {
    if (!why.empty()) Row("collaborate").label("device", "cuda:0").unavailable(why).print(o.format);
    Workers workers(nullptr, threads);
    solve_all(o, context, workers, {"host", "host", "host"}, true);
  } else {
    solve_on(o, context, memory.find(':') == std::string::npos ? 0 : ordinal_of(memory), threads);
  }
  tw_context_destroy(context);
}

}  // namespace perf
