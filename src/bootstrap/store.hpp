// SPDX-License-Identifier: Apache-2.0
// A small key-value store by which the processes of a job find each other. Not for payload: keys up to kMaxKey, values up to
// kMaxValue bytes. Implementations: a shared file, a TCP server.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/platform/fork.hpp"
#include "base/status.hpp"
#include "security/job_key.hpp"

namespace thalweg::impl {

using Bytes = std::vector<std::byte>;

struct StoreOptions {
  JobKey key;
  uint64_t timeout_ns = 60 * kSecond;
  bool tls = false;
  uint32_t rank = 0;
  uint32_t count = 1;
};

class Store {
 public:
  static constexpr size_t kMaxKey = 512;
  static constexpr size_t kMaxValue = 1u << 20;

  /// Address as in tw_store_open.
  static Status open(const std::string& address, const StoreOptions& options, std::unique_ptr<Store>* out);
  virtual ~Store() = default;
  /// What other processes open; for "serve:" the "tcp:" form with the true port.
  const std::string& address() const { return address_; }
  uint32_t rank() const { return options_.rank; }
  uint32_t count() const { return options_.count; }

  // Any thread. The last put of a key wins.
  Status put(const std::string& key, const void* value, size_t length);
  Status get(const std::string& key, Bytes* out);   // TW_ERR_NO_MATCH
  Status wait(const std::string& key, Bytes* out);  // TW_ERR_TIMED_OUT names the key
  /// Collective, in the same order on all ranks; values holds count * length bytes.
  Status exchange(const void* mine, size_t length, void* values);
  Status barrier();
  /// Where this serves the others: waits until they have left, as one may be slow to read what it asked for; within the store's time,
  /// whose end is no error. TW_ERR_CANCELED. Nobody new is served; one's own calls are over.
  virtual Status finish() { return TW_OK; }

 protected:
  explicit Store(const StoreOptions& options) : options_(options) {}
  virtual Status do_put(const std::string& key, const void* value, size_t length) = 0;
  virtual Status do_get(const std::string& key, Bytes* out) = 0;
  /// TW_ERR_TIMED_OUT when the deadline passes first (the text is the caller's to give).
  virtual Status do_wait(const std::string& key, const Deadline& deadline, Bytes* out) = 0;
  virtual Status do_erase(const std::string& key) = 0;
  StoreOptions options_;
  std::string address_;
  BornHere born_;

 private:
  Status check(const std::string& key) const;
  static std::string epoch_key(uint32_t rank);
  Status epoch_of(uint32_t rank, uint64_t* epoch);  // 0: never here
  std::string other_epoch(uint32_t rank);
  Status enter_epoch();
  std::string step_key(uint64_t step, uint32_t rank) const;
  std::string gathered_key(uint64_t step) const;
  Status gather(uint64_t step, const Deadline& deadline);
  Status value_of(uint64_t step, uint32_t rank, const Bytes& together, size_t* at, const Deadline& deadline, Bytes* out);
  Status missing(uint64_t step);
  std::mutex exchange_mutex_;
  uint64_t epoch_ = 0;  // how many times this rank has opened this store for exchanges; 0: not asked yet
  uint64_t step_ = 0;
};

}  // namespace thalweg::impl
