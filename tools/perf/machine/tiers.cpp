// SPDX-License-Identifier: Apache-2.0
// Tiers of memory: DRAM, tmpfs and a mapped file on disk. Read, write and triad within each, copies between any two; of the file also
// without its pages in memory, and until what was written is on the disk; and small writes that return when they are there.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "machine/alone.hpp"
#include "machine/mapping.hpp"
#include "machine/numa.hpp"
#include "machine/rows.hpp"
#include "machine/stream_team.hpp"
#include "report.hpp"

namespace perf {
namespace {

const size_t kPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
constexpr size_t kLeast = 64u << 20, kMost = 256u << 20;  // bytes of an array, where --size does not say
constexpr size_t kDisk = 2;                               // the tier's place in the list

struct Tier {
  const char* name;
  std::string folder;  // "": anonymous memory
  std::string why{};   // it cannot be measured
};

std::vector<Tier> tiers_of(const Options& o) {
  std::vector<Tier> all = {
      {"dram", ""}, {"tmpfs", o.tmpfs.empty() ? "/dev/shm" : o.tmpfs}, {"disk", o.disk.empty() ? temporary_folder() : o.disk}};
  const std::string second = file_system_of(all[1].folder), third = file_system_of(all[2].folder);
  if (second != "tmpfs")
    all[1].why = all[1].folder + (second.empty() ? " is no folder" : " is no tmpfs but " + second) + ": --tmpfs DIR";
  if (third.empty()) all[2].why = all[2].folder + " is no folder: --disk DIR";
  if (third == "tmpfs" || third == "ramfs") all[2].why = all[2].folder + " is " + third + ", not on a disk: --disk DIR";
  return all;
}

class Tiers {
 public:
  explicit Tiers(const Options& o)
      : o_(o),
        processors_(allowed_processors()),
        cache_(last_level_cache(processors_)),
        team_(processors_, o.threads != 0 ? o.threads : static_cast<unsigned>(processors_.size())),
        tiers_(tiers_of(o)) {
    for (const Tier& tier : tiers_) bytes_.push_back(array_bytes(tier));
  }

  void run() {
    for (Tier& tier : tiers_) maps_.push_back(map(tier));
    for (size_t t = 0; t < tiers_.size(); ++t) within(t);
    for (size_t from = 0; from < tiers_.size(); ++from) {
      for (size_t to = 0; to < tiers_.size(); ++to) between(from, to);
    }
    beyond_memory();
    for (size_t t = 1; t < tiers_.size(); ++t) small_writes(t);
  }

 private:
  /// What is little in one tier is no reason to measure less in another one.
  size_t array_bytes(const Tier& tier) const {
    uint64_t room = available_memory() / 32;  // three tiers of three arrays
    if (!tier.folder.empty() && tier.why.empty()) room = std::min(room, free_below(tier.folder) / 8);
    const uint64_t wanted = o_.sizes.empty() ? std::clamp<uint64_t>(2 * cache_, kLeast, kMost) : o_.sizes[0];
    return std::max<uint64_t>(kPage, std::min(wanted, room) / kPage * kPage);
  }
  std::unique_ptr<Mapping> map(Tier& tier) {
    if (!tier.why.empty()) return nullptr;
    const size_t bytes = 3 * bytes_[static_cast<size_t>(&tier - tiers_.data())];
    auto m =
        std::make_unique<Mapping>(tier.folder.empty() ? Mapping::anonymous(bytes, true) : Mapping::of_file(tier.folder, bytes));
    tier.why = m->why();
    return m;
  }
  double* array(size_t tier, size_t i) const { return reinterpret_cast<double*>(maps_[tier]->at(i * bytes_[tier])); }
  Row row(const char* operation) const { return Row("tiers").label("operation", operation); }
  Row row(const char* operation, size_t tier) const {
    Row r = row(operation);
    r.label("tier", tiers_[tier].name);
    if (!tiers_[tier].folder.empty()) r.label("filesystem", file_system_of(tiers_[tier].folder));
    return r;
  }
  Row& sized(Row& r, size_t bytes) const { return r.label("threads", team_.threads()).size(bytes).size(cache_, "cache_bytes"); }
  void print(Row& r, const StreamOperation& op, size_t bytes, const StreamResult& result) const {
    const double moved = static_cast<double>(op.arrays) * static_cast<double>(bytes);
    r.value("bytes_per_s", moved / result.best_seconds).value("median_bytes_per_s", moved / result.median_seconds);
    r.verified(result.verified).print(o_.format);
  }

