// SPDX-License-Identifier: Apache-2.0
#include "shared_window.hpp"

#include <cstring>

namespace perf {
namespace {

constexpr uint64_t kLimit = 20'000'000'000;  // also of every wait of device code

tw_status exchange(void* arg, const void* mine, size_t length, void* values) {
  Pair& p = *static_cast<Pair*>(arg);
  auto* all = static_cast<unsigned char*>(values);
  std::memcpy(all + static_cast<size_t>(p.rank) * length, mine, length);
  const tw_request r = p.post_receive(all + static_cast<size_t>(!p.rank) * length, length, kControlTag);
  p.send(mine, length, kControlTag);
  p.wait(r);
  return TW_OK;
}

}  // namespace

SharedWindow::SharedWindow(Pair& p, tw_memory* memory) {
  tw_window_options options = TW_WINDOW_OPTIONS_INIT;
  options.timeout_ns = kLimit;
  tw_endpoint* endpoints[2] = {nullptr, nullptr};
  endpoints[!p.rank] = p.endpoint;
  must(tw_window_create(p.worker, endpoints, 2, static_cast<uint32_t>(p.rank), memory, exchange, &p, &options, &window_),
       "tw_window_create");
}

thalweg::device::Window SharedWindow::bind(const std::string& place) const {
  tw_device_window bound{};
  must(tw_window_bind(window_, place.c_str(), &bound), "tw_window_bind");
  thalweg::device::Window as_seen{};
  static_assert(sizeof as_seen == sizeof bound);
  std::memcpy(&as_seen, &bound, sizeof bound);
  return as_seen;
}

}  // namespace perf
