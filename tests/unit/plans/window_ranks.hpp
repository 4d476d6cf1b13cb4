// SPDX-License-Identifier: Apache-2.0
// Ranks of one process for tests of windows: a thread, a worker and a part of random bytes each, and an exchange among them.
#pragma once
#include <gtest/gtest.h>
#include <thalweg/thalweg.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../../fixtures/rooms.hpp"

namespace thalweg::test {

// Before the first context looks for devices.
[[maybe_unused]] inline const int kDevices = setenv("THALWEG_EMULATED", "devices=2", 1);
constexpr uint64_t kSecond = 1'000'000'000;

inline std::string random_bytes(size_t length) {
  static thread_local std::mt19937_64 generator(std::random_device{}());
  std::string bytes(length, '\0');
  for (char& byte : bytes) byte = static_cast<char>(generator());
  return bytes;
}

inline ContextOptions test_options() {
  static constexpr char kKey[] = "a secret of more than sixteen bytes";
  ContextOptions options;
  options.job_key = kKey;
  options.job_key_length = sizeof kKey;
  return options;
}

/// Everyone's bytes to everyone among threads; gives up after a time.
class Meeting {
 public:
  explicit Meeting(uint32_t size, std::chrono::milliseconds limit = std::chrono::seconds(30)) : size_(size), limit_(limit) {}
  tw_status exchange(uint32_t rank, const void* mine, size_t length, void* values) {
    std::unique_lock lock(mutex_);
    const uint64_t round = round_;
    if (arrived_ == 0) gathered_.assign(size_ * length, '\0');
    std::memcpy(gathered_.data() + rank * length, mine, length);
    if (++arrived_ == size_) {
      result_ = gathered_;
      arrived_ = 0;
      ++round_;
      all_here_.notify_all();
    }
    if (!all_here_.wait_for(lock, limit_, [&] { return round_ != round; })) return TW_ERR_TIMED_OUT;
    std::memcpy(values, result_.data(), result_.size());
    return TW_OK;
  }

 private:
  const uint32_t size_;
  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  uint32_t arrived_ = 0;
  uint64_t round_ = 0;
  std::string gathered_, result_;
};

struct RankOptions {
  bool one_context = false;
  const char* transport = nullptr;
  uint32_t progress = TW_PROGRESS_CALLER;
};

/// One rank, used by its own thread.
struct Rank {
  uint32_t number;
  uint32_t size;
  Meeting& meeting;
  Context& context;
  std::optional<Worker> worker;
  std::vector<Endpoint> endpoints;
  std::vector<tw_endpoint*> handles;

  Rank(uint32_t n, uint32_t ranks, Meeting& among, Context& of, const RankOptions& how)
      : number(n), size(ranks), meeting(among), context(of) {
    WorkerOptions worker_options;
    worker_options.progress = how.progress;
    worker.emplace(context, worker_options);
    for (const std::string& address : gather(worker->address())) {
      EndpointOptions options;
      options.transport = how.transport;
      endpoints.push_back(endpoints.size() == number ? Endpoint() : worker->connect(address, options));
      handles.push_back(endpoints.back().get());
    }
  }
  /// Everybody's text; all of one length.
  std::vector<std::string> gather(const std::string& mine) {
    std::string room = mine, all(size * kAddressRoom, '\0');
    room.resize(kAddressRoom);
    EXPECT_EQ(meeting.exchange(number, room.data(), room.size(), all.data()), TW_OK);
    std::vector<std::string> texts;
    for (uint32_t i = 0; i < size; ++i) texts.push_back(all.substr(i * room.size(), mine.size()));
    return texts;
  }
  /// Until all are here; progresses nothing.
  void barrier() { gather(""); }
  static tw_status exchange(void* arg, const void* mine, size_t length, void* values) {
    const auto& rank = *static_cast<Rank*>(arg);
    return rank.meeting.exchange(rank.number, mine, length, values);
  }
  tw_status create(tw_memory* memory, tw_window** window, uint64_t timeout_ns = 20 * kSecond) {
    WindowOptions options;
    options.timeout_ns = timeout_ns;
    return tw_window_create(worker->get(), handles.data(), size, number, memory, exchange, this, &options, window);
  }
  Window window(const Memory& memory, uint64_t timeout_ns = 20 * kSecond) {
    WindowOptions options;
    options.timeout_ns = timeout_ns;
    return Window(*worker, handles, number, memory, exchange, this, options);
  }
};

/// Runs body(rank) for every rank, each in its thread.
inline void run_ranks(uint32_t size, const std::function<void(Rank&)>& body, const RankOptions& options = {}) {
  Meeting meeting(size);
  std::vector<std::unique_ptr<Context>> contexts;
  for (uint32_t i = 0; i < (options.one_context ? 1 : size); ++i) contexts.push_back(std::make_unique<Context>(test_options()));
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < size; ++i) {
    threads.emplace_back([&, i] {
      Rank rank(i, size, meeting, *contexts[i % contexts.size()], options);
      try {
        body(rank);
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << i << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace thalweg::test
