// SPDX-License-Identifier: Apache-2.0
// Worker addresses and connection set-up messages from outside: parsed or refused, and what was parsed is written back the same.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "../fixtures/rooms.hpp"
#include "core/address.hpp"
#include "core/setup_wire.hpp"

using namespace thalweg::impl;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  WorkerAddress address;
  if (parse_address(data, size, &address) == TW_OK) {
    std::byte again[kAddressRoom];
    size_t length = sizeof again;
    if (write_address(address, again, &length) != TW_OK || length != size) abort();
    WorkerAddress same;
    if (parse_address(again, length, &same) != TW_OK || same.addresses != address.addresses) abort();
  }
  // The checksum keeps random bytes out: with a right one the rest is reached too.
  if (size >= 44 && size <= kAddressRoom) {
    uint8_t fixed[kAddressRoom];
    std::memcpy(fixed, data, size);
    uint32_t hash = 2166136261u;
    for (size_t i = 8; i < size; ++i) hash = (hash ^ fixed[i]) * 16777619u;
    std::memcpy(fixed, "TWA\x01", 4);
    std::memcpy(fixed + 4, &hash, 4);
    parse_address(fixed, size, &address);
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  SetupChannel::Message message;
  message.bytes.assign(bytes, bytes + size);
  ConnectMessage connect;
  parse_connect({}, std::move(message), &connect);
  message.bytes.assign(bytes, bytes + size);
  AcceptMessage accept;
  parse_accept({}, std::move(message), 7, &accept);
  message.bytes.assign(bytes, bytes + size);
  RejectMessage reject;
  parse_reject(std::move(message), &reject);
  return 0;
}
