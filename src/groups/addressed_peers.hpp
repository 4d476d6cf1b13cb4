// SPDX-License-Identifier: Apache-2.0
// Endpoints to workers whose addresses are known, connected when they are first needed. Both sides may begin, at once or one
// later: connections by address are one for two workers (core/directory.hpp), and a side that only receives asks for its
// endpoint, too.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "groups/group.hpp"

namespace thalweg::impl {

class AddressedPeers final : public Peers {
 public:
  /// addresses: by rank, the own one, too. timeout_ns: of each connection.
  static Status make(tw_worker& worker, std::vector<std::string> addresses, uint64_t timeout_ns, std::shared_ptr<Peers>* out);
  /// Delivers what was posted, if the peers progress within two seconds.
  ~AddressedPeers() override;
  Status endpoint(uint32_t rank, tw_endpoint** out) override;
  tw_endpoint* made(uint32_t rank) const override;
  uint64_t sender(uint32_t rank) const override { return workers_[rank]; }

 private:
  AddressedPeers(tw_worker& worker, std::vector<std::string> addresses, uint64_t timeout_ns)
      : worker_(worker), addresses_(std::move(addresses)), endpoints_(addresses_.size()), timeout_ns_(timeout_ns) {}
  tw_worker& worker_;
  const std::vector<std::string> addresses_;
  std::vector<WorkerId> workers_;        // of the addresses
  std::vector<tw_endpoint*> endpoints_;  // null: not needed yet; under the engine's lock
  const uint64_t timeout_ns_;
};

}  // namespace thalweg::impl
