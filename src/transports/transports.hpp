// SPDX-License-Identifier: Apache-2.0
// The transports of this build: the one list of them. A further one is a folder, with a line in transports.cpp.
#pragma once
#include <memory>
#include <span>

#include "transports/transport.hpp"

namespace thalweg::impl {

struct TransportEntry {
  const char* name;
  std::unique_ptr<Transport> (*make)();
};
/// In the order in which they are preferred.
std::span<const TransportEntry> known_transports();

}  // namespace thalweg::impl
