// SPDX-License-Identifier: Apache-2.0
// What started this process together with others: its rank, how many there are, and a way to tell the others small values. Used
// while a world is made (groups/init.cpp), and closed then. Why: docs/decisions/0033-bootstrap.md.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "bootstrap/store.hpp"

namespace thalweg::impl {

/// What the program gives; the environment has the rest.
struct LaunchOptions {
  const char* store = nullptr;  // as of tw_store_open
  uint32_t rank, count;         // TW_STORE_ENVIRONMENT: the environment's
  const void* job_key = nullptr;
  size_t job_key_length = 0;
  const char* key_file = nullptr;
  bool tls = false;
  uint64_t timeout_ns = 60 * kSecond;
};

class Launcher {
 public:
  virtual ~Launcher() = default;
  /// An allgather, in the same order on all ranks.
  virtual Status exchange(const void* mine, size_t length, void* values) = 0;
  /// Behind the last exchange: as of Store::finish.
  virtual Status finish() { return TW_OK; }
  uint32_t rank = 0, size = 1;
  Bytes key;  // of the job, unless the program gives one; empty: the context finds it as usual
};

/// Looks for each launcher in turn. A process that none has started is alone.
Status find_launcher(const LaunchOptions& options, std::unique_ptr<Launcher>* out);

// Each looks at its variables: *out stays empty when they are absent, an error when they are incomplete or senseless.
Status find_own(const LaunchOptions& options, std::unique_ptr<Launcher>* out);  // `thalweg run`, or a store that is named
Status find_torchrun(const LaunchOptions& options,
                     std::unique_ptr<Launcher>* out);                            // RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
Status find_pmix(const LaunchOptions& options, std::unique_ptr<Launcher>* out);  // PMIX_NAMESPACE, PMIX_RANK

/// A launcher's ranks over a store.
class StoreLauncher final : public Launcher {
 public:
  StoreLauncher(std::unique_ptr<Store> store, Bytes job_key) : store_(std::move(store)) {
    rank = store_->rank();
    size = store_->count();
    key = std::move(job_key);
  }
  Status exchange(const void* mine, size_t length, void* values) override { return store_->exchange(mine, length, values); }
  Status finish() override { return store_->finish(); }

 private:
  std::unique_ptr<Store> store_;
};

/// The variable's text; null: absent or empty.
const char* variable(const char* name);
/// What stays at TW_STORE_ENVIRONMENT: the variable's number, or otherwise.
Status read_place(uint32_t given, const char* name, uint32_t otherwise, uint32_t* out);

}  // namespace thalweg::impl