  void within(size_t t) {
    for (const StreamKind wanted : {StreamKind::read, StreamKind::write, StreamKind::triad}) {
      const StreamOperation& op = kStreamOperations[static_cast<size_t>(wanted)];
      Row r = row(op.name, t);
      sized(r, bytes_[t]);
      if (!tiers_[t].why.empty()) {
        r.unavailable(tiers_[t].why).print(o_.format);
        continue;
      }
      StreamArrays arrays(array(t, 0), array(t, 1), array(t, 2), bytes_[t] / sizeof(double));
      arrays.fill(team_);
      print(r, op, bytes_[t], arrays.measure(team_, op.operation, o_.seconds));
    }
  }

  void between(size_t from, size_t to) {
    Row r = row("copy");
    r.label("from", tiers_[from].name).label("to", tiers_[to].name);
    const size_t bytes = std::min(bytes_[from], bytes_[to]);
    sized(r, bytes);
    for (const size_t t : {from, to}) {
      if (tiers_[t].why.empty()) continue;
      r.unavailable(tiers_[t].why).print(o_.format);
      return;
    }
    StreamArrays arrays(array(from, 0), array(from, 1), array(to, 2), bytes / sizeof(double));
    arrays.fill(team_);
    print(r, kStreamOperations[0], bytes, arrays.measure(team_, StreamKind::copy, o_.seconds));
  }

  /// Of the file: pages that are read from the disk, and written to it.
  void beyond_memory() {
    const size_t bytes = bytes_[kDisk];
    const StreamOperation &read = kStreamOperations[static_cast<size_t>(StreamKind::read)],
                          &write = kStreamOperations[static_cast<size_t>(StreamKind::write)];
    Row cold = row("read_cold", kDisk), synced = row("write_synced", kDisk);
    sized(cold, bytes);
    sized(synced, bytes);
    if (!tiers_[kDisk].why.empty()) {
      cold.unavailable(tiers_[kDisk].why).print(o_.format);
      synced.unavailable(tiers_[kDisk].why).print(o_.format);
      return;
    }
    StreamArrays arrays(array(kDisk, 0), array(kDisk, 1), array(kDisk, 2), bytes / sizeof(double));
    arrays.fill(team_);
    cold_read(arrays, cold, read);
    bool ok = true;
    StreamResult result = times_of(repeat(
        o_.seconds,
        [&] {
          return timed([&] {
            (void)team_.run(bytes / sizeof(double), [&](unsigned, size_t from, size_t to) {
              std::fill(array(kDisk, 2) + from, array(kDisk, 2) + to, 3.0);
            });
            ok = ok && ::msync(array(kDisk, 2), bytes, MS_SYNC) == 0;
          });
        },
        2));
    result.verified = ok && arrays.wrong(team_, StreamKind::write) == 0;
    print(synced, write, bytes, result);
  }
  void cold_read(StreamArrays& arrays, Row& row, const StreamOperation& op) {
    Mapping& file = *maps_[kDisk];
    StreamResult all;
    std::vector<double> took;
    bool right = true;
    for (const uint64_t end = now_ns() + static_cast<uint64_t>(o_.seconds * 1e9); took.empty() || now_ns() < end;) {
      if (!drop(file)) {
        row.unavailable("the system keeps the file's pages in memory (posix_fadvise)").print(o_.format);
        return;
      }
      StreamTeam::Part touch = [&](unsigned, size_t from, size_t to) {
        uint64_t sum = 0;
        for (size_t i = from; i < to; ++i) sum += __builtin_bit_cast(uint64_t, array(kDisk, 0)[i]);
        asm volatile("" ::"r"(sum));
      };
      took.push_back(team_.run(bytes_[kDisk] / sizeof(double), touch));
    }
    all = times_of(took);
    right = arrays.right_operands(team_);
    all.verified = right;
    print(row, op, bytes_[kDisk], all);
  }
  /// Is no page of the first array in memory now?
  bool drop(Mapping& file) const {
    if (::msync(file.at(), file.bytes(), MS_SYNC) != 0 || ::madvise(file.at(), file.bytes(), MADV_DONTNEED) != 0) return false;
    if (::fdatasync(file.file()) != 0 || ::posix_fadvise(file.file(), 0, 0, POSIX_FADV_DONTNEED) != 0) return false;
    std::vector<unsigned char> there(bytes_[kDisk] / kPage);
    if (::mincore(file.at(), bytes_[kDisk], there.data()) != 0) return false;
    const auto resident = std::count_if(there.begin(), there.end(), [](unsigned char c) { return (c & 1) != 0; });
    return static_cast<size_t>(resident) <= there.size() / 10;
  }
  static StreamResult times_of(const std::vector<double>& took) { return {best_of(took), percentile(took, 50), false}; }

