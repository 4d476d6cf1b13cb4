// SPDX-License-Identifier: Apache-2.0
// The wire form of an exported key: "TWK", a version byte, then the fields of KeyBody, little endian. A key's content is
// only a hint for the importer; the owner checks every access against its registry.
#include <cstring>

#include "memory/registry.hpp"

namespace thalweg::impl {
namespace {

constexpr char kMagic[3] = {'T', 'W', 'K'};
constexpr uint8_t kVersion = 1;
constexpr uint64_t kWord = sizeof(uint64_t);

struct Wire {
  char magic[3];
  uint8_t version;
  uint8_t kind, access;
  uint16_t reserved;
  uint32_t device, reserved2;
  uint64_t worker, incarnation, rkey, base, length, segment, segment_offset, check;
  uint8_t device_uuid[16];
};
static_assert(sizeof(Wire) == kKeySize);

bool sane(const Wire& wire) {
  constexpr uint64_t kMaxLength = uint64_t{1} << 62;
  return wire.kind < static_cast<uint8_t>(MemoryKind::count_) && (wire.access & ~(TW_MEMORY_ALL | kAccessSignal)) == 0 &&
         wire.access != 0 && wire.reserved == 0 && wire.reserved2 == 0 && wire.rkey != 0 && wire.length > 0 &&
         wire.length <= kMaxLength && wire.base + wire.length >= wire.base && wire.segment_offset <= kMaxLength;
}

/// Operations on words look at `base` for their alignment, and touch what lies at segment_offset of a segment, which begins at a page.
bool words_fit(const Wire& wire) {
  const bool signal = (wire.access & kAccessSignal) != 0;
  if (wire.segment == 0 || (!signal && (wire.access & TW_MEMORY_ATOMIC) == 0)) return true;
  return (wire.segment_offset ^ wire.base) % kWord == 0 && (!signal || wire.segment_offset % kWord == 0);
}

}  // namespace

Status parse_key(const void* bytes, size_t length, KeyBody* out) {
  Wire wire;
  if (bytes == nullptr || length != sizeof wire) {
    return fail(TW_ERR_INVALID, "a key has %zu bytes, not %zu; pass it on whole", sizeof wire, length);
  }
  std::memcpy(&wire, bytes, sizeof wire);
  if (std::memcmp(wire.magic, kMagic, sizeof kMagic) != 0) {
    return fail(TW_ERR_INVALID, "these bytes are not a key; pass on what tw_memory_export or tw_signal_export wrote");
  }
  if (wire.version != kVersion)
    return fail(TW_ERR_VERSION, "the key has version %u, this release knows %u", wire.version, kVersion);
  if (!sane(wire)) return fail(TW_ERR_INVALID, "the key is damaged; pass on what the export wrote unchanged");
  if (!words_fit(wire)) {
    return fail(
        TW_ERR_MISALIGNED,
        "the key's address and its place in the shared memory have words at different borders: it is damaged; pass on what "
        "the export wrote unchanged");
  }
  KeyBody key{};
  key.version = wire.version;
  key.kind = wire.kind;
  key.access = wire.access;
  key.device = wire.device;
  key.worker = wire.worker;
  key.incarnation = wire.incarnation;
  key.rkey = wire.rkey;
  key.base = wire.base;
  key.length = wire.length;
  key.segment = wire.segment;
  key.segment_offset = wire.segment_offset;
  key.check = wire.check;
  std::memcpy(key.device_uuid, wire.device_uuid, sizeof key.device_uuid);
  *out = key;
  return TW_OK;
}

Status write_key(const KeyBody& key, void* bytes, size_t* length) {
  const size_t capacity = *length;
  *length = sizeof(Wire);
  if (bytes == nullptr) return TW_OK;
  if (capacity < sizeof(Wire)) return fail(TW_ERR_TRUNCATED, "a key takes %zu bytes; ask with key NULL", sizeof(Wire));
  Wire wire{};
  std::memcpy(wire.magic, kMagic, sizeof kMagic);
  wire.version = kVersion;
  wire.kind = key.kind;
  wire.access = key.access;
  wire.device = key.device;
  wire.worker = key.worker;
  wire.incarnation = key.incarnation;
  wire.rkey = key.rkey;
  wire.base = key.base;
  wire.length = key.length;
  wire.segment = key.segment;
  wire.segment_offset = key.segment_offset;
  wire.check = key.check;
  std::memcpy(wire.device_uuid, key.device_uuid, sizeof wire.device_uuid);
  std::memcpy(bytes, &wire, sizeof wire);
  return TW_OK;
}

}  // namespace thalweg::impl
