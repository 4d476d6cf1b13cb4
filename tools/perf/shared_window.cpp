// SPDX-License-Identifier: Apache-2.0
#include "shared_window.hpp"

#include <cstring>

namespace perf {
namespace {

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

SharedWindow::SharedWindow(Pair& p, const Buffers& buffers) {
  tw_endpoint* endpoints[2] = {nullptr, nullptr};
  endpoints[!p.rank] = p.endpoint;
  must(tw_window_create(p.worker, endpoints, static_cast<uint32_t>(p.rank), 2, buffers.memory(), nullptr, exchange, &p,
                        &window_),
       "tw_window_create");
}

}  // namespace perf
