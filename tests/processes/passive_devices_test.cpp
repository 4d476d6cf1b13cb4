// SPDX-License-Identifier: Apache-2.0
// Puts from two devices end in any order. A flush behind them is over when both are, and asks nothing of a target on the same machine:
// after it is connected, that makes no call of the library until the flush has said that everything is there.
#include <gtest/gtest.h>
#include <thalweg/places.h>

#include <cstdlib>

#include "../fixtures/rooms.hpp"
#include "process.hpp"

using namespace thalweg::test;

namespace {

// For this process and those that it starts.
[[maybe_unused]] const int kDevices = setenv("THALWEG_EMULATED", "devices=2", 1);
constexpr size_t kLong = 3'000'001, kShort = 9, kArea = kLong + kShort + 5;
constexpr uint64_t kLimit = 20'000'000'000;

tw_memory* memory_at(tw_context* context, const std::string& place, size_t length) {
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.place = place.c_str();
  tw_memory* memory = nullptr;
  EXPECT_EQ(tw_memory_allocate(context, length, &options, &memory), TW_OK) << tw_last_error();
  return memory;
}

void store(tw_context* context, tw_memory* memory, const std::string& bytes) {
  EXPECT_EQ(tw_memory_copy(context, tw_memory_address(memory), bytes.data(), bytes.size()), TW_OK) << tw_last_error();
}

/// Is told a place; listens; says its port and the key of memory there. Connected, it waits for a message on its pipe, and says what the
/// memory holds.
const Role kTarget("passive target of devices", [](Pipe& pipe) {
  Side side;
  tw_listener* listener = nullptr;
  if (tw_listen(side.worker, "127.0.0.1:0", nullptr, &listener) != TW_OK) return 1;
  tw_memory* memory = memory_at(side.context, pipe.receive(), kArea);
  store(side.context, memory, std::string(kArea, '\x5a'));
  char key[kKeyRoom];
  size_t length = sizeof key;
  if (tw_memory_export(memory, key, &length) != TW_OK) return 2;
  pipe.send(std::to_string(tw_listener_port(listener)));
  pipe.send({key, length});
  tw_connection_request* request = nullptr;
  if (!progress_until(side.worker, [&] { return tw_listener_next(listener, &request) == TW_OK; })) return 3;
  tw_endpoint* endpoint = nullptr;
  if (tw_accept(request, nullptr, &endpoint) != TW_OK) return 4;
  if (!progress_until(side.worker, [&] { return tw_endpoint_state(endpoint) == TW_OK; })) return 5;
  pipe.send("passive");
  std::string bytes(kArea, '\0');
  while (pipe.receive() == "show") {
    if (tw_memory_copy(side.context, bytes.data(), tw_memory_address(memory), kArea) != TW_OK) return 6;
    for (size_t at = 0; at < kArea; at += 8000) pipe.send(bytes.substr(at, 8000));
  }
  return tw_memory_release(memory) == TW_OK ? 0 : 7;
});

class PassiveDevices : public testing::TestWithParam<const char*> {
 protected:
  static std::string shown(Child& child) {
    child.send("show");
    std::string bytes;
    while (bytes.size() < kArea) {
      const std::string piece = child.receive();
      if (piece.empty()) return bytes;
      bytes += piece;
    }
    return bytes;
  }
};

TEST_P(PassiveDevices, AFlushNeedsNoCallWhateverEndsFirst) {
  Child child("passive target of devices");
  child.send(GetParam());
  Side side;
  const std::string at = "127.0.0.1:" + child.receive(), key = child.receive();
  tw_endpoint* endpoint = nullptr;
  ASSERT_EQ(tw_connect_to(side.worker, at.c_str(), nullptr, &endpoint), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_endpoint_wait(endpoint, kLimit), TW_OK) << tw_last_error();
  ASSERT_EQ(child.receive(), "passive");
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_import(endpoint, key.data(), key.size(), &remote), TW_OK);
  tw_memory *first = memory_at(side.context, "emulated:0", kLong), *second = memory_at(side.context, "emulated:1", kShort);
  for (int round = 0; round < 8; ++round) {
    const std::string long_bytes = random_bytes(kLong), short_bytes = random_bytes(kShort);
    store(side.context, first, long_bytes);
    store(side.context, second, short_bytes);
    tw_request requests[3] = {};
    const tw_status started[3] = {
        tw_put(endpoint, tw_memory_address(first), kLong, remote, 2, nullptr, &requests[0]),
        tw_put(endpoint, tw_memory_address(second), kShort, remote, kLong + 3, nullptr, &requests[1]),
        tw_endpoint_flush(endpoint, &requests[2]),
    };
    for (int i = 2; i >= 0; --i) ASSERT_EQ(finish(started[i], requests[i]), TW_OK) << i << ": " << tw_last_error();
    ASSERT_TRUE(shown(child) == "\x5a\x5a" + long_bytes + "\x5a" + short_bytes + "\x5a\x5a");
  }
  child.send("end");
  EXPECT_EQ(child.join(), 0);
  tw_remote_memory_release(remote);
  EXPECT_EQ(tw_memory_release(first), TW_OK);
  EXPECT_EQ(tw_memory_release(second), TW_OK);
}

