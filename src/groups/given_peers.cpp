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
  if (rank == rank_ && own_ == nullptr) {
    if (Status s = connect_to_itself(worker_, &own_); is_error(s)) return s;
  }
  *out = rank == rank_ ? own_ : endpoints_[rank];
  const Status state = tw_endpoint_state(*out);
  return state;
}

}  // namespace thalweg::impl
