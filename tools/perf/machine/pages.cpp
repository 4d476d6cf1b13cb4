// SPDX-License-Identifier: Apache-2.0
// Page-fault service: what the first touch of a page costs, and what is left of it where the system was asked for the pages before.
// Of the CPU for anonymous memory and mapped files; of GPUs for managed memory (gpu_pages.cpp).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "machine/alone.hpp"
#include "machine/gpu_pages.hpp"
#include "machine/mapping.hpp"
#include "machine/numa.hpp"
#include "machine/repeat.hpp"
#include "machine/rows.hpp"
#include "report.hpp"

#if !defined(MADV_POPULATE_READ)  // of Linux 5.14; older headers lack them
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace perf {
namespace {

const size_t kSmallPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
constexpr size_t kHugePage = 2u << 20;  // of x86, and of aarch64 with pages of 4 KiB

struct Faults {
  uint64_t minor, major;
};
Faults faults() {
  rusage u{};
  (void)::getrusage(RUSAGE_THREAD, &u);
  return {static_cast<uint64_t>(u.ru_minflt), static_cast<uint64_t>(u.ru_majflt)};
}

/// One word in each page.
class Touch {
 public:
  Touch(unsigned char* at, size_t bytes, size_t page) : at_(at), bytes_(bytes), page_(page), seed_(fresh_seed()) {}
  /// Seconds. Counts the faults.
  double write() {
    const Faults before = faults();
    const double took = timed([&] {
      for (size_t p = 0; p < bytes_; p += page_) *word(p) = seed_ + p;
    });
    faults_ = faults().minor - before.minor + faults().major - before.major;
    return took;
  }
  double read() {
    const Faults before = faults();
    uint64_t sum = 0;
    const double took = timed([&] {
      for (size_t p = 0; p < bytes_; p += page_) sum += *word(p);
    });
    asm volatile("" ::"r"(sum));
    faults_ = faults().minor - before.minor + faults().major - before.major;
    return took;
  }
  uint64_t faults_of() const { return faults_; }
  /// What was written is there, and the rest of each page is as it was: zero.
  bool right() const {
    bool same = true;
    for (size_t p = 0; p < bytes_; p += page_) same &= *word(p) == seed_ + p && at_[p + page_ - 1] == 0;
    return same;
  }

 private:
  volatile uint64_t* word(size_t p) const { return reinterpret_cast<volatile uint64_t*>(at_ + p); }
  unsigned char* at_;
  size_t bytes_, page_;
  uint64_t seed_, faults_ = 0;
};

struct Case {
  const char *memory, *by;
  size_t page;
};

class Pages {
 public:
  explicit Pages(const Options& o)
      : o_(o), folder_(o.disk.empty() ? temporary_folder() : o.disk), cached_(o.tmpfs.empty() ? folder_ : o.tmpfs) {}

  void run() {
    for (const size_t page : {kSmallPage, kHugePage}) {
      for (const char* by : {"touch", "populate", "touch_populated"}) anonymous({"anonymous", by, page});
    }
    for (const char* by : {"touch", "populate", "touch_populated"}) file({"file", by, kSmallPage}, false);
    for (const char* by : {"touch", "populate"}) file({"file_cold", by, kSmallPage}, true);
  }

 private:
  size_t bytes(size_t page) const {
    const uint64_t most = available_memory() / 8;
    const uint64_t wanted = o_.sizes.empty() ? (page == kHugePage ? 256u << 20 : 64u << 20) : o_.sizes[0];
    return std::max<uint64_t>(page, std::min(wanted, most) / page * page);
  }
  Row row(const Case& c) const {
    Row r("pages");
    return r.label("processor", "cpu")
        .label("memory", c.memory)
        .label("by", c.by)
        .size(c.page, "page_bytes")
        .size(bytes(c.page));
  }
  /// ns are of a page; times are seconds of all.
  void print(const Case& c, const std::vector<double>& took, double faults, bool right) const {
    const double pages = static_cast<double>(bytes(c.page)) / static_cast<double>(c.page), median = percentile(took, 50);
    Row r = row(c);
    r.label("iterations", took.size()).value("faults_per_page", faults / pages);
    r.value("ns", median * 1e9 / pages)
        .value("bytes_per_s", static_cast<double>(bytes(c.page)) / median)
        .verified(right)
        .print(o_.format);
  }
  void refuse(const Case& c, const std::string& why) const { row(c).unavailable(why).print(o_.format); }

  void anonymous(const Case& c) {
    const size_t n = bytes(c.page);
    const std::string by = c.by;
    std::string why;
    bool right = true;
    uint64_t count = 0;
    const std::vector<double> took = repeat(o_.seconds, [&] {
      Mapping m = Mapping::anonymous(n + kHugePage, c.page == kHugePage);
      if (!m.why().empty()) return why = m.why(), 0.0;
      unsigned char* const at = m.at((kHugePage - reinterpret_cast<uintptr_t>(m.at()) % kHugePage) % kHugePage);
      Touch touch(at, n, c.page);
      const double populated = by == "touch" ? 0 : populate(at, n, MADV_POPULATE_WRITE, &why);
      const double touched = touch.write();
      count = touch.faults_of();
      right = right && touch.right();
      return by == "populate" ? populated : touched;
    });
    const double pages = static_cast<double>(n) / static_cast<double>(c.page);
    if (why.empty() && c.page == kHugePage && by == "touch" && static_cast<double>(count) > 1.5 * pages + 2)
      why = "the system gave small pages: " + first_line("/sys/kernel/mm/transparent_hugepage/enabled") +
            " in /sys/kernel/mm/transparent_hugepage/enabled; it may want madvise, or memory is in pieces";
    why.empty() ? print(c, took, static_cast<double>(count), right) : refuse(c, why);
  }

  /// Warm: its pages are in memory, but not mapped. Cold: they are on the disk.
  void file(const Case& c, bool cold) {
    const size_t n = bytes(c.page);
    const std::string by = c.by, where = cold ? folder_ : cached_;
    if (cold && file_system_of(where) == "tmpfs") return refuse(c, where + " is tmpfs, which has no disk below: --disk DIR");
    Mapping m = Mapping::of_file(where, n);
    if (!m.why().empty()) return refuse(c, m.why());
    Touch touch(m.at(), n, c.page);
    (void)touch.write();
    std::string why;
    uint64_t count = 0;
    const std::vector<double> took = repeat(o_.seconds, [&] {
      if (!drop(m, cold)) return why = "the system keeps the file's pages (madvise, posix_fadvise)", 0.0;
      const double populated = by == "touch" ? 0 : populate(m.at(), n, MADV_POPULATE_READ, &why);
      const double touched = touch.read();
      count = touch.faults_of();
      return by == "populate" ? populated : touched;
    });
    why.empty() ? print(c, took, static_cast<double>(count), touch.right()) : refuse(c, why);
  }
  static double populate(unsigned char* at, size_t n, int advice, std::string* why) {
    return timed([&] {
      if (::madvise(at, n, advice) != 0)
        *why = std::string("madvise(MADV_POPULATE_...), of Linux 5.14: ") + std::strerror(errno);
    });
  }
  static bool drop(const Mapping& m, bool cold) {
    if (::madvise(m.at(), m.bytes(), MADV_DONTNEED) != 0) return false;  // what is shared with the file stays in it
    if (!cold) return true;
    if (::msync(m.at(), m.bytes(), MS_SYNC) != 0 || ::fdatasync(m.file()) != 0 ||
        ::posix_fadvise(m.file(), 0, 0, POSIX_FADV_DONTNEED) != 0)
      return false;
    std::vector<unsigned char> there((m.bytes() + kSmallPage - 1) / kSmallPage);
    if (::mincore(m.at(), m.bytes(), there.data()) != 0) return false;
    const auto resident = std::count_if(there.begin(), there.end(), [](unsigned char c) { return (c & 1) != 0; });
    return static_cast<size_t>(resident) <= there.size() / 10;  // as tiers.cpp: the system may keep a few
  }

  const Options& o_;
  const std::string folder_, cached_;
};

}  // namespace

void run_pages(const Options& o) {
  Pages(o).run();
  run_gpu_pages(o);
}

}  // namespace perf
