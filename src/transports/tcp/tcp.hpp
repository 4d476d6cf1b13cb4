// SPDX-License-Identifier: Apache-2.0
// The tcp transport: connected stream sockets, on one machine and between machines.
#pragma once
#include <memory>

#include "transports/transport.hpp"

namespace thalweg::impl {

std::unique_ptr<Transport> make_tcp_transport();

}  // namespace thalweg::impl
