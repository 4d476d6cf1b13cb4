// SPDX-License-Identifier: Apache-2.0
#include "groups/addressed_peers.hpp"

#include "core/c_checks.hpp"
#include "core/farewell.hpp"

namespace thalweg::impl {

Status AddressedPeers::make(tw_worker& worker, std::vector<std::string> addresses, uint64_t timeout_ns,
                            std::shared_ptr<Peers>* out) {
  std::shared_ptr<AddressedPeers> made(new AddressedPeers(worker, std::move(addresses), timeout_ns));
  for (const std::string& one : made->addresses_) {
    WorkerAddress address;
    if (Status s = parse_address(one.data(), one.size(), &address); is_error(s)) return s;
    made->workers_.push_back(address.worker);
  }
  *out = std::move(made);
  return TW_OK;
}

AddressedPeers::~AddressedPeers() {
  if (!worker_.born.forked()) close_all(worker_, endpoints_);
}

tw_endpoint* AddressedPeers::made(uint32_t rank) const {
  const Engine::Guard guard(*worker_.engine);
  return endpoints_[rank];
}

Status AddressedPeers::endpoint(uint32_t rank, tw_endpoint** out) {
  const Engine::Guard guard(*worker_.engine);  // one handle for each rank, whichever threads ask at once
  if (endpoints_[rank] == nullptr) {
    tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
    options.timeout_ns = timeout_ns_;
    const std::string& address = addresses_[rank];
    tw_endpoint* made = nullptr;
    if (Status s = tw_connect(&worker_, address.data(), address.size(), &options, &made); is_error(s)) return s;
    endpoints_[rank] = made;
  }
  *out = endpoints_[rank];
  return tw_endpoint_state(*out);
}

}  // namespace thalweg::impl
