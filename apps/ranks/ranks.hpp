// SPDX-License-Identifier: Apache-2.0
// The processes of an application as one of them sees the others: rank, size, a worker, a connection to each, and small collective calls.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <thalweg/thalweg.hpp>
#include <vector>

namespace apps {

/// Every wait of the applications is bounded by this.
constexpr std::chrono::seconds kPatience{60};

inline void must(tw_status status) {
  if (status < 0) throw thalweg::Error(status);
}

class Ranks {
 public:
  /// From THALWEG_RANK, THALWEG_SIZE, THALWEG_STORE and THALWEG_JOB_KEY.
  Ranks();
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The connection to another rank, or to this one itself; made when first asked for. The other may come later.
  tw_endpoint* peer(int rank);
  /// The connections to all, null for this rank.
  std::vector<tw_endpoint*> others();
  const thalweg::Store& store() const { return *store_; }
  /// --memory as a place of this rank: "cuda" is the GPU of the rank's number, and so are the other places of devices that
  /// name none; "host", "pinned" and "cuda:1" are what they are.
  std::string place(const std::string& memory) const;
  /// What follows is called by all ranks in the same order, and needs some microseconds.
  /// All leave it when the last one has come.
  void align();
  double sum(double mine);
  double most(double mine);
  uint64_t sum_bits(uint64_t mine);  // modulo 2^64
  /// Closes the connections. Everything sent has been received.
  void leave();

 private:
  template <class T>
  std::vector<T> all(T mine);
  int rank_ = 0, size_ = 1;
  std::optional<thalweg::Store> store_;

 public:
  thalweg::Context context;
  thalweg::Worker worker{context};

 private:
  std::vector<std::string> addresses_;
  std::map<int, tw_endpoint*> peers_;  // the worker's end ends them too
};

}  // namespace apps
