// SPDX-License-Identifier: Apache-2.0
#include "groups/addressed_peers.hpp"

#include "core/c_checks.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kFarewell = 2 * kSecond;  // a peer that computes and does not progress is not waited for any longer

}  // namespace

AddressedPeers::~AddressedPeers() {
  if (worker_.born.forked()) return;
  std::vector<tw_request> closing;
  for (tw_endpoint* endpoint : endpoints_) {
    tw_request request = TW_REQUEST_NONE;
    const bool open = endpoint != nullptr && tw_endpoint_state(endpoint) == TW_OK;
    if (open && tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, &request) == TW_IN_PROGRESS) closing.push_back(request);
    if (!open && endpoint != nullptr) (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
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