  void small_writes(size_t t) {
    for (const bool mapped : {false, true}) {
      for (const size_t bytes : {size_t{64}, size_t{512}, size_t{4096}}) {
        Row r = row(mapped ? "store_msync" : "pwrite_fdatasync", t);
        r.size(bytes);
        if (tiers_[t].why.empty())
          small_write(r, t, bytes, mapped);
        else
          r.unavailable(tiers_[t].why);
        r.print(o_.format);
      }
    }
  }
  /// At random pages, all of which are there already; each write is new data, and all of it is read again at the end.
  void small_write(Row& r, size_t t, size_t bytes, bool mapped) {
    Mapping& file = *maps_[t];
    const size_t places = std::min<size_t>(1024, file.bytes() / kPage);
    std::memset(file.at(), 0, places * kPage);
    (void)::fdatasync(file.file());
    std::vector<uint64_t> written(places);
    std::vector<unsigned char> data(bytes);
    const uint64_t seed = fresh_seed();
    uint64_t count = 0;
    std::string why;
    const auto fill = [&](uint64_t with) {
      for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>(random_at(with, i));
    };
    const auto once = [&] {
      const size_t at = random_at(seed, count++) % places;
      written[at] = seed + count;
      fill(written[at]);
      return timed([&] {
        if (mapped) {
          std::memcpy(file.at(at * kPage), data.data(), bytes);
          if (::msync(file.at(at * kPage), kPage, MS_SYNC) != 0) why = std::string("msync: ") + std::strerror(errno);
        } else if (::pwrite(file.file(), data.data(), bytes, static_cast<off_t>(at * kPage)) != static_cast<ssize_t>(bytes) ||
                   ::fdatasync(file.file()) != 0) {
          why = std::string("pwrite, fdatasync: ") + std::strerror(errno);
        }
      });
    };
    std::vector<double> took = repeat(o_.seconds / 2, once, 5);
    if (!why.empty()) {
      r.unavailable(why);
      return;
    }
    bool right = true;
    std::vector<unsigned char> seen(bytes);
    for (size_t at = 0; at < places; ++at) {
      if (written[at] == 0) continue;
      fill(written[at]);
      right = right &&
              ::pread(file.file(), seen.data(), bytes, static_cast<off_t>(at * kPage)) == static_cast<ssize_t>(bytes) &&
              seen == data;
    }
    r.label("iterations", took.size())
        .value("ns", percentile(took, 50) * 1e9)
        .value("p99_ns", percentile(took, 99) * 1e9)
        .verified(right);
  }

  const Options& o_;
  const std::vector<unsigned> processors_;
  const uint64_t cache_;
  StreamTeam team_;
  std::vector<Tier> tiers_;
  std::vector<size_t> bytes_;  // of an array in each tier
  std::vector<std::unique_ptr<Mapping>> maps_;
};

}  // namespace

void run_tiers(const Options& o) { Tiers(o).run(); }

}  // namespace perf
