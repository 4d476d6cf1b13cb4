// SPDX-License-Identifier: Apache-2.0
// Ranks of one process for tests of groups: a thread and a world each, made by tw_init over a file store.
#pragma once
#include <gtest/gtest.h>
#include <thalweg/thalweg.hpp>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace thalweg::test {

// Before the first context looks for devices.
[[maybe_unused]] inline const int kDevices = setenv("THALWEG_EMULATED", "devices=2", 1);
constexpr uint64_t kSecond = 1'000'000'000;

struct WorldOptions {
  uint64_t timeout_ns = 30 * kSecond;
  const char* transports = nullptr;
  uint32_t progress = TW_PROGRESS_CALLER;
};

class Folder {
 public:
  Folder() : path((std::filesystem::temp_directory_path() / "thalweg-groups-XXXXXX").string()) {
    EXPECT_NE(::mkdtemp(path.data()), nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

inline Group open_world(const std::string& store, uint32_t rank, uint32_t size, const WorldOptions& how) {
  static constexpr char kKey[] = "a secret of more than sixteen bytes";
  ContextOptions context;
  context.job_key = kKey;
  context.job_key_length = sizeof kKey;
  context.transports = how.transports;
  WorkerOptions worker;
  worker.progress = how.progress;
  InitOptions options;
  options.store = store.c_str();
  options.rank = rank;
  options.count = size;
  options.context = &context;
  options.worker = &worker;
  options.timeout_ns = how.timeout_ns;
  return init(options);
}

/// Runs body(world) for every rank, each in its thread.
inline void run_worlds(uint32_t size, const std::function<void(Group&)>& body, const WorldOptions& how = {}) {
  const Folder folder;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Group world = open_world("file:" + folder.path + "/store", rank, size, how);
        body(world);
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// The status that the call throws, or TW_OK.
template <class Call>
tw_status status_of(Call&& call, std::string* text = nullptr) {
  try {
    call();
    return TW_OK;
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.status();
  }
}

}  // namespace thalweg::test