/// A device's own memory and a peer's library memory, which devices copy to and from directly once it is mapped and pinned here.
class DevicesAtHostMemory : public PassiveDevices {
 protected:
  DevicesAtHostMemory() : child("passive target of devices") {
    child.send("host");
    const std::string at = "127.0.0.1:" + child.receive(), key = child.receive();
    EXPECT_EQ(tw_connect_to(side.worker, at.c_str(), nullptr, &endpoint), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_endpoint_wait(endpoint, kLimit), TW_OK) << tw_last_error();
    EXPECT_EQ(child.receive(), "passive");
    EXPECT_EQ(tw_memory_import(endpoint, key.data(), key.size(), &remote), TW_OK) << tw_last_error();
    here = memory_at(side.context, "emulated:0", kArea);
  }
  ~DevicesAtHostMemory() override {
    tw_remote_memory_release(remote);
    EXPECT_EQ(tw_memory_release(here), TW_OK);
  }
  /// The way that explain names for a put or get between `here` and the peer's memory.
  std::string way(const char* verb) {
    char text[4096] = {};
    size_t size = sizeof text;
    EXPECT_EQ(tw_endpoint_explain_buffer(endpoint, verb, tw_memory_address(here), kLong, remote, nullptr, text, &size), TW_OK)
        << tw_last_error();
    const std::string said = text;
    const size_t chosen = said.rfind("chosen: ");
    return chosen == std::string::npos ? said : said.substr(chosen + 8, said.find('\n', chosen) - chosen - 8);
  }
  tw_status flushed(tw_status put, tw_request request) {
    const tw_status status = finish(put, request);
    if (status != TW_OK) return status;
    tw_request flush = 0;
    const tw_status started = tw_endpoint_flush(endpoint, &flush);
    return finish(started, flush);
  }
  tw_status put(size_t from, size_t length, size_t to) {
    tw_request request = 0;
    const tw_status status =
        tw_put(endpoint, static_cast<char*>(tw_memory_address(here)) + from, length, remote, to, nullptr, &request);
    return flushed(status, request);
  }
  void relay_until_pinned() {
    const std::string bytes = random_bytes(kArea);
    store(side.context, here, bytes);
    for (int i = 0; i < 6 && way("put") != "direct"; ++i) ASSERT_EQ(put(0, kLong, 0), TW_OK) << tw_last_error();
    ASSERT_EQ(put(0, kArea, 0), TW_OK) << tw_last_error();
    ASSERT_EQ(way("put"), "direct");
    ASSERT_EQ(way("get"), "direct");
    ASSERT_TRUE(shown(child) == bytes);
  }
  Child child;
  Side side;
  tw_endpoint* endpoint = nullptr;
  tw_remote_memory* remote = nullptr;
  tw_memory* here = nullptr;
};

