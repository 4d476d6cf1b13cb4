// SPDX-License-Identifier: Apache-2.0
#include "groups/addressed_peers.hpp"

#include "core/c_checks.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kFarewell = 2 * kSecond;  // a peer that computes and does not progress is not waited for any longer

}  // namespace

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
  if (worker_.born.forked()) return;
  std::vector<tw_request> closing;
  for (tw_endpoint* endpoint : endpoints_) {
    if (endpoint == nullptr) continue;
    tw_request request = TW_REQUEST_NONE;
    const uint32_t how = is_error(tw_endpoint_state(endpoint)) ? TW_CLOSE_FORCE : TW_CLOSE_GRACEFUL;
    if (tw_endpoint_close(endpoint, how, &request) == TW_IN_PROGRESS) closing.push_back(request);
  }
  (void)worker_.wait_until(
      [&] {
        std::erase_if(closing, [](tw_request request) { return tw_request_test(request) != TW_IN_PROGRESS; });
        return closing.empty();
      },
      kFarewell);
}

Status AddressedPeers::endpoint(uint32_t rank, tw_endpoint** out) {
  tw_endpoint*& endpoint = endpoints_[rank];
  if (endpoint == nullptr) {
    tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
    options.timeout_ns = timeout_ns_;
    const std::string& address = addresses_[rank];
    if (Status s = tw_connect(&worker_, address.data(), address.size(), &options, &endpoint); is_error(s)) return s;
  }
  *out = endpoint;
  return tw_endpoint_state(endpoint);
}

}  // namespace thalweg::impl
