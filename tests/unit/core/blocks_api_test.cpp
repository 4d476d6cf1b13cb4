// SPDX-License-Identifier: Apache-2.0
// The C interface of blocks: bad input is refused before anything moves, with a text; keys grow with their memories.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <thalweg/thalweg.hpp>

#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "../../fixtures/rooms.hpp"

namespace {

[[maybe_unused]] const int kDevices = setenv("THALWEG_EMULATED", "devices=2,vmm_piece=65536", 1);

thalweg::ContextOptions test_options() {
  static constexpr char kKey[] = "a secret of more than sixteen bytes";
  thalweg::ContextOptions options;
  options.job_key = kKey;
  options.job_key_length = sizeof kKey;
  return options;
}

/// A worker connected to itself, with two memories.
class BlocksApi : public testing::Test {
 protected:
  static constexpr size_t kLength = 100, kSize = 1000;
  void SetUp() override {
    std::mt19937_64 random(std::random_device{}());
    for (auto& bytes : memory_bytes) {
      bytes.resize(kSize);
      for (unsigned char& b : bytes) b = static_cast<unsigned char>(random());
    }
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(tw_memory_register(context.get(), memory_bytes[i].data(), kSize, nullptr, &memory[i]), TW_OK);
    }
    const tw_block_range ranges[] = {
        {memory[0], nullptr, 0, 0, 5}, {memory[1], nullptr, 100, 150, 3}, {memory[0], nullptr, 500, 0, 5}};
    ASSERT_EQ(tw_blocks_create(context.get(), ranges, 3, kLength, &blocks), TW_OK);
    char address[kAddressRoom];
    size_t length = sizeof address;
    ASSERT_EQ(tw_worker_address(worker.get(), address, &length), TW_OK);
    ASSERT_EQ(tw_connect(worker.get(), address, length, nullptr, &endpoint), TW_OK);
    ASSERT_EQ(tw_endpoint_wait(endpoint, 10'000'000'000), TW_OK);
    ASSERT_EQ(tw_blocks_import(endpoint, key().data(), key().size(), &remote), TW_OK);
  }
  void TearDown() override {
    tw_remote_blocks_release(remote);
    tw_blocks_destroy(blocks);
    for (tw_memory* each : memory) EXPECT_EQ(tw_memory_release(each), TW_OK);
  }
  std::string key(uint32_t access = 0) {
    size_t length = 0;
    EXPECT_EQ(tw_blocks_export(blocks, access, nullptr, &length), TW_OK);
    std::string text(length, '\0');
    EXPECT_EQ(tw_blocks_export(blocks, access, text.data(), &length), TW_OK);
    return text;
  }
  tw_status put(std::vector<uint64_t> from, std::vector<uint64_t> to, const tw_blocks_options* options = nullptr) {
    return tw_put_blocks(endpoint, blocks, from.data(), remote, to.data(), from.size(), options, nullptr);
  }
  thalweg::Context context{test_options()};
  thalweg::Worker worker{context};
  std::vector<unsigned char> memory_bytes[2];
  tw_memory* memory[2] = {};
  tw_blocks* blocks = nullptr;
  tw_endpoint* endpoint = nullptr;
  tw_remote_blocks* remote = nullptr;
};

TEST_F(BlocksApi, KeysNameEachMemoryOnce) {
  EXPECT_EQ(key().size(), 24u + 2 * kKeyRoom + 3 * 32);
  EXPECT_EQ(tw_blocks_count(blocks), 13u);
  EXPECT_EQ(tw_remote_blocks_count(remote), 13u);
  EXPECT_EQ(tw_remote_blocks_length(remote), kLength);
  size_t small = 10;
  char text[10];
  EXPECT_EQ(tw_blocks_export(blocks, 0, text, &small), TW_ERR_TRUNCATED);
  EXPECT_EQ(small, key().size());
  tw_remote_blocks* other = nullptr;
  EXPECT_EQ(tw_blocks_import(endpoint, "rubbish", 7, &other), TW_ERR_INVALID);
  EXPECT_STRNE(tw_last_error(), "");
}

TEST_F(BlocksApi, BadRangesAreRefused) {
  tw_blocks* made = nullptr;
  const auto create = [&](tw_block_range range, size_t length) {
    return tw_blocks_create(context.get(), &range, 1, length, &made);
  };
  EXPECT_EQ(create({memory[0], nullptr, 1, 0, 10}, 100), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(create({memory[0], nullptr, 0, 99, 2}, 100), TW_ERR_INVALID);
  EXPECT_EQ(create({memory[0], nullptr, 0, 0, 1}, 0), TW_ERR_INVALID);
  EXPECT_EQ(create({nullptr, nullptr, 0, 0, 1}, 100), TW_ERR_INVALID);
  EXPECT_EQ(tw_blocks_create(context.get(), nullptr, 1, 100, &made), TW_ERR_INVALID);
  EXPECT_EQ(tw_blocks_create(nullptr, nullptr, 0, 100, &made), TW_ERR_INVALID);
  ASSERT_EQ(create({nullptr, memory_bytes[0].data(), 0, 0, 3}, 100), TW_OK);
  size_t length = 0;
  EXPECT_EQ(tw_blocks_export(made, 0, nullptr, &length), TW_ERR_INVALID) << "a plain address";
  tw_blocks_destroy(made);
}

TEST_F(BlocksApi, NothingMovesWhenOneIndexIsBad) {
  const auto before = memory_bytes[0];
  const auto other = memory_bytes[1];
  EXPECT_EQ(put({0, 1, 2}, {5, 6, 13}), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(put({0, 13, 2}, {5, 6, 7}), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(put({0, UINT64_MAX, 2}, {5, 6, 7}), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(put({uint64_t{1} << 32}, {5}), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(tw_get_blocks(endpoint, blocks, nullptr, remote, nullptr, 14, nullptr, nullptr), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(memory_bytes[0], before);
  EXPECT_EQ(memory_bytes[1], other);
  ASSERT_GE(put({0, 1}, {5, 6}), TW_OK);
  tw_request flush = TW_REQUEST_NONE;
  ASSERT_GE(tw_endpoint_flush(endpoint, &flush), TW_OK);
  ASSERT_EQ(tw_request_finish_all(&flush, 1), TW_OK);
  EXPECT_EQ(std::memcmp(memory_bytes[1].data() + 100, before.data(), 100), 0);
  EXPECT_EQ(std::memcmp(memory_bytes[1].data() + 250, before.data() + 100, 100), 0);
}

TEST_F(BlocksApi, SidesAndOptionsMustAgree) {
  const tw_block_range range = {memory[0], nullptr, 0, 0, 5};
  tw_blocks* longer = nullptr;
  ASSERT_EQ(tw_blocks_create(context.get(), &range, 1, 101, &longer), TW_OK);
  EXPECT_EQ(tw_put_blocks(endpoint, longer, nullptr, remote, nullptr, 1, nullptr, nullptr), TW_ERR_INVALID);
  tw_blocks_destroy(longer);
  EXPECT_EQ(tw_put_blocks(endpoint, nullptr, nullptr, remote, nullptr, 1, nullptr, nullptr), TW_ERR_INVALID);
  EXPECT_EQ(tw_put_blocks(endpoint, blocks, nullptr, nullptr, nullptr, 1, nullptr, nullptr), TW_ERR_INVALID);
  EXPECT_EQ(tw_put_blocks(nullptr, blocks, nullptr, remote, nullptr, 1, nullptr, nullptr), TW_ERR_INVALID);
  tw_blocks_options o = TW_BLOCKS_OPTIONS_INIT;
  const char text[65] = {};
  o.notification = text;
  o.notification_length = 65;
  EXPECT_EQ(put({0}, {5}, &o), TW_ERR_INVALID) << "notify is not set";
  o.notify = TW_NOTIFY_QUEUE;
  EXPECT_EQ(put({0}, {5}, &o), TW_ERR_LIMIT);
  o.notification_length = 64;
  o.notify = TW_NOTIFY_HANDLER;
  o.handler = 4096;
  EXPECT_EQ(put({0}, {5}, &o), TW_ERR_INVALID);
  o.notify = 3;
  EXPECT_EQ(put({0}, {5}, &o), TW_ERR_INVALID);
}

/// Address space alone, which nothing touches. Refused before any index is looked at.
TEST_F(BlocksApi, MoreBytesThanAnyMemoryHasAreRefused) {
  constexpr size_t kHuge = size_t{1} << 38;
  void* const space = mmap(nullptr, kHuge, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(space, MAP_FAILED);
  tw_memory* huge = nullptr;
  ASSERT_EQ(tw_memory_register(context.get(), space, kHuge, nullptr, &huge), TW_OK) << tw_last_error();
  const tw_block_range range = {huge, nullptr, 0, 0, 1};
  tw_blocks* one = nullptr;
  ASSERT_EQ(tw_blocks_create(context.get(), &range, 1, kHuge, &one), TW_OK) << tw_last_error();
  char text[256];
  size_t length = sizeof text;
  ASSERT_EQ(tw_blocks_export(one, 0, text, &length), TW_OK) << tw_last_error();
  tw_remote_blocks* there = nullptr;
  ASSERT_EQ(tw_blocks_import(endpoint, text, length, &there), TW_OK) << tw_last_error();
  for (const size_t n : {size_t{1} << 25, size_t{1} << 26}) {  // 2^63, and 2^64, which is 0
    EXPECT_EQ(tw_put_blocks(endpoint, one, nullptr, there, nullptr, n, nullptr, nullptr), TW_ERR_LIMIT);
    EXPECT_NE(std::string(tw_last_error()).find("several operations"), std::string::npos) << tw_last_error();
    EXPECT_EQ(tw_get_blocks(endpoint, one, nullptr, there, nullptr, n, nullptr, nullptr), TW_ERR_LIMIT);
  }
  tw_remote_blocks_release(there);
  tw_blocks_destroy(one);
  EXPECT_EQ(tw_memory_release(huge), TW_OK);
  EXPECT_EQ(munmap(space, kHuge), 0);
}

TEST_F(BlocksApi, AKeyMayAllowLess) {
  const std::string reads = key(TW_MEMORY_READ);
  tw_remote_blocks* only = nullptr;
  ASSERT_EQ(tw_blocks_import(endpoint, reads.data(), reads.size(), &only), TW_OK);
  EXPECT_EQ(tw_put_blocks(endpoint, blocks, nullptr, only, nullptr, 1, nullptr, nullptr), TW_ERR_PERMISSION);
  EXPECT_GE(tw_get_blocks(endpoint, blocks, nullptr, only, nullptr, 1, nullptr, nullptr), TW_OK);
  tw_remote_blocks_release(only);
}

/// A key of blocks holds keys of memory, which a peer can take out of it.
TEST_F(BlocksApi, AKeyGrantsWhatItsRangesTouch) {
  std::vector<unsigned char> bytes(1u << 20), got(64);
  std::mt19937_64 random(std::random_device{}());
  for (unsigned char& b : bytes) b = static_cast<unsigned char>(random());
  tw_memory* large = nullptr;
  ASSERT_EQ(tw_memory_register(context.get(), bytes.data(), bytes.size(), nullptr, &large), TW_OK);
  const tw_block_range ranges[] = {{large, nullptr, 8192, 128, 2}, {large, nullptr, 4096, 0, 1}};
  tw_blocks* few = nullptr;
  ASSERT_EQ(tw_blocks_create(context.get(), ranges, 2, 64, &few), TW_OK);
  char text[512];
  size_t length = sizeof text;
  ASSERT_EQ(tw_blocks_export(few, 0, text, &length), TW_OK);
  tw_remote_memory* inside = nullptr;
  ASSERT_EQ(tw_memory_import(endpoint, text + 24, kKeyRoom, &inside), TW_OK) << tw_last_error();
  constexpr size_t kPart = 8192 + 128 + 64 - 4096;
  EXPECT_EQ(tw_remote_memory_length(inside), kPart);
  EXPECT_EQ(tw_get(endpoint, got.data(), 64, inside, kPart - 63, nullptr, nullptr), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(tw_get(endpoint, got.data(), 64, inside, uint64_t{0} - 4096, nullptr, nullptr), TW_ERR_OUT_OF_BOUNDS);
  const auto finish = [](tw_status status, tw_request request) {
    return status == TW_IN_PROGRESS ? tw_request_finish(request) : status;
  };
  tw_request request = TW_REQUEST_NONE;
  tw_status status = tw_get(endpoint, got.data(), 64, inside, 0, nullptr, &request);
  ASSERT_EQ(finish(status, request), TW_OK) << tw_last_error();
  EXPECT_EQ(std::memcmp(got.data(), &bytes[4096], 64), 0) << "its first byte is the first block's";
  tw_remote_memory_release(inside);
  // The blocks are where they were.
  tw_remote_blocks* there = nullptr;
  ASSERT_EQ(tw_blocks_import(endpoint, text, length, &there), TW_OK) << tw_last_error();
  std::vector<unsigned char> here(3 * 64);
  const tw_block_range local = {nullptr, here.data(), 0, 0, 3};
  tw_blocks* to = nullptr;
  ASSERT_EQ(tw_blocks_create(context.get(), &local, 1, 64, &to), TW_OK);
  status = tw_get_blocks(endpoint, to, nullptr, there, nullptr, 3, nullptr, &request);
  ASSERT_EQ(finish(status, request), TW_OK) << tw_last_error();
  EXPECT_EQ(std::memcmp(here.data(), &bytes[8192], 64), 0);
  EXPECT_EQ(std::memcmp(&here[64], &bytes[8192 + 128], 64), 0);
  EXPECT_EQ(std::memcmp(&here[128], &bytes[4096], 64), 0);
  tw_remote_blocks_release(there);
  tw_blocks_destroy(to);
  tw_blocks_destroy(few);
  EXPECT_EQ(tw_memory_release(large), TW_OK);
}

TEST_F(BlocksApi, NotificationsToOneselfAreTakenInOrder) {
  tw_notification next{};
  EXPECT_EQ(tw_worker_next_notification(worker.get(), &next), TW_AGAIN);
  EXPECT_EQ(tw_worker_next_notification(worker.get(), nullptr), TW_ERR_INVALID);
  for (int i = 0; i < 3; ++i) {
    tw_blocks_options o = TW_BLOCKS_OPTIONS_INIT;
    o.notify = TW_NOTIFY_QUEUE;
    o.notification = &i;
    o.notification_length = sizeof i;
    ASSERT_GE(put({}, {}, &o), TW_OK);
  }
  for (int i = 0; i < 3; ++i) {
    while (tw_worker_next_notification(worker.get(), &next) == TW_AGAIN) (void)tw_worker_wait(worker.get(), 1'000'000);
    EXPECT_EQ(next.endpoint, endpoint);
    ASSERT_EQ(next.length, sizeof i);
    EXPECT_EQ(std::memcmp(next.data, &i, sizeof i), 0);
  }
}

/// One place a handle; between handles of different places everything moves.
TEST_F(BlocksApi, MixturesOfHostAndDeviceMoveThroughPinnedMemory) {
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.place = "emulated:0";
  tw_memory* device = nullptr;
  ASSERT_EQ(tw_memory_allocate(context.get(), kSize, &options, &device), TW_OK) << tw_last_error();
  tw_blocks *mixed = nullptr, *there = nullptr;
  const tw_block_range both[] = {{memory[0], nullptr, 0, 0, 5}, {device, nullptr, 3, 0, 5}};
  EXPECT_EQ(tw_blocks_create(context.get(), both, 2, kLength, &mixed), TW_ERR_UNSUPPORTED);
  ASSERT_EQ(tw_blocks_create(context.get(), both + 1, 1, kLength, &there), TW_OK) << tw_last_error();
  char key[256];
  size_t length = sizeof key;
  ASSERT_EQ(tw_blocks_export(there, 0, key, &length), TW_OK);
  tw_remote_blocks* remote_device = nullptr;
  ASSERT_EQ(tw_blocks_import(endpoint, key, length, &remote_device), TW_OK) << tw_last_error();
  // Five blocks of plain host memory go to the device in reverse order, and from there to where others were.
  const auto expected = [&] {
    auto bytes = memory_bytes[0];
    for (size_t i = 0; i < 5; ++i) std::memcpy(&bytes[500 + i * kLength], &memory_bytes[0][(4 - i) * kLength], kLength);
    return bytes;
  }();
  const uint64_t reverse[] = {4, 3, 2, 1, 0}, others[] = {8, 9, 10, 11, 12};
  const auto finish = [&](tw_status status, tw_request request) {
    if (status == TW_IN_PROGRESS) status = tw_request_wait(request, 10'000'000'000);
    if (request != TW_REQUEST_NONE) (void)tw_request_release(request);
    return status;
  };
  tw_request request = TW_REQUEST_NONE;
  tw_status status = tw_put_blocks(endpoint, blocks, nullptr, remote_device, reverse, 5, nullptr, &request);
  ASSERT_EQ(finish(status, request), TW_OK) << tw_last_error();
  status = tw_put_blocks(endpoint, there, nullptr, remote, others, 5, nullptr, &request);
  ASSERT_EQ(finish(status, request), TW_OK) << tw_last_error();
  EXPECT_EQ(memory_bytes[0], expected);
  tw_remote_blocks_release(remote_device);
  tw_blocks_destroy(there);
  EXPECT_EQ(tw_memory_release(device), TW_OK);
}

}  // namespace
