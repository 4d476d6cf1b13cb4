// SPDX-License-Identifier: Apache-2.0
// Programs on any back end, on host queues and in the calling thread: every kind of step, every layout.
#include "tests/gpu/program_tools.hpp"

#include <map>

#include "tests/gpu/contract.hpp"

namespace thalweg::impl::contract {
namespace {

using namespace programs;

class Programs : public Contract, public ::testing::WithParamInterface<Trigger> {
 protected:
  void SetUp() override {
    Contract::SetUp();
    if (GetParam() == Trigger::device && !kernels()) GTEST_SKIP() << last_error();
    for (Device* const one : devices) {
      if (one != device && one->peer(device->uuid()).access && device->peer(one->uuid()).access) other = one;
    }
    if (other == nullptr) other = device;
  }
  Device* other = nullptr;  // with access in both directions
};

constexpr size_t kArea = 70000;

/// Random sides of `bytes` bytes within an area of kArea bytes, no byte twice.
Side random_side(Site& site, uint64_t area, uint64_t bytes) {
  const uint64_t shift = 64 + rng()() % 3 * 4 + rng()() % 2;
  switch (rng()() % 5) {
    case 0:
      return at(area + shift);
    case 1: {  // rows
      const uint64_t block = 1 + rng()() % 200;
      const auto pitch = static_cast<long long>(std::min<uint64_t>(block + rng()() % 9, (kArea - 200) / (bytes / block + 1)));
      if (pitch < static_cast<long long>(block)) return at(area + shift);
      return {area + shift, block, {0, 0}, {pitch, 0, 0}, nullptr, 0};
    }
    case 2: {  // words in three dimensions
      const long long pitch = 8 + 8 * static_cast<long long>(rng()() % 2);
      return {area + 64, 8, {5, 3}, {pitch, 5 * pitch + 8, 3 * (5 * pitch + 8) + 16}, nullptr, 0};
    }
    case 3: {  // downwards
      const uint64_t block = 96, rows = bytes / block + 1;
      return {area + 64 + rows * 100, block, {0, 0}, {-100, 0, 0}, nullptr, 0};
    }
    default: {  // a list, last pieces first
      std::vector<device::Piece> pieces;
      uint64_t offset = 0, end = area + kArea - 64;
      while (offset < bytes) {
        const uint64_t length = std::min<uint64_t>(bytes - offset, 1 + rng()() % 999);
        end -= length + rng()() % 3;
        pieces.push_back({offset, end});
        offset += length;
      }
      const uint64_t list = site.allocate(pieces.size() * sizeof(device::Piece));
      for (size_t i = 0; i < pieces.size(); ++i) site.put(list + i * sizeof(device::Piece), pieces[i]);
      return {0, 0, {0, 0}, {0, 0, 0}, pointer<device::Piece>(list), pieces.size()};
    }
  }
}

/// Where the packed byte `offset` is.
uint64_t address_of(Site& site, const Side& side, uint64_t offset) {
  if (side.pieces != nullptr) {
    const Bytes list = site.read(reinterpret_cast<uintptr_t>(side.pieces), side.piece_count * sizeof(device::Piece));
    std::vector<device::Piece> pieces(side.piece_count);
    std::memcpy(pieces.data(), list.data(), list.size());
    size_t i = pieces.size() - 1;
    while (pieces[i].offset > offset) --i;
    return pieces[i].address + offset - pieces[i].offset;
  }
  if (side.block == ~0ull) return side.base + offset;
  uint64_t index = offset / side.block, address = side.base + offset % side.block;
  for (int d = 0; d < 3; ++d) {
    const uint64_t count = d < 2 ? side.count[d] : 0;
    address += (count == 0 ? index : index % count) * static_cast<uint64_t>(side.stride[d]);
    index = count == 0 ? 0 : index / count;
  }
  return address;
}

/// All addresses at once: asking for a list costs a copy.
std::vector<uint64_t> addresses(Site& site, const Side& side, uint64_t bytes) {
  std::vector<uint64_t> all(bytes);
  if (side.pieces == nullptr) {
    for (uint64_t i = 0; i < bytes; ++i) all[i] = address_of(site, side, i);
    return all;
  }
  const Bytes list = site.read(reinterpret_cast<uintptr_t>(side.pieces), side.piece_count * sizeof(device::Piece));
  std::vector<device::Piece> pieces(side.piece_count);
  std::memcpy(pieces.data(), list.data(), list.size());
  for (size_t p = 0; p < pieces.size(); ++p) {
    const uint64_t end = p + 1 < pieces.size() ? pieces[p + 1].offset : bytes;
    for (uint64_t i = pieces[p].offset; i < end; ++i) all[i] = pieces[p].address + i - pieces[p].offset;
  }
  return all;
}

TEST_P(Programs, CopiesOfEveryLayoutComeBeforeTheirSignals) {
  Site site(GetParam(), device, ordinary), target(GetParam(), other, ordinary);
  const uint64_t from = site.allocate(kArea), to = target.allocate(kArea), word = target.allocate(8);
  site.admit(to, kArea);
  site.admit(word, 8);
  for (unsigned turn = 0; turn < 60; ++turn) {
    const uint64_t bytes = turn % 4 == 0 ? 8 * (1 + rng()() % 900) : 1 + rng()() % 20000;
    const Bytes payload = site.fill(from, kArea);
    Bytes expected = target.fill(to, kArea);
    const Side source = random_side(site, from, bytes), sink = random_side(site, to, bytes);
    const std::vector<uint64_t> reads = addresses(site, source, bytes), writes = addresses(site, sink, bytes);
    for (uint64_t i = 0; i < bytes; ++i) expected[writes[i] - to] = payload[reads[i] - from];
    target.put(word, uint64_t{0});
    Written program(site, turn % 3 == 0 ? 0 : 1u << turn % 5);
    program.copy(sink, source, bytes, {pointer<device::u64>(word), turn + 1, 0, turn % 2});
    program.prepare();
    program.trigger();
    program.finish();
    program.expect_good();
    ASSERT_EQ(target.word(word), turn + 1);
    ASSERT_EQ(target.read(to, kArea), expected) << bytes << " bytes, block " << source.block << " to " << sink.block;
  }
}

TEST_P(Programs, ChannelsCarryTheNthSendToTheNthReceive) {
  Site a(GetParam(), device, ordinary), b(GetParam(), other, ordinary);
  constexpr size_t kLength = 5003;
  const uint64_t from = a.allocate(kLength), first = b.allocate(kArea), second = b.allocate(kLength + 64);
  a.admit(first, kArea);
  a.admit(second, kLength + 64);
  const Side rows{first + 100, 50, {0, 0}, {61, 0, 0}, nullptr, 0};
  Channel channel(a, b, {{rows, kLength}, {at(second + 3), kLength + 1}});
  Written sends(a, 4), receives(b);
  sends.send(channel.send, at(from), kLength);
  sends.send(channel.send, at(from + 1), kLength - 1, {0});
  receives.post(channel.recv, 0);
  receives.take(channel.recv);
  receives.post(channel.recv, 1);
  receives.take(channel.recv);
  sends.prepare();
  receives.prepare();
  for (unsigned turn = 0; turn < 100; ++turn) {
    const Bytes payload = a.fill(from, kLength);
    Bytes wanted = b.fill(first, kArea), after = b.fill(second, kLength + 64);
    for (size_t i = 0; i < kLength; ++i) wanted[100 + i / 50 * 61 + i % 50] = payload[i];
    std::copy(payload.begin() + 1, payload.end(), after.begin() + 3);
    (turn % 2 == 0 ? sends : receives).trigger();
    (turn % 2 == 0 ? receives : sends).trigger();
    while (sends.advance() == TW_IN_PROGRESS) receives.advance();
    receives.finish();
    sends.finish();
    sends.expect_good();
    receives.expect_good();
    ASSERT_EQ(b.read(first, kArea), wanted) << turn;
    ASSERT_EQ(b.read(second, kLength + 64), after) << turn;
  }
}

INSTANTIATE_TEST_SUITE_P(Triggers, Programs, ::testing::Values(Trigger::device, Trigger::host_queue, Trigger::caller),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace thalweg::impl::contract
