// SPDX-License-Identifier: Apache-2.0
// Gets and fetching atomics of a peer that are under way. UCX's flush waits for them; Thalweg's covers what is written, and a get ends by
// itself.
#pragma once
#include <cstdint>
#include <deque>

#include "ucx.hpp"

namespace thalweg::ucx {

class Ledger {
 public:
  /// One more; its number is for end().
  uint64_t begin() {
    if (open_.empty() || open_.back().cut != cut_) open_.push_back({cut_, 0});
    ++open_.back().count;
    return cut_;
  }
  /// untold: nobody else is told of a failure, so the next flush is.
  void end(uint64_t number, ucs_status_t status, bool untold) {
    for (Group& group : open_) {
      if (group.cut == number) --group.count;
    }
    while (!open_.empty() && open_.front().count == 0) open_.pop_front();
    if (status != UCS_OK && untold) owe(status);
  }
  /// A failure that nobody has been told of.
  void owe(ucs_status_t status) { owed_ = status; }
  bool empty() const { return open_.empty(); }
  /// What has begun until now, for settled().
  uint64_t cut() { return cut_++; }
  bool settled(uint64_t until) const { return open_.empty() || open_.front().cut > until; }
  ucs_status_t take_owed() {
    const ucs_status_t status = owed_;
    owed_ = UCS_OK;
    return status;
  }

 private:
  struct Group {
    uint64_t cut;
    uint64_t count;
  };
  std::deque<Group> open_;  // by cut
  uint64_t cut_ = 0;
  ucs_status_t owed_ = UCS_OK;
};

}  // namespace thalweg::ucx
