// SPDX-License-Identifier: Apache-2.0
// A group of ranks of one process for tests: a thread, a context and a worker each (plans/window_ranks.hpp), and memory of the host or of
// an emulated device with guard bytes around.
#pragma once
#include <string>
#include <vector>

#include "unit/plans/window_ranks.hpp"

namespace thalweg::test {

/// Memory at a place, with guard bytes around it.
class Room {
 public:
  Room(Context& context, const char* place, size_t length) : context_(context.get()), length_(length) {
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = place;
    EXPECT_EQ(tw_memory_allocate(context_, length + 2 * kGuard, &options, &memory_), TW_OK) << tw_last_error();
    store(std::string(length, '\x5a'));
    const std::string guard(kGuard, '\x7e');
    EXPECT_EQ(tw_memory_copy(context_, whole(), guard.data(), kGuard), TW_OK);
    EXPECT_EQ(tw_memory_copy(context_, whole() + kGuard + length, guard.data(), kGuard), TW_OK);
  }
  ~Room() {
    EXPECT_TRUE(guarded()) << "bytes beside a buffer of " << length_ << " were written";
    EXPECT_EQ(tw_memory_release(memory_), TW_OK) << tw_last_error();
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  char* data() const { return whole() + kGuard; }
  tw_memory* memory() const { return memory_; }
  void store(const std::string& bytes) {
    EXPECT_EQ(bytes.empty() ? TW_OK : tw_memory_copy(context_, data(), bytes.data(), bytes.size()), TW_OK) << tw_last_error();
  }
  std::string load() const {
    std::string bytes(length_, '\0');
    EXPECT_EQ(length_ == 0 ? TW_OK : tw_memory_copy(context_, bytes.data(), data(), length_), TW_OK) << tw_last_error();
    return bytes;
  }

 private:
  static constexpr size_t kGuard = 64;
  char* whole() const { return static_cast<char*>(tw_memory_address(memory_)); }
  bool guarded() const {
    std::string sides(2 * kGuard, '\0');
    EXPECT_EQ(tw_memory_copy(context_, sides.data(), whole(), kGuard), TW_OK);
    EXPECT_EQ(tw_memory_copy(context_, sides.data() + kGuard, whole() + kGuard + length_, kGuard), TW_OK);
    return sides == std::string(2 * kGuard, '\x7e');
  }
  tw_context* const context_;
  const size_t length_;
  tw_memory* memory_ = nullptr;
};

/// A rank with a group of all of them.
struct GroupRank {
  explicit GroupRank(Rank& one, uint64_t timeout_ns = 60 * kSecond) : rank(one) { make(&group, timeout_ns); }
  ~GroupRank() { EXPECT_EQ(tw_group_destroy(group), TW_OK) << tw_last_error(); }
  void make(tw_group** out, uint64_t timeout_ns = 60 * kSecond) {
    tw_group_options options = TW_GROUP_OPTIONS_INIT;
    options.timeout_ns = timeout_ns;
    EXPECT_EQ(
        tw_group_create(rank.worker->get(), rank.handles.data(), rank.size, rank.number, Rank::exchange, &rank, &options, out),
        TW_OK)
        << tw_last_error();
  }
  Rank& rank;
  tw_group* group = nullptr;
};

/// fails: the group has failed in the body.
inline void run_group(uint32_t size, const std::function<void(GroupRank&)>& body, const RankOptions& options = {},
                      bool fails = false) {
  run_ranks(
      size,
      [&](Rank& rank) {
        GroupRank one(rank);
        body(one);
        if (fails) return;
        EXPECT_EQ(tw_barrier(one.group, nullptr, nullptr), TW_OK) << tw_last_error();  // nobody leaves before all are through
      },
      options);
}

}  // namespace thalweg::test
