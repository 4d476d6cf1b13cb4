// SPDX-License-Identifier: Apache-2.0
// Keys from anywhere: what parses is sane and round-trips, and no forged key resolves outside of its registration.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "../fixtures/rooms.hpp"
#include "memory/registry.hpp"

using namespace thalweg::impl;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

struct Fixture {
  Registry registry{42};
  std::byte memory[256] = {};
  KeyBody key{};
  Fixture() {
    tw_memory* handle = nullptr;
    require(registry.register_memory(memory, sizeof memory, TW_MEMORY_READ | TW_MEMORY_WRITE, &handle) == TW_OK);
    require(registry.export_range(handle, 32, 128, TW_MEMORY_READ, &key) == TW_OK);
  }
};

void resolve(Fixture& fixture, uint64_t rkey, const KeyBody& key) {
  const Registry::Reading reading(fixture.registry);
  Target target;
  const Status s =
      fixture.registry.resolve(reading, rkey, key.segment_offset, key.length, key.access & TW_MEMORY_READ, &target);
  if (s != TW_OK) return;
  require(target.address >= fixture.memory + 32 && target.address + key.length <= fixture.memory + 160);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Fixture fixture;
  KeyBody key{};
  uint8_t bytes[kKeyRoom];
  if (parse_key(data, size, &key) != TW_OK) {
    // The same bytes behind a good head, so that inputs reach the checks of fields.
    if (size != sizeof bytes) return 0;
    std::memcpy(bytes, data, size);
    std::memcpy(bytes, "TWK\1", 4);
    if (parse_key(bytes, size, &key) != TW_OK) return 0;
  }
  require(key.length > 0 && key.base + key.length >= key.base && key.rkey != 0 && key.kind < uint8_t(MemoryKind::count_));
  size_t length = sizeof bytes;
  KeyBody back{};
  require(write_key(key, bytes, &length) == TW_OK && length <= kKeyRoom);
  require(parse_key(bytes, length, &back) == TW_OK && std::memcmp(&key, &back, sizeof key) == 0);
  resolve(fixture, key.rkey, key);
  resolve(fixture, fixture.key.rkey, key);
  return 0;
}
