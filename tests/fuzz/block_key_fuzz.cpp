// SPDX-License-Identifier: Apache-2.0
// Keys of blocks from anywhere: what parses keeps every block inside the range of its key, and round-trips.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../fixtures/rooms.hpp"
#include "memory/blocks.hpp"

using namespace thalweg::impl;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

/// A good key with one memory, of which the fuzzer's bytes replace the head's fields and the ranges.
std::vector<uint8_t> disguise(const uint8_t* data, size_t size) {
  constexpr size_t kHead = 24, kRange = 32;
  static Registry registry{42};
  static std::byte memory[4096];
  static KeyBody body = [] {
    tw_memory* handle = nullptr;
    KeyBody made{};
    require(registry.register_memory(memory, sizeof memory, TW_MEMORY_ALL, &handle) == TW_OK);
    require(registry.export_range(handle, 0, sizeof memory, TW_MEMORY_ALL, &made) == TW_OK);
    return made;
  }();
  if (size < 8 + kRange) return {};
  const uint32_t ranges = static_cast<uint32_t>((size - 8) / kRange), counts[3] = {1, ranges, 0};
  std::vector<uint8_t> key(kHead + kKeyRoom + ranges * kRange);
  std::memcpy(key.data(), "TWB\1", 4);
  std::memcpy(key.data() + 4, counts, sizeof counts);
  std::memcpy(key.data() + 16, data, 8);
  size_t length = kKeyRoom;
  require(write_key(body, key.data() + kHead, &length) == TW_OK);
  std::memcpy(key.data() + kHead + kKeyRoom, data + 8, ranges * kRange);
  return key;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  BlockKey key;
  if (parse_block_key(data, size, &key) != TW_OK) {
    const std::vector<uint8_t> good = disguise(data, size);
    if (parse_block_key(good.data(), good.size(), &key) != TW_OK) return 0;
  }
  uint64_t first = 0;
  for (const BlockRange& range : key.space.ranges) {
    require(range.first == first && range.count > 0 && range.region < key.keys.size());
    const uint64_t last = BlockSpace::place(range, range.first + range.count - 1);
    require(last >= range.begin && last + key.space.length <= key.keys[range.region].length);
    first += range.count;
  }
  require(first == key.space.count && first <= BlockSpace::kBlocks);
  std::vector<uint8_t> wire(block_key_length(key.keys.size(), key.space.ranges.size()));
  require(write_block_key(key, wire.data()) == TW_OK);
  BlockKey back;
  require(parse_block_key(wire.data(), wire.size(), &back) == TW_OK && back.space.count == key.space.count);
  return 0;
}
