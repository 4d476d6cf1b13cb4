// SPDX-License-Identifier: Apache-2.0
#include "core/farewell.hpp"

#include <vector>

#include "core/c_checks.hpp"

namespace thalweg::impl {

void close_all(tw_worker& worker, std::span<tw_endpoint* const> endpoints) {
  constexpr uint64_t kPatience = 2 * kSecond;
  std::vector<tw_request> closing;
  for (tw_endpoint* endpoint : endpoints) {
    if (endpoint == nullptr) continue;
    tw_request request = TW_REQUEST_NONE;
    const uint32_t how = is_error(tw_endpoint_state(endpoint)) ? TW_CLOSE_FORCE : TW_CLOSE_GRACEFUL;
    if (tw_endpoint_close(endpoint, how, &request) == TW_IN_PROGRESS) closing.push_back(request);
  }
  const auto closed = [&] {
    std::erase_if(closing, [](tw_request request) { return tw_request_test(request) != TW_IN_PROGRESS; });
    return closing.empty();
  };
  (void)worker.wait_until(closed, kPatience);
}

}  // namespace thalweg::impl
