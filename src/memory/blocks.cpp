// SPDX-License-Identifier: Apache-2.0
// Block ranges and their key: "TWB", a version byte, the counts, the keys as tw_memory_export writes them, the ranges.
// Little endian. As with other keys, what it says is a hint for the importer: the owner checks every access.
#include "memory/blocks.hpp"

#include <algorithm>
#include <cstring>

namespace thalweg::impl {
namespace {

constexpr char kMagic[3] = {'T', 'W', 'B'};
constexpr uint8_t kVersion = 1;

struct WireHead {
  char magic[3];
  uint8_t version;
  uint32_t keys, ranges, reserved;
  uint64_t length;
};
struct WireRange {
  uint32_t key, reserved;
  uint64_t offset, stride, count;
};
static_assert(sizeof(WireHead) == 24 && sizeof(WireRange) == 32);

Status refuse(const char* what) {
  return fail(TW_ERR_INVALID, "the key of blocks %s; pass on what tw_blocks_export wrote", what);
}

Status parse_keys(const std::byte* bytes, uint32_t count, BlockKey* out) {
  for (uint32_t i = 0; i < count; ++i) {
    KeyBody key{};
    if (Status s = parse_key(bytes + size_t{i} * kKeySize, kKeySize, &key); is_error(s)) return s;
    if ((key.access & kAccessSignal) != 0) return refuse("names a signal");
    out->keys.push_back(key);
  }
  return TW_OK;
}

Status parse_ranges(const std::byte* bytes, uint32_t count, BlockKey* out) {
  for (uint32_t i = 0; i < count; ++i) {
    WireRange wire;
    std::memcpy(&wire, bytes + size_t{i} * sizeof wire, sizeof wire);
    if (wire.key >= out->keys.size() || wire.reserved != 0 || wire.stride == 0) return refuse("is damaged");
    BlockRange range;
    range.stride = wire.stride;
    range.count = wire.count;
    range.region = wire.key;
    if (Status s = out->space.add(range, wire.offset, out->keys[wire.key].length); is_error(s)) return s;
  }
  return TW_OK;
}

}  // namespace

Status BlockSpace::add(BlockRange range, uint64_t offset, uint64_t limit) {
  if (ranges.size() == kRanges) return fail(TW_ERR_LIMIT, "more than %zu ranges; prepare several sets of blocks", kRanges);
  if (range.stride == 0) range.stride = length;
  if (length == 0 || range.count == 0) return fail(TW_ERR_INVALID, "blocks need a length, and each range at least one block");
  if (range.stride < length) {
    return fail(TW_ERR_INVALID, "blocks of %llu bytes overlap at a stride of %llu; give at least the block's length",
                static_cast<unsigned long long>(length), static_cast<unsigned long long>(range.stride));
  }
  if (range.count > kBlocks - count) return fail(TW_ERR_LIMIT, "2^32 blocks or more; prepare several sets of blocks");
  const unsigned __int128 end = static_cast<unsigned __int128>(range.count - 1) * range.stride + length + offset;
  if (end > limit) {
    return fail(TW_ERR_OUT_OF_BOUNDS, "range %zu reaches outside its memory of %llu bytes", ranges.size(),
                static_cast<unsigned long long>(limit));
  }
  range.begin += offset;
  range.first = count;
  count += range.count;
  ranges.push_back(range);
  return TW_OK;
}

const BlockRange* BlockSpace::search(uint64_t number) const {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), number, [](uint64_t n, const BlockRange& r) { return n < r.first; });
  return &*(after - 1);
}

size_t block_key_length(size_t keys, size_t ranges) { return sizeof(WireHead) + keys * kKeySize + ranges * sizeof(WireRange); }

Status parse_block_key(const void* bytes, size_t length, BlockKey* out) {
  WireHead head;
  if (bytes == nullptr || length < sizeof head) return refuse("is too short");
  std::memcpy(&head, bytes, sizeof head);
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0) return refuse("is something else");
  if (head.version != kVersion) {
    return fail(TW_ERR_VERSION, "the key of blocks has version %u, this release knows %u", head.version, kVersion);
  }
  if (head.ranges == 0 || head.ranges > BlockSpace::kRanges || head.keys == 0 || head.keys > head.ranges ||
      head.reserved != 0 || length != block_key_length(head.keys, head.ranges)) {
    return refuse("is damaged or cut");
  }
  BlockKey key;
  key.space.length = head.length;
  const std::byte* at = static_cast<const std::byte*>(bytes) + sizeof head;
  if (Status s = parse_keys(at, head.keys, &key); is_error(s)) return s;
  if (Status s = parse_ranges(at + size_t{head.keys} * kKeySize, head.ranges, &key); is_error(s)) return s;
  *out = std::move(key);
  return TW_OK;
}

Status write_block_key(const BlockKey& key, void* bytes) {
  WireHead head{};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.version = kVersion;
  head.keys = static_cast<uint32_t>(key.keys.size());
  head.ranges = static_cast<uint32_t>(key.space.ranges.size());
  head.length = key.space.length;
  std::memcpy(bytes, &head, sizeof head);
  std::byte* at = static_cast<std::byte*>(bytes) + sizeof head;
  for (const KeyBody& body : key.keys) {
    size_t room = kKeySize;
    if (Status s = write_key(body, at, &room); is_error(s)) return s;
    at += kKeySize;
  }
  for (const BlockRange& range : key.space.ranges) {
    const WireRange wire{range.region, 0, range.begin, range.stride, range.count};
    std::memcpy(at, &wire, sizeof wire);
    at += sizeof wire;
  }
  return TW_OK;
}

}  // namespace thalweg::impl
