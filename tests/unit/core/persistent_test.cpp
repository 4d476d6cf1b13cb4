// SPDX-License-Identifier: Apache-2.0
// Operations of a context that asked for persistent kernels: the same results, by the kernel where it runs, by engines where not.
#include <thread>

#include "../../fixtures/rooms.hpp"
#include "device_order.hpp"
#include "devices/persistent.hpp"

namespace thalweg::impl {
namespace {

class PersistentOperations : public DeviceMemories {
 protected:
  void SetUp() override {
    ::setenv("THALWEG_EMULATED", "devices=2", 0);
    ::setenv("THALWEG_COSTS", "off", 1);  // by default costs the kernel takes small copies
    tw_context_options options = TW_CONTEXT_OPTIONS_INIT;
    options.persistent_blocks = 2;
    options.persistent_idle_ns = PersistentOptions::kLongest;
    ASSERT_EQ(tw_context_create(&options, &context_), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_worker_create(context_, nullptr, &worker_), TW_OK);
    unsigned char address[kAddressRoom];
    size_t length = sizeof address;
    ASSERT_EQ(tw_worker_address(worker_, address, &length), TW_OK);
    ASSERT_EQ(tw_connect(worker_, address, length, nullptr, &endpoint_), TW_OK);
    ASSERT_EQ(tw_endpoint_wait(endpoint_, 10'000'000'000), TW_OK);
    source_ = allocate("emulated:0", 0);
    target_ = allocate("emulated:1", 0x5a);
    unsigned char key[kKeyRoom];
    length = sizeof key;
    ASSERT_EQ(tw_memory_export(target_, key, &length), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_memory_import(endpoint_, key, length, &remote_), TW_OK) << tw_last_error();
    BufferInfo info;
    ASSERT_EQ(find_device(reinterpret_cast<uint64_t>(tw_memory_address(source_)), &info), TW_OK);
    device_ = info.device;
  }
  void TearDown() override {
    if (remote_ != nullptr) tw_remote_memory_release(remote_);
    if (endpoint_ != nullptr) (void)tw_endpoint_close(endpoint_, TW_CLOSE_GRACEFUL, nullptr);
    if (worker_ != nullptr) tw_worker_destroy(worker_);
    for (tw_memory* memory : {source_, target_}) (void)tw_memory_release(memory);
    tw_context_destroy(context_);
  }
  tw_memory* allocate(const char* place, unsigned char poison) {
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = place;
    tw_memory* memory = nullptr;
    EXPECT_EQ(tw_memory_allocate(context_, kBytes, &options, &memory), TW_OK) << tw_last_error();
    store(memory, std::vector<unsigned char>(kBytes, poison));
    return memory;
  }
  static unsigned char* at(tw_memory* memory, size_t offset) {
    return static_cast<unsigned char*>(tw_memory_address(memory)) + offset;
  }
  /// The kernel of the source's device, which the worker has opened.
  std::shared_ptr<PersistentCopier> persistent() {
    std::shared_ptr<PersistentCopier> shared;
    EXPECT_EQ(PersistentCopier::open(*device_, {2, PersistentOptions::kLongest}, &shared), TW_OK) << last_error();
    return shared;
  }

  tw_worker* worker_ = nullptr;
  tw_endpoint* endpoint_ = nullptr;
  tw_memory *source_ = nullptr, *target_ = nullptr;
  tw_remote_memory* remote_ = nullptr;
  Device* device_ = nullptr;
  std::mt19937_64 random_{std::random_device{}()};
};

TEST_F(PersistentOperations, SendsPutsAndGetsOfAnySizeGoByItAndKeepTheirGuards) {
  const std::vector<unsigned char> payload = random_bytes();
  store(source_, payload);
  std::vector<unsigned char> expected(kBytes, 0x5a);
  for (int round = 0; round < 300; ++round) {
    const size_t length = 1 + random_() % (round % 3 == 0 ? 60000 : 100);
    const size_t from = random_() % (kBytes - length), to = random_() % (kBytes - length);
    tw_request request = TW_REQUEST_NONE, receive = TW_REQUEST_NONE;
    if (round % 2 == 0) {
      ASSERT_EQ(tw_recv(worker_, at(target_, to), length, 7, ~0ull, nullptr, &receive), TW_IN_PROGRESS);
      ASSERT_GE(tw_send(endpoint_, at(source_, from), length, 7, nullptr, &request), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_request_finish(receive), TW_OK) << tw_last_error();
    } else {
      tw_op_options options = TW_OP_OPTIONS_INIT;
      options.flags = TW_OP_REMOTE;
      ASSERT_GE(tw_put(endpoint_, at(source_, from), length, remote_, to, &options, &request), TW_OK) << tw_last_error();
    }
    if (request != TW_REQUEST_NONE) {
      ASSERT_EQ(tw_request_finish(request), TW_OK) << tw_last_error();
    }
    std::memcpy(&expected[to], &payload[from], length);
    ASSERT_EQ(load(target_), expected) << length << " bytes in round " << round;
  }
  for (int round = 0; round < 50; ++round) {
    const size_t length = 1 + random_() % 5000, from = random_() % (kBytes - length), to = random_() % (kBytes - length);
    std::vector<unsigned char> held = load(source_);
    tw_request request = TW_REQUEST_NONE;
    ASSERT_GE(tw_get(endpoint_, at(source_, to), length, remote_, from, nullptr, &request), TW_OK) << tw_last_error();
    if (request != TW_REQUEST_NONE) {
      ASSERT_EQ(tw_request_finish(request), TW_OK) << tw_last_error();
    }
    std::memcpy(&held[to], &expected[from], length);
    ASSERT_EQ(load(source_), held) << length << " bytes got in round " << round;
  }
  EXPECT_GT(persistent()->taken(), 0u);
}

TEST_F(PersistentOperations, ManyAtOnceAreSharedByKernelAndEngines) {
  const std::vector<unsigned char> payload = random_bytes();
  store(source_, payload);
  constexpr size_t kPiece = 501, kCount = kBytes / kPiece;
  for (int round = 0; round < 20 || (persistent()->taken() == 0 && round < 2000);
       ++round) {  // the kernel has to be there first
    std::vector<tw_request> requests;
    for (size_t i = 0; i < kCount; ++i) {
      tw_request request = TW_REQUEST_NONE;
      ASSERT_GE(tw_put(endpoint_, at(source_, i * kPiece), kPiece, remote_, (kCount - 1 - i) * kPiece, nullptr, &request),
                TW_OK);
      if (request != TW_REQUEST_NONE) requests.push_back(request);
    }
    tw_request flush = TW_REQUEST_NONE;
    ASSERT_GE(tw_endpoint_flush(endpoint_, &flush), TW_OK);
    if (flush != TW_REQUEST_NONE) {
      ASSERT_EQ(tw_request_finish(flush), TW_OK) << tw_last_error();
    }
    for (const tw_request request : requests) ASSERT_EQ(tw_request_finish(request), TW_OK) << tw_last_error();
    const std::vector<unsigned char> got = load(target_);
    for (size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(std::memcmp(&got[(kCount - 1 - i) * kPiece], &payload[i * kPiece], kPiece), 0) << i;
    store(target_, std::vector<unsigned char>(kBytes, 0x5a));
  }
  EXPECT_GT(persistent()->taken(), 0u);
}

TEST_F(PersistentOperations, ExplainSaysSo) {
  char text[4096];
  size_t length = sizeof text;
  ASSERT_EQ(tw_endpoint_explain_buffer(endpoint_, "put", tw_memory_address(source_), 8, remote_, nullptr, text, &length), TW_OK)
      << tw_last_error();
  EXPECT_NE(std::string(text).find("chosen: direct, by the persistent kernel while it runs"), std::string::npos) << text;
  length = sizeof text;
  ASSERT_EQ(
      tw_endpoint_explain_buffer(endpoint_, "send", tw_memory_address(source_), 64 << 10, nullptr, nullptr, text, &length),
      TW_OK);
  EXPECT_NE(std::string(text).find("chosen: push by this device, by the persistent kernel while it runs"), std::string::npos)
      << text;
  // Into pinned memory the source's device copies, too.
  length = sizeof text;
  ASSERT_EQ(tw_endpoint_explain_buffer(endpoint_, "send", tw_memory_address(source_), 8, nullptr, nullptr, text, &length),
            TW_OK);
  EXPECT_NE(std::string(text).find("into pinned memory:\n* push by this device, by the persistent kernel while it runs"),
            std::string::npos)
      << text;
  // Out of pinned memory the target's device copies, and a dense layout is one row.
  tw_memory* pinned = allocate("pinned", 1);
  length = sizeof text;
  ASSERT_EQ(tw_endpoint_explain_buffer(endpoint_, "put", tw_memory_address(pinned), 8, remote_, nullptr, text, &length), TW_OK);
  EXPECT_NE(std::string(text).find("chosen: direct, by the persistent kernel while it runs"), std::string::npos) << text;
  EXPECT_EQ(tw_memory_release(pinned), TW_OK);
  for (const int64_t stride : {16, 32}) {
    tw_layout* rows = nullptr;
    const uint64_t count = 4;
    ASSERT_EQ(tw_layout_strided(1, 16, &count, &stride, &rows), TW_OK) << tw_last_error();
    tw_op_options by_rows = TW_OP_OPTIONS_INIT;
    by_rows.remote_layout = rows;
    length = sizeof text;
    ASSERT_EQ(tw_endpoint_explain_buffer(endpoint_, "put", tw_memory_address(source_), 64, remote_, &by_rows, text, &length),
              TW_OK);
    EXPECT_EQ(std::string(text).find("persistent") != std::string::npos, stride == 16) << text;
    tw_layout_destroy(rows);
  }
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.place = "emulated:0";
  constexpr size_t kLong = 4 << 20;
  tw_memory* large = nullptr;
  ASSERT_EQ(tw_memory_allocate(context_, kLong, &options, &large), TW_OK) << tw_last_error();
  length = sizeof text;
  EXPECT_EQ(tw_endpoint_explain_buffer(endpoint_, "send", tw_memory_address(large), kLong, nullptr, nullptr, text, &length),
            TW_OK);
  EXPECT_EQ(std::string(text).find("persistent"), std::string::npos) << text;
  EXPECT_EQ(tw_memory_release(large), TW_OK);
}

/// The kernel's answer is what a release waits for; what it returns is turned away, as the device has yet to get it.
TEST_F(PersistentOperations, AReleaseWaitsForTheKernelAndForNoProgress) {
  store(source_, random_bytes());
  unsigned by_kernel = 0;
  for (int round = 0; round < 20; ++round) {
    tw_memory* const released = allocate("emulated:1", 1);
    unsigned char key[kKeyRoom];
    size_t length = sizeof key;
    ASSERT_EQ(tw_memory_export(released, key, &length), TW_OK) << tw_last_error();
    tw_remote_memory* remote = nullptr;
    ASSERT_EQ(tw_memory_import(endpoint_, key, length, &remote), TW_OK) << tw_last_error();
    tw_request request = TW_REQUEST_NONE;
    uint64_t taken = 0;
    for (int i = 0; i < 100'000 && taken == 0; ++i) {  // the kernel has to be there first
      if (request != TW_REQUEST_NONE) {
        ASSERT_EQ(tw_request_finish(request), TW_OK) << tw_last_error();
      }
      const uint64_t before = persistent()->taken();
      request = TW_REQUEST_NONE;
      ASSERT_GE(tw_put(endpoint_, at(source_, 0), 64, remote, 0, nullptr, &request), TW_OK) << tw_last_error();
      taken = persistent()->taken() - before;
    }
    by_kernel += taken != 0;
    ASSERT_EQ(tw_memory_release(released), TW_OK) << tw_last_error();
    const tw_status status = request != TW_REQUEST_NONE ? tw_request_finish(request) : TW_OK;
    EXPECT_TRUE(status == TW_OK || status == TW_ERR_STALE) << status;
    tw_remote_memory_release(remote);
  }
  EXPECT_GT(by_kernel, 0u);
}

TEST_F(PersistentOperations, TheyEndWithTheWorker) {
  store(source_, random_bytes());
  for (int i = 0; i < 100; ++i) {
    tw_request request = TW_REQUEST_NONE;
    ASSERT_GE(tw_put(endpoint_, at(source_, 0), 100, remote_, 0, nullptr, &request), TW_OK);
    if (request != TW_REQUEST_NONE && i < 90) {
      ASSERT_EQ(tw_request_finish(request), TW_OK) << tw_last_error();
    }
  }
  const std::weak_ptr<PersistentCopier> kernel = persistent();
  tw_remote_memory_release(remote_);
  remote_ = nullptr;
  (void)tw_endpoint_close(endpoint_, TW_CLOSE_FORCE, nullptr);
  endpoint_ = nullptr;
  tw_worker_destroy(worker_);
  worker_ = nullptr;
  EXPECT_TRUE(kernel.expired());
}

TEST(PersistentOptionsOfAContext, AreCheckedAndComeFromTheEnvironment) {
  const auto create = [](uint32_t blocks, uint64_t idle_ns, const char* environment) {
    environment != nullptr ? ::setenv("THALWEG_PERSISTENT", environment, 1) : ::unsetenv("THALWEG_PERSISTENT");
    tw_context_options options = TW_CONTEXT_OPTIONS_INIT;
    options.persistent_blocks = blocks;
    options.persistent_idle_ns = idle_ns;
    tw_context* context = nullptr;
    const tw_status status = tw_context_create(&options, &context);
    tw_context_destroy(context);
    ::unsetenv("THALWEG_PERSISTENT");
    return status;
  };
  for (const char* good : {"1", "8", "2,500", "0"}) EXPECT_EQ(create(0, 0, good), TW_OK) << good << ": " << tw_last_error();
  for (const char* bad : {"nine", "9", "1,", "1,9", "1,100001", "1,5x", "-1"}) {
    EXPECT_EQ(create(0, 0, bad), TW_ERR_INVALID) << bad;
    EXPECT_NE(std::string(tw_last_error()).find("THALWEG_PERSISTENT"), std::string::npos);
  }
  EXPECT_EQ(create(8, 100'000'000, nullptr), TW_OK);
  EXPECT_EQ(create(9, 0, nullptr), TW_ERR_INVALID);
  EXPECT_EQ(create(1, 9'999, nullptr), TW_ERR_INVALID);
}

}  // namespace
}  // namespace thalweg::impl
