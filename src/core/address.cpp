// SPDX-License-Identifier: Apache-2.0
// Writing and parsing worker addresses.
#include "core/address.hpp"

#include <cstring>

#include "core/wire_bytes.hpp"

namespace thalweg::impl {
namespace {

constexpr uint32_t kMagic = 0x01415754;  // "TWA" and the version
constexpr size_t kFixed = 44;

uint32_t checksum(const std::byte* bytes, size_t length) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < length; ++i) hash = (hash ^ static_cast<uint8_t>(bytes[i])) * 16777619u;
  return hash;
}

}  // namespace

Status write_address(const WorkerAddress& address, void* bytes, size_t* length) {
  ByteWriter body;
  body.u64(address.worker);
  body.u64(address.incarnation);
  body.u64(address.host);
  body.u64(address.token);
  body.u16(address.port);
  const size_t count_at = body.bytes.size();
  body.u8(0);
  body.u8(0);
  uint8_t count = 0;
  for (const IpAddress& ip : address.addresses) {
    if (8 + body.bytes.size() + 1 + ip.length > kAddressMax) break;
    body.u8(ip.length == 4 ? 4 : 6);
    body.raw(ip.bytes.data(), ip.length);
    ++count;
  }
  body.bytes[count_at] = std::byte{count};
  const size_t need = 8 + body.bytes.size();
  const size_t capacity = *length;
  *length = need;
  if (bytes == nullptr) return TW_OK;
  if (capacity < need) {
    return fail(TW_ERR_INVALID, "a worker address needs %zu bytes, %zu were given: ask with address NULL", need, capacity);
  }
  const uint32_t head[2] = {kMagic, checksum(body.bytes.data(), body.bytes.size())};
  std::memcpy(bytes, head, 8);
  std::memcpy(static_cast<std::byte*>(bytes) + 8, body.bytes.data(), body.bytes.size());
  return TW_OK;
}

Status parse_address(const void* bytes, size_t length, WorkerAddress* out) {
  if (bytes == nullptr || length < kFixed || length > kAddressMax) {
    return fail(TW_ERR_INVALID, "not a worker address: %zu bytes, expected %zu to %zu", length, kFixed, kAddressMax);
  }
  ByteReader in(static_cast<const std::byte*>(bytes), length);
  const uint32_t magic = in.u32();
  if ((magic & 0xffffff) != (kMagic & 0xffffff)) return fail(TW_ERR_INVALID, "not a worker address: wrong magic number");
  if (magic != kMagic) {
    return fail(TW_ERR_VERSION, "worker address of version %u, this library reads version %u: use one release in all processes",
                magic >> 24, kMagic >> 24);
  }
  if (in.u32() != checksum(static_cast<const std::byte*>(bytes) + 8, length - 8)) {
    return fail(TW_ERR_INVALID, "worker address is damaged: its checksum does not fit (was it cut or re-encoded on the way?)");
  }
  WorkerAddress result;
  result.worker = in.u64();
  result.incarnation = in.u64();
  result.host = in.u64();
  result.token = in.u64();
  result.port = in.u16();
  const unsigned count = in.u8();
  in.u8();
  for (unsigned i = 0; i < count && in.good(); ++i) {
    const unsigned family = in.u8();
    if (family != 4 && family != 6) return fail(TW_ERR_INVALID, "worker address names an unknown address family %u", family);
    IpAddress ip;
    ip.length = family == 4 ? 4 : 16;
    in.raw(ip.bytes.data(), ip.length);
    result.addresses.push_back(ip);
  }
  if (!in.done() || result.worker == 0) return fail(TW_ERR_INVALID, "worker address is cut short or has bytes behind its end");
  *out = std::move(result);
  return TW_OK;
}

}  // namespace thalweg::impl
