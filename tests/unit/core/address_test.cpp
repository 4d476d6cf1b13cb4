// SPDX-License-Identifier: Apache-2.0
// Worker addresses: there and back, at the size limit, and every damage refused.
#include "core/address.hpp"
#include "../../fixtures/rooms.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace thalweg::impl {
namespace {

std::mt19937_64& generator() {
  static std::mt19937_64 made(std::random_device{}());
  return made;
}

WorkerAddress random_address(size_t v4, size_t v6) {
  WorkerAddress address;
  address.worker = generator()() | 1;
  address.incarnation = generator()();
  address.host = generator()();
  address.token = generator()();
  address.port = static_cast<uint16_t>(generator()());
  for (size_t i = 0; i < v4 + v6; ++i) {
    IpAddress ip;
    ip.length = i < v4 ? 4 : 16;
    for (size_t b = 0; b < ip.length; ++b) ip.bytes[b] = static_cast<uint8_t>(generator()());
    address.addresses.push_back(ip);
  }
  return address;
}

TEST(Address, ComesBackWhole) {
  for (const auto& [v4, v6] : {std::pair{0, 0}, {1, 0}, {0, 1}, {3, 2}, {16, 0}, {0, 4}}) {
    const WorkerAddress out = random_address(size_t(v4), size_t(v6));
    std::byte bytes[kAddressRoom];
    size_t length = sizeof bytes;
    ASSERT_EQ(write_address(out, bytes, &length), TW_OK);
    ASSERT_LE(length, size_t{kAddressRoom});
    WorkerAddress in;
    ASSERT_EQ(parse_address(bytes, length, &in), TW_OK) << last_error();
    EXPECT_EQ(in.worker, out.worker);
    EXPECT_EQ(in.incarnation, out.incarnation);
    EXPECT_EQ(in.host, out.host);
    EXPECT_EQ(in.token, out.token);
    EXPECT_EQ(in.port, out.port);
    EXPECT_EQ(in.addresses, out.addresses);
  }
}

TEST(Address, TakesAsManyAddressesAsFit) {
  const WorkerAddress out = random_address(2, 40);
  std::byte bytes[kAddressRoom];
  size_t length = sizeof bytes;
  ASSERT_EQ(write_address(out, bytes, &length), TW_OK);
  WorkerAddress in;
  ASSERT_EQ(parse_address(bytes, length, &in), TW_OK);
  ASSERT_GE(in.addresses.size(), 5u);
  for (size_t i = 0; i < in.addresses.size(); ++i) EXPECT_EQ(in.addresses[i], out.addresses[i]);
}

TEST(Address, ShortBufferIsRefusedAndLeftAlone) {
  const WorkerAddress out = random_address(2, 2);
  size_t need = 0;
  ASSERT_EQ(write_address(out, nullptr, &need), TW_OK);
  std::vector<std::byte> bytes(need, std::byte{0x5a});
  size_t length = need - 1;
  EXPECT_EQ(write_address(out, bytes.data(), &length), TW_ERR_INVALID);
  EXPECT_EQ(length, need);
  for (std::byte byte : bytes) EXPECT_EQ(byte, std::byte{0x5a});
}

TEST(Address, EveryFlippedBitAndEveryCutIsRefused) {
  const WorkerAddress out = random_address(2, 2);
  std::byte bytes[kAddressRoom];
  size_t length = sizeof bytes;
  ASSERT_EQ(write_address(out, bytes, &length), TW_OK);
  WorkerAddress in;
  for (size_t bit = 0; bit < length * 8; ++bit) {
    std::byte damaged[kAddressRoom];
    std::memcpy(damaged, bytes, length);
    damaged[bit / 8] ^= std::byte(1u << (bit % 8));
    EXPECT_NE(parse_address(damaged, length, &in), TW_OK) << "bit " << bit;
  }
  for (size_t cut = 0; cut < length; ++cut) EXPECT_NE(parse_address(bytes, cut, &in), TW_OK) << cut;
  EXPECT_EQ(parse_address(nullptr, 64, &in), TW_ERR_INVALID);
}

TEST(Address, AnotherVersionIsNamed) {
  const WorkerAddress out = random_address(1, 0);
  std::byte bytes[kAddressRoom];
  size_t length = sizeof bytes;
  ASSERT_EQ(write_address(out, bytes, &length), TW_OK);
  bytes[3] = std::byte{9};
  WorkerAddress in;
  EXPECT_EQ(parse_address(bytes, length, &in), TW_ERR_VERSION);
}

}  // namespace
}  // namespace thalweg::impl
