// SPDX-License-Identifier: Apache-2.0
#include "transports/transports.hpp"

#include "transports/self/self.hpp"
#include "transports/shm/shm.hpp"
#include "transports/tcp/tcp.hpp"

namespace thalweg::impl {

std::span<const TransportEntry> known_transports() {
  static constexpr TransportEntry kKnown[] = {
      {"self", make_self_transport}, {"shm", make_shm_transport}, {"tcp", make_tcp_transport}};
  return kKnown;
}

}  // namespace thalweg::impl