TEST_F(DevicesAtHostMemory, ItIsPinnedWhenAsManyBytesWereRelayedAndHoldsWhatWasPut) {
  EXPECT_EQ(way("put"), "relay");
  std::string there(kArea, '\x5a');
  bool relayed = false, direct = false;
  for (int round = 0; round < 9; ++round) {
    const std::string bytes = random_bytes(kArea);
    store(side.context, here, bytes);
    const size_t length = round % 3 == 0 ? kLong - 13 * round : 4095 + round, from = round % 4, to = 7 + round;
    (way("put") == "direct" ? direct : relayed) = true;
    ASSERT_EQ(put(from, length, to), TW_OK) << tw_last_error();
    there.replace(to, length, bytes, from, length);
    ASSERT_TRUE(shown(child) == there) << "round " << round;
    // And back, to another place of the device.
    std::string got(kArea, '\0');
    tw_request request = 0;
    const tw_status started =
        tw_get(endpoint, static_cast<char*>(tw_memory_address(here)) + 3, length, remote, to, nullptr, &request);
    ASSERT_EQ(finish(started, request), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_memory_copy(side.context, got.data(), tw_memory_address(here), kArea), TW_OK);
    std::string expected = bytes;
    expected.replace(3, length, bytes, from, length);
    ASSERT_TRUE(got == expected) << "round " << round;
  }
  EXPECT_TRUE(relayed && direct);
  child.send("end");
  EXPECT_EQ(child.join(), 0);
}

TEST_F(DevicesAtHostMemory, LayoutsOnBothSides) {
  relay_until_pinned();
  std::string there = shown(child);
  constexpr size_t kBlock = 17, kRows = 301, kRow = 29, kColumn = 40;
  const uint64_t count = kRows;
  const int64_t row = kRow, column = kColumn;
  tw_op_options options = TW_OP_OPTIONS_INIT;
  tw_layout *packed = nullptr, *spread = nullptr;
  ASSERT_EQ(tw_layout_strided(1, kBlock, &count, &row, &packed), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_layout_strided(1, kBlock, &count, &column, &spread), TW_OK) << tw_last_error();
  options.layout = packed;
  options.remote_layout = spread;
  const std::string bytes = random_bytes(kArea);
  store(side.context, here, bytes);
  tw_request request = 0;
  const tw_status started =
      tw_put(endpoint, static_cast<char*>(tw_memory_address(here)) + 5, kBlock * kRows, remote, 11, &options, &request);
  ASSERT_EQ(flushed(started, request), TW_OK) << tw_last_error();
  for (size_t i = 0; i < kRows; ++i) there.replace(11 + i * kColumn, kBlock, bytes, 5 + i * kRow, kBlock);
  EXPECT_TRUE(shown(child) == there);
  child.send("end");
  EXPECT_EQ(child.join(), 0);
  tw_layout_destroy(packed);
  tw_layout_destroy(spread);
}

TEST_F(DevicesAtHostMemory, AReleaseByTheOwnerEndsIt) {
  relay_until_pinned();
  child.send("end");
  EXPECT_EQ(child.join(), 0);
  const uint64_t from = now_ns();
  tw_status status = TW_OK;
  while (status == TW_OK && now_ns() - from < kLimit) status = put(1, kLong, 2);
  EXPECT_TRUE(status == TW_ERR_PEER_LOST || status == TW_ERR_STALE || status == TW_ERR_CLOSED) << status;
}

TEST_F(DevicesAtHostMemory, AKilledOwnerEndsIt) {
  relay_until_pinned();
  tw_request requests[5] = {};
  tw_status started[5];
  for (int i = 0; i < 5; ++i) started[i] = tw_put(endpoint, tw_memory_address(here), kLong, remote, i, nullptr, &requests[i]);
  child.kill();
  for (int i = 0; i < 5; ++i) {
    const tw_status status = finish(started[i], requests[i]);
    EXPECT_TRUE(status == TW_OK || status == TW_ERR_PEER_LOST) << status;
  }
  const uint64_t from = now_ns();
  tw_status status = TW_OK;
  while (status == TW_OK && now_ns() - from < kLimit) status = put(1, kLong, 2);
  EXPECT_EQ(status, TW_ERR_PEER_LOST);
}

INSTANTIATE_TEST_SUITE_P(Target, PassiveDevices, testing::Values("host", "emulated:0", "emulated:1"),
                         [](const auto& info) { return std::string(info.param).substr(0, 4) + std::to_string(info.index); });

}  // namespace
