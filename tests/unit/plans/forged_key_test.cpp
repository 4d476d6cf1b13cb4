// SPDX-License-Identifier: Apache-2.0
// Keys are bytes that anybody may have written: within one process the owner's own record says where the memory is.
#include <atomic>
#include <cstdint>
#include <thread>

#include "../../fixtures/rooms.hpp"
#include "memory/registry.hpp"
#include "unit/plans/pair.hpp"

namespace thalweg::tests {
namespace {

constexpr size_t kSize = 4099;

class ForgedKeys : public Pair {
 protected:
  /// A key of b's memory whose address was changed to that of another buffer, imported by a.
  tw_remote_memory* import_forged(tw_memory* memory, const void* elsewhere) {
    unsigned char bytes[kKeyRoom];
    size_t length = sizeof bytes;
    EXPECT_EQ(tw_memory_export_range(memory, 0, kSize, 0, bytes, &length), TW_OK) << tw_last_error();
    impl::KeyBody key;
    EXPECT_EQ(impl::parse_key(bytes, length, &key), TW_OK);
    key.base = reinterpret_cast<uint64_t>(elsewhere);
    length = sizeof bytes;
    EXPECT_EQ(impl::write_key(key, bytes, &length), TW_OK);
    tw_remote_memory* remote = nullptr;
    EXPECT_EQ(tw_memory_import(a.endpoint, bytes, length, &remote), TW_OK) << tw_last_error();
    a.last.emplace_back([remote] { tw_remote_memory_release(remote); });
    return remote;
  }
};
INSTANTIATE_TEST_SUITE_P(Mapped, ForgedKeys, testing::Values(kWays[0], kWays[1]),
                         [](const auto& info) { return info.param.name; });

TEST_P(ForgedKeys, APlanPutsWhereTheOwnersRecordSays) {
  tw_memory* of_b = nullptr;
  unsigned char *from = memory(a, kSize), *to = memory(b, kSize, &of_b), *elsewhere = memory(b, kSize);
  const Bytes data = random_bytes(kSize), before = random_bytes(kSize);
  a.store(from, data);
  b.store(elsewhere, before);
  tw_plan* puts = plan(a);
  tw_remote_memory* remote = import_forged(of_b, elsewhere);
  ASSERT_EQ(tw_plan_put(puts, a.endpoint, from, kSize, remote, 0, nullptr, nullptr), TW_OK) << tw_last_error();
  tw_queue* qa = queue(a);
  std::atomic<bool> stop{false};
  std::thread progress([&] {
    while (!stop) tw_worker_progress(b.worker);
  });
  EXPECT_EQ(tw_plan_prepare(puts, kLong), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_trigger(puts, qa), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
  stop = true;
  progress.join();
  EXPECT_TRUE(b.load(to, kSize) == data);
  EXPECT_TRUE(b.load(elsewhere, kSize) == before);
}

/// Memory that is not mapped: once by the kernel's copy into this very process.
TEST_P(ForgedKeys, APutGoesWhereTheOwnersRecordSays) {
  const Bytes data = random_bytes(kSize), before = random_bytes(kSize);
  Bytes to(kSize), elsewhere = before;
  tw_memory* of_b = nullptr;
  ASSERT_EQ(tw_memory_register(b.context, to.data(), kSize, nullptr, &of_b), TW_OK) << tw_last_error();
  b.memories.push_back(of_b);
  tw_remote_memory* remote = import_forged(of_b, elsewhere.data());
  std::atomic<bool> stop{false};
  std::thread progress([&] {
    while (!stop) tw_worker_progress(b.worker);
  });
  tw_request request = TW_REQUEST_NONE;
  EXPECT_GE(tw_put(a.endpoint, data.data(), kSize, remote, 0, nullptr, nullptr), TW_OK) << tw_last_error();
  EXPECT_GE(tw_endpoint_flush(a.endpoint, &request), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_request_wait(request, kLong), TW_OK) << tw_last_error();
  stop = true;
  progress.join();
  EXPECT_TRUE(to == data);
  EXPECT_TRUE(elsewhere == before);
}

/// Its address says that its words lie at their borders: of the bytes that it names none do.
TEST_P(ForgedKeys, WordsAcrossBordersAreRefused) {
  tw_memory* of_b = nullptr;
  unsigned char* const target = memory(b, kSize, &of_b);
  const Bytes before = random_bytes(kSize);
  b.store(target, before);
  unsigned char bytes[kKeyRoom];
  size_t length = sizeof bytes;
  ASSERT_EQ(tw_memory_export_range(of_b, 0, kSize, 0, bytes, &length), TW_OK) << tw_last_error();
  impl::KeyBody key;
  ASSERT_EQ(impl::parse_key(bytes, length, &key), TW_OK);
  key.segment_offset += 4;
  key.length -= 8;
  length = sizeof bytes;
  ASSERT_EQ(impl::write_key(key, bytes, &length), TW_OK);
  tw_remote_memory* remote = nullptr;
  EXPECT_EQ(tw_memory_import(a.endpoint, bytes, length, &remote), TW_ERR_MISALIGNED);
  key.base += 4;  // alone: the owner's record says where the bytes are
  key.segment = key.segment_offset = 0;
  length = sizeof bytes;
  ASSERT_EQ(impl::write_key(key, bytes, &length), TW_OK);
  ASSERT_EQ(tw_memory_import(a.endpoint, bytes, length, &remote), TW_OK) << tw_last_error();
  a.last.emplace_back([remote] { tw_remote_memory_release(remote); });
  tw_plan* const atomics = plan(a);
  tw_status status = tw_plan_atomic(atomics, a.endpoint, TW_ATOMIC_ADD, remote, 4, 8, 1, 0, nullptr, nullptr, nullptr);
  std::atomic<bool> stop{false};
  std::thread progress([&] {
    while (!stop) tw_worker_progress(b.worker);
  });
  if (status == TW_OK) status = tw_plan_prepare(atomics, kLong);
  EXPECT_EQ(status, TW_ERR_MISALIGNED) << tw_last_error();
  tw_request request = TW_REQUEST_NONE;
  status = tw_atomic(a.endpoint, TW_ATOMIC_ADD, remote, 4, 8, 1, 0, nullptr, nullptr, &request);
  if (status == TW_IN_PROGRESS) status = tw_request_wait(request, kLong);
  if (status >= TW_OK && tw_endpoint_flush(a.endpoint, &request) >= TW_OK) status = tw_request_wait(request, kLong);
  EXPECT_EQ(status, TW_ERR_MISALIGNED) << tw_last_error();
  stop = true;
  progress.join();
  EXPECT_TRUE(b.load(target, kSize) == before);
}

/// Over tcp every access passes through the memory's owner: bits that were set in a key's bytes grant nothing.
class ForgedGrants : public Pair {
 protected:
  tw_status outcome(tw_status posted, tw_request request) {
    tw_request flushed = TW_REQUEST_NONE;
    tw_status status = posted;
    if (status >= TW_OK && request != TW_REQUEST_NONE) status = tw_request_wait(request, kLong);
    if (status < TW_OK) return status;
    status = tw_endpoint_flush(a.endpoint, &flushed);
    return status < TW_OK || flushed == TW_REQUEST_NONE ? status : tw_request_wait(flushed, kLong);
  }
};
INSTANTIATE_TEST_SUITE_P(Tcp, ForgedGrants, testing::Values(kWays[2], kWays[3]),
                         [](const auto& info) { return info.param.name; });

TEST_P(ForgedGrants, AKeyToReadRefusesPutsAndAtomics) {
  tw_memory* of_b = nullptr;
  unsigned char* const target = memory(b, kSize, &of_b);
  const Bytes before = random_bytes(kSize), data = random_bytes(kSize);
  b.store(target, before);
  unsigned char bytes[kKeyRoom];
  size_t length = sizeof bytes;
  ASSERT_EQ(tw_memory_export_range(of_b, 0, kSize, TW_MEMORY_READ, bytes, &length), TW_OK) << tw_last_error();
  impl::KeyBody key;
  ASSERT_EQ(impl::parse_key(bytes, length, &key), TW_OK);
  key.access = TW_MEMORY_ALL;
  length = sizeof bytes;
  ASSERT_EQ(impl::write_key(key, bytes, &length), TW_OK);
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_import(a.endpoint, bytes, length, &remote), TW_OK) << tw_last_error();
  a.last.emplace_back([remote] { tw_remote_memory_release(remote); });
  std::atomic<bool> stop{false};
  std::thread progress([&] {
    while (!stop) tw_worker_progress(b.worker);
  });
  tw_request request = TW_REQUEST_NONE;
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.flags = TW_OP_REMOTE;
  tw_status status = tw_put(a.endpoint, data.data(), kSize, remote, 0, &options, &request);
  EXPECT_EQ(outcome(status, request), TW_ERR_PERMISSION);
  request = TW_REQUEST_NONE;
  uint64_t old = 0;
  status = tw_atomic(a.endpoint, TW_ATOMIC_ADD, remote, 0, 8, 1, 0, &old, nullptr, &request);
  EXPECT_EQ(outcome(status, request), TW_ERR_PERMISSION);
  Bytes got(kSize);
  request = TW_REQUEST_NONE;
  status = tw_get(a.endpoint, got.data(), kSize, remote, 0, nullptr, &request);
  EXPECT_EQ(outcome(status, request), TW_OK) << tw_last_error();
  EXPECT_TRUE(got == before);
  stop = true;
  progress.join();
  EXPECT_TRUE(b.load(target, kSize) == before);
}

}  // namespace
}  // namespace thalweg::tests
