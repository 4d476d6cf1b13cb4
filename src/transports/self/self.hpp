// SPDX-License-Identifier: Apache-2.0
// The self transport: a worker to itself. One link is both ends: what is sent is delivered by the next progress.
#pragma once
#include <memory>

#include "transports/transport.hpp"

namespace thalweg::impl {

std::unique_ptr<Transport> make_self_transport();

}  // namespace thalweg::impl
