// SPDX-License-Identifier: Apache-2.0
// Ranges of memory cut into blocks of one length, and the wire form of a key to them. A block is a number; its range gives
// its address.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "memory/registry.hpp"

namespace thalweg::impl {

struct BlockRange {
  uint64_t begin = 0;   // of its first block: an address (local), or an offset in the region (remote)
  uint64_t stride = 0;  // >= the block's length
  uint64_t count = 0;
  uint64_t first = 0;   // number of its first block
  uint32_t region = 0;  // remote, and in keys: which
};

/// The blocks of one side. Immutable once add() has been called for every range.
struct BlockSpace {
  static constexpr size_t kRanges = TW_BLOCK_RANGES_MAX;
  static constexpr uint64_t kBlocks = UINT32_MAX;

  uint64_t length = 0, count = 0;
  Device* device = nullptr;  // local blocks: all lie there; null: host memory
  bool pinned = false;       // ... all of it page-locked
  std::vector<BlockRange> ranges;

  /// Fits `limit` bytes that begin at offset 0? stride 0 means the block's length. An error has its text.
  Status add(BlockRange range, uint64_t offset, uint64_t limit);
  /// number < count. `hint` is the range found last: neighbours are mostly looked up one after the other.
  const BlockRange& range_of(uint64_t number, const BlockRange*& hint) const {
    if (hint == nullptr || number - hint->first >= hint->count) hint = search(number);
    return *hint;
  }
  static uint64_t place(const BlockRange& range, uint64_t number) {
    return range.begin + (number - range.first) * range.stride;
  }

 private:
  const BlockRange* search(uint64_t number) const;
};

/// An exported key of blocks: one key for each memory, and ranges whose `begin` counts from their key's begin.
struct BlockKey {
  std::vector<KeyBody> keys;
  BlockSpace space;
};
Status parse_block_key(const void* bytes, size_t length, BlockKey* out);  // fuzzed
size_t block_key_length(size_t keys, size_t ranges);
/// Room for block_key_length() bytes.
Status write_block_key(const BlockKey& key, void* bytes);

}  // namespace thalweg::impl

/// C handle of local blocks.
struct tw_blocks {
  thalweg::impl::BornHere born;
  std::shared_ptr<const thalweg::impl::BlockSpace> space;  // shared with operations under way
  std::vector<tw_memory*> memories;                        // of each range; null: an address
};
