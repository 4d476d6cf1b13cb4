// SPDX-License-Identifier: Apache-2.0
// Endpoints that the creator of a group has.
#pragma once
#include <vector>

#include "groups/group.hpp"
#include "groups/mailbox.hpp"

namespace thalweg::impl {

class GivenPeers final : public Peers {
 public:
  /// endpoints: as of tw_group_create; the own entry is null.
  GivenPeers(tw_worker& worker, std::vector<tw_endpoint*> endpoints, uint32_t rank)
      : worker_(worker), endpoints_(std::move(endpoints)), rank_(rank) {}
  ~GivenPeers() override;
  Status endpoint(uint32_t rank, tw_endpoint** out) override;
  uint64_t sender(uint32_t rank) const override { return rank == rank_ ? 0 : sender_of(*endpoints_[rank]); }
  tw_endpoint* made(uint32_t rank) const override;

 private:
  tw_worker& worker_;
  const std::vector<tw_endpoint*> endpoints_;
  const uint32_t rank_;
  tw_endpoint* own_ = nullptr;  // made when it is first asked for; under the engine's lock
};

/// An endpoint of the worker to itself.
Status connect_to_itself(tw_worker& worker, tw_endpoint** out);

}  // namespace thalweg::impl
