// SPDX-License-Identifier: Apache-2.0
#include "groups/given_peers.hpp"

#include <utility>

#include "core/c_checks.hpp"

namespace thalweg::impl {

Status connect_to_itself(tw_worker& worker, tw_endpoint** out) {
  unsigned char address[kAddressMax];
  size_t length = sizeof address;
  if (Status s = tw_worker_address(&worker, address, &length); is_error(s)) return s;
  return tw_connect(&worker, address, length, nullptr, out);
}

GivenPeers::~GivenPeers() {
  if (own_ != nullptr) (void)tw_endpoint_close(std::exchange(own_, nullptr), TW_CLOSE_GRACEFUL, nullptr);
}

Status GivenPeers::endpoint(uint32_t rank, tw_endpoint** out) {
  const Engine::Guard guard(*worker_.engine);
  if (rank == rank_ && own_ == nullptr) {
    tw_endpoint* made = nullptr;
    if (Status s = connect_to_itself(worker_, &made); is_error(s)) return s;
    own_ = made;
  }
  *out = rank == rank_ ? own_ : endpoints_[rank];
  return tw_endpoint_state(*out);
}

tw_endpoint* GivenPeers::made(uint32_t rank) const {
  const Engine::Guard guard(*worker_.engine);
  return rank == rank_ ? own_ : endpoints_[rank];
}

}  // namespace thalweg::impl
