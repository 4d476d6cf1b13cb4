// SPDX-License-Identifier: Apache-2.0
// Block transfers between processes: into library, plain and device memory, from plain and device memory, over shm and tcp; a target
// that is killed in the middle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "process.hpp"

using namespace thalweg::test;

namespace {

[[maybe_unused]] const int kDevices = setenv("THALWEG_EMULATED", "devices=2", 0);

constexpr size_t kLength = 3001, kStride = 3008, kBlocks = 800, kPool = kBlocks * kStride;
constexpr uint64_t kLimit = 20'000'000'000;

std::string key_of(tw_blocks* blocks) {
  size_t length = 0;
  if (tw_blocks_export(blocks, 0, nullptr, &length) != TW_OK) return "";
  std::string key(length, '\0');
  return tw_blocks_export(blocks, 0, key.data(), &length) == TW_OK ? key : "";
}

/// Memory at a place ("host": the library's), zeroed.
tw_memory* zeroed(tw_context* context, size_t length, const char* place) {
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.place = place;
  tw_memory* memory = nullptr;
  if (tw_memory_allocate(context, length, &options, &memory) != TW_OK) return nullptr;
  const std::string zeros(length, '\0');
  if (tw_memory_copy(context, tw_memory_address(memory), zeros.data(), length) == TW_OK) return memory;
  (void)tw_memory_release(memory);
  return nullptr;
}

/// What memory anywhere holds.
std::string contents_of(tw_context* context, const tw_memory* memory, size_t length) {
  std::string bytes(length, '?');
  return tw_memory_copy(context, bytes.data(), tw_memory_address(memory), length) == TW_OK ? bytes : "";
}

/// Two pools, at a place or plain (null), as one set of blocks. Tells its address, key and every notification with what the
/// pools hold by then; ends at "end".
struct Pools {
  Pools(tw_context* context, const char* place) {
    for (tw_memory*& memory : memories) {
      if (place != nullptr) {
        good &= (memory = zeroed(context, kPool, place)) != nullptr;
      } else {
        plain.emplace_back(kPool, '\0');
        good &= tw_memory_register(context, plain.back().data(), kPool, nullptr, &memory) == TW_OK;
      }
    }
    if (!good) return;
    const tw_block_range ranges[] = {{memories[0], nullptr, 7, kStride, kBlocks - 1},
                                     {memories[1], nullptr, 0, kStride, kBlocks}};
    good = tw_blocks_create(context, ranges, 2, kLength, &blocks) == TW_OK;
  }
  ~Pools() {
    tw_blocks_destroy(blocks);
    for (tw_memory* memory : memories) (void)tw_memory_release(memory);
  }
  std::vector<std::string> plain = [] {
    std::vector<std::string> two;
    two.reserve(2);
    return two;
  }();
  tw_memory* memories[2] = {};
  tw_blocks* blocks = nullptr;
  bool good = true;
};

int own_pools(Pipe& pipe, const char* place) {
  Side side;
  Pools pools(side.context, place);
  if (!pools.good) return 1;
  pipe.send(side.address());
  pipe.send(key_of(pools.blocks));
  for (;;) {
    tw_notification next{};
    const auto ready = [&] { return tw_worker_next_notification(side.worker, &next) == TW_OK || pipe.readable(); };
    if (!progress_until(side.worker, ready)) return 2;
    if (next.endpoint == nullptr) return pipe.receive() == "end" ? 0 : 3;
    pipe.send({reinterpret_cast<char*>(next.data), next.length});
    for (tw_memory* memory : pools.memories) {
      const std::string bytes = contents_of(side.context, memory, kPool);
      for (size_t done = 0; done < kPool; done += kStride * 2) pipe.send(bytes.substr(done, kStride * 2));
    }
  }
}
const Role kLibrary("blocks in library memory", [](Pipe& pipe) { return own_pools(pipe, "host"); });
const Role kPlain("blocks in plain memory", [](Pipe& pipe) { return own_pools(pipe, nullptr); });
const Role kDevice("blocks in device memory", [](Pipe& pipe) { return own_pools(pipe, "emulated:1"); });
const Role kShared("blocks in memory pools", [](Pipe& pipe) { return own_pools(pipe, "emulated-pool:1"); });

/// Keeps its pools and progresses until it is killed.
int be_victim(Pipe& pipe, const char* place) {
  Side side;
  Pools pools(side.context, place);
  pipe.send(side.address());
  pipe.send(key_of(pools.blocks));
  progress_until(side.worker, [] { return false; }, 60'000'000'000);
  return 1;
}
const Role kVictim("blocks of a victim", [](Pipe& pipe) { return be_victim(pipe, nullptr); });
const Role kDeviceVictim("blocks of a victim's device", [](Pipe& pipe) { return be_victim(pipe, "emulated:1"); });

struct Case {
  const char* transport;
  const char* role;
  const char* here;  // a place; null: plain memory
  const char* name;
};

class BlocksBetween : public testing::TestWithParam<Case> {
 protected:
  /// What the owner's pools hold, one behind the other.
  static std::string pools_of(Child& child) {
    std::string all;
    while (all.size() < 2 * kPool) {
      const std::string piece = child.receive();
      if (piece.empty()) break;
      all += piece;
    }
    return all;
  }
};

size_t place_of(uint64_t number) {
  return number < kBlocks - 1 ? 7 + number * kStride : kPool + (number - (kBlocks - 1)) * kStride;
}

std::vector<uint64_t> shuffled(size_t n) {
  std::vector<uint64_t> order(n);
  std::iota(order.begin(), order.end(), uint64_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937_64(std::random_device{}()));
  return order;
}

tw_blocks_options notifying(const std::string& text) {
  tw_blocks_options options = TW_BLOCKS_OPTIONS_INIT;
  options.notify = TW_NOTIFY_QUEUE;
  options.notification = text.data();
  options.notification_length = text.size();
  return options;
}

TEST_P(BlocksBetween, ArriveBeforeTheirNotificationAndComeBack) {
  constexpr size_t kMine = 1200, kTheirs = 2 * kBlocks - 1, kGuard = 64;
  Child child(GetParam().role);
  Side side;
  const std::string address = child.receive(), key = child.receive();
  tw_endpoint* endpoint = side.connect(address, GetParam().transport);
  ASSERT_NE(endpoint, nullptr);
  tw_remote_blocks* remote = nullptr;
  ASSERT_EQ(tw_blocks_import(endpoint, key.data(), key.size(), &remote), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_remote_blocks_count(remote), kTheirs);
  EXPECT_EQ(tw_remote_blocks_length(remote), kLength);
  std::string mine = random_bytes(kMine * kLength + 2 * kGuard), theirs(2 * kPool, '\0'), plain = mine;
  tw_memory* const memory = GetParam().here != nullptr ? zeroed(side.context, mine.size(), GetParam().here) : nullptr;
  void* const address_here = memory != nullptr ? tw_memory_address(memory) : plain.data();
  ASSERT_EQ(memory != nullptr, GetParam().here != nullptr) << tw_last_error();
  ASSERT_EQ(tw_memory_copy(side.context, address_here, mine.data(), mine.size()), TW_OK) << tw_last_error();
  const tw_block_range range = {nullptr, address_here, kGuard, 0, kMine};
  tw_blocks* local = nullptr;
  ASSERT_EQ(tw_blocks_create(side.context, &range, 1, kLength, &local), TW_OK);

  for (const size_t n : {size_t{1000}, size_t{1}, size_t{0}}) {
    const std::string text = "put " + std::to_string(n);
    const tw_blocks_options options = notifying(text);
    const std::vector<uint64_t> from = shuffled(kMine), to = shuffled(kTheirs);
    std::vector<uint64_t> indices[2] = {from, to};
    tw_request request = TW_REQUEST_NONE;
    const tw_status started =
        tw_put_blocks(endpoint, local, indices[0].data(), remote, indices[1].data(), n, &options, &request);
    for (auto& index : indices) std::fill(index.begin(), index.end(), UINT64_MAX);  // read during the call only
    ASSERT_EQ(finish(started, request), TW_OK) << tw_last_error();
    for (size_t i = 0; i < n; ++i) theirs.replace(place_of(to[i]), kLength, mine, kGuard + from[i] * kLength, kLength);
    ASSERT_TRUE(progress_until(side.worker, [&] { return child.readable(); }));  // tcp: what is queued here goes out
    ASSERT_EQ(child.receive(), text);
    EXPECT_TRUE(pools_of(child) == theirs) << n;
  }

  std::string expected = mine;
  const std::vector<uint64_t> from = shuffled(kTheirs), to = shuffled(kMine);
  for (size_t i = 0; i < 1100; ++i) expected.replace(kGuard + to[i] * kLength, kLength, theirs, place_of(from[i]), kLength);
  const std::string got = "got them";
  const tw_blocks_options options = notifying(got);
  tw_request request = TW_REQUEST_NONE;
  const tw_status started = tw_get_blocks(endpoint, local, to.data(), remote, from.data(), 1100, &options, &request);
  ASSERT_EQ(finish(started, request), TW_OK) << tw_last_error();
  std::string now(mine.size(), '?');
  ASSERT_EQ(tw_memory_copy(side.context, now.data(), address_here, now.size()), TW_OK) << tw_last_error();
  EXPECT_TRUE(now == expected);
  ASSERT_TRUE(progress_until(side.worker, [&] { return child.readable(); }));
  ASSERT_EQ(child.receive(), "got them");
  EXPECT_TRUE(pools_of(child) == theirs);
  tw_blocks_destroy(local);
  tw_remote_blocks_release(remote);
  child.send("end");
  EXPECT_EQ(child.join(), 0);
  (void)tw_memory_release(memory);
}

constexpr Case kCases[] = {{"shm", "blocks in library memory", nullptr, "shm_plain_library"},
                           {"shm", "blocks in plain memory", nullptr, "shm_plain_plain"},
                           {"tcp", "blocks in plain memory", nullptr, "tcp_plain_plain"},
                           {"shm", "blocks in device memory", "emulated:0", "shm_device_device"},
                           {"shm", "blocks in device memory", nullptr, "shm_plain_device"},
                           {"shm", "blocks in library memory", "emulated:0", "shm_device_library"},
                           {"shm", "blocks in memory pools", "emulated-managed:0", "shm_managed_pool"},
                           {"tcp", "blocks in device memory", "emulated:0", "tcp_device_device"},
                           {"tcp", "blocks in device memory", nullptr, "tcp_plain_device"},
                           {"tcp", "blocks in plain memory", "emulated-pool:0", "tcp_pool_plain"}};
INSTANTIATE_TEST_SUITE_P(Over, BlocksBetween, testing::ValuesIn(kCases), [](const auto& info) { return info.param.name; });

struct Death {
  const char* transport;
  bool device;  // memory of one, at both sides
};
class BlocksOfTheDead : public testing::TestWithParam<Death> {};

TEST_P(BlocksOfTheDead, EndWithPeerLostAndNothingElseIsHurt) {
  const bool device = GetParam().device;
  Child child(device ? "blocks of a victim's device" : "blocks of a victim"), other("blocks in plain memory");
  Side side;
  constexpr size_t kMine = 50, kPairs = 2'000'000;  // 6 GB: it does not end before the kill
  const std::string mine = random_bytes(kMine * kLength);
  std::vector<uint64_t> from(kPairs), to(kPairs);
  for (size_t i = 0; i < kPairs; ++i) {
    from[i] = i % kMine;
    to[i] = i % kBlocks;
  }
  const std::string address = child.receive(), key = child.receive(), living = other.receive(), second = other.receive();
  tw_endpoint* endpoint = side.connect(address, GetParam().transport);
  tw_endpoint* alive = side.connect(living, GetParam().transport);
  tw_memory* const memory = zeroed(side.context, mine.size(), device ? "emulated:0" : "host");
  ASSERT_NE(memory, nullptr);
  ASSERT_EQ(tw_memory_copy(side.context, tw_memory_address(memory), mine.data(), mine.size()), TW_OK);
  const tw_block_range range = {memory, nullptr, 0, 0, kMine};
  tw_blocks* local = nullptr;
  tw_remote_blocks *remote = nullptr, *untouched = nullptr;
  ASSERT_EQ(tw_blocks_create(side.context, &range, 1, kLength, &local), TW_OK);
  ASSERT_EQ(tw_blocks_import(endpoint, key.data(), key.size(), &remote), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_blocks_import(alive, second.data(), second.size(), &untouched), TW_OK) << tw_last_error();
  tw_request request = TW_REQUEST_NONE;
  ASSERT_EQ(tw_put_blocks(endpoint, local, from.data(), remote, to.data(), kPairs, nullptr, &request), TW_IN_PROGRESS);
  for (int i = 0; i < 100; ++i) tw_worker_progress(side.worker);
  ASSERT_EQ(tw_request_test(request), TW_IN_PROGRESS);
  child.kill();
  EXPECT_EQ(tw_request_wait(request, kLimit), TW_ERR_PEER_LOST) << tw_request_message(request);
  (void)tw_request_release(request);
  EXPECT_EQ(tw_put_blocks(endpoint, local, from.data(), remote, to.data(), 5, nullptr, &request), TW_ERR_PEER_LOST);
  tw_remote_blocks_release(remote);

  const std::string text = "still here";
  const tw_blocks_options options = notifying(text);
  ASSERT_GE(tw_put_blocks(alive, local, from.data(), untouched, to.data(), 5, &options, nullptr), TW_OK);
  ASSERT_TRUE(progress_until(side.worker, [&] { return other.readable(); }));
  EXPECT_EQ(other.receive(), text);
  tw_remote_blocks_release(untouched);
  tw_blocks_destroy(local);
  (void)tw_memory_release(memory);
}

INSTANTIATE_TEST_SUITE_P(Over, BlocksOfTheDead, testing::Values(Death{"shm", false}, Death{"tcp", false}, Death{"tcp", true}),
                         [](const auto& info) {
                           return std::string(info.param.transport) + (info.param.device ? "_device" : "");
                         });

}  // namespace
