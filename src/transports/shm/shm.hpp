// SPDX-License-Identifier: Apache-2.0
// The shm transport: workers of one machine.
#pragma once
#include <memory>

#include "transports/transport.hpp"

namespace thalweg::impl {

std::unique_ptr<Transport> make_shm_transport();

}  // namespace thalweg::impl
