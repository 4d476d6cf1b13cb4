// SPDX-License-Identifier: Apache-2.0
// Plans of a device in host memory of another context of this process, of whatever kind it is, and of the host in managed memory.
#include <gtest/gtest.h>

#include <atomic>

#include "../../fixtures/rooms.hpp"
#include "devices/deferred_release.hpp"
#include "devices/registry.hpp"
#include "unit/plans/pair.hpp"

namespace thalweg::tests {
namespace {

constexpr size_t kLength = 30'011, kGuard = 77, kAll = kLength + 2 * kGuard;

class HostMemory : public Pair {
 protected:
  tw_remote_memory* import(tw_memory* memory) {
    unsigned char key[kKeyRoom];
    size_t length = sizeof key;
    EXPECT_EQ(tw_memory_export(memory, key, &length), TW_OK) << tw_last_error();
    tw_remote_memory* remote = nullptr;
    EXPECT_EQ(tw_memory_import(a.endpoint, key, length, &remote), TW_OK) << tw_last_error();
    a.last.emplace_back([remote] { tw_remote_memory_release(remote); });
    return remote;
  }
  tw_plan* plan_at(const char* place) {
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = place;
    tw_plan* made = nullptr;
    EXPECT_EQ(tw_plan_create(a.context, &options, &made), TW_OK) << tw_last_error();
    a.last.emplace_back([made] { EXPECT_EQ(tw_plan_destroy(made), TW_OK) << tw_last_error(); });
    return made;
  }
  /// Prepares with b's worker in progress, as its prepare would.
  void prepare(tw_plan* of) {
    std::atomic<bool> stop{false};
    std::thread progress([&] {
      while (!stop) tw_worker_progress(b.worker);
    });
    EXPECT_EQ(tw_plan_prepare(of, kLong), TW_OK) << tw_last_error();
    stop = true;
    progress.join();
  }
  /// A plan of a at `place` puts into `memory` of b, and gets it back.
  tw_plan* make(const char* place, tw_memory* memory) {
    tw_plan* const plan = plan_at(place);
    tw_remote_memory* const remote = import(memory);
    from_ = a.memory(place, 2 * kLength);
    uint32_t put = 0;
    EXPECT_EQ(tw_plan_put(plan, a.endpoint, from_, kLength, remote, kGuard, nullptr, &put), TW_OK) << tw_last_error();
    tw_op_options then = TW_OP_OPTIONS_INIT;
    then.after_steps = &put;
    then.after_count = 1;
    EXPECT_EQ(tw_plan_get(plan, a.endpoint, from_ + kLength, kLength, remote, kGuard, &then, nullptr), TW_OK);
    return plan;
  }
  void run(tw_plan* plan, unsigned char* to) {
    for (int i = 0; i < 3; ++i) {
      const Bytes data = random_bytes(kLength), around = random_bytes(kAll);
      a.store(from_, data);
      a.store(from_ + kLength, Bytes(kLength));
      b.store(to, around);
      ASSERT_EQ(tw_plan_run(plan, kLong), TW_OK) << tw_last_error();
      Bytes wanted = around;
      std::copy(data.begin(), data.end(), wanted.begin() + kGuard);
      EXPECT_TRUE(b.load(to, kAll) == wanted);
      EXPECT_TRUE(a.load(from_ + kLength, kLength) == data);
    }
  }
  unsigned char* from_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Shm, HostMemory, testing::Values(kWays[1]), [](const auto& info) { return info.param.name; });

TEST_P(HostMemory, OfTheLibraryIsReachedByADevice) {
  for (const char* place : {"host", "pinned"}) {
    SCOPED_TRACE(place);
    tw_memory* memory = nullptr;
    unsigned char* const to = b.memory(place, kAll, &memory);
    tw_plan* const plan = make("emulated:0", memory);
    prepare(plan);
    EXPECT_EQ(explain(plan).find("by the host"), std::string::npos) << explain(plan);
    EXPECT_TRUE(impl::is_pinned(to));
    run(plan, to);
  }
}

/// It is pinned in its owner's name: until its release, whoever uses it then.
TEST_P(HostMemory, OfAnySortIsReachedByADeviceAndUnpinnedByItsOwnersRelease) {
  Bytes to(kAll);
  tw_memory* memory = nullptr;
  ASSERT_EQ(tw_memory_register(b.context, to.data(), to.size(), nullptr, &memory), TW_OK) << tw_last_error();
  tw_plan* const plan = make("emulated:1", memory);
  EXPECT_FALSE(impl::is_pinned(to.data()));
  prepare(plan);
  EXPECT_EQ(explain(plan).find("by the host"), std::string::npos) << explain(plan);
  EXPECT_TRUE(impl::is_pinned(to.data()));
  run(plan, to.data());
  ASSERT_EQ(tw_memory_release(memory), TW_OK) << tw_last_error();
  EXPECT_FALSE(impl::is_pinned(to.data()));
  EXPECT_EQ(tw_plan_prepare(plan, kLong), TW_ERR_STALE) << tw_last_error();
}

/// Somebody else has pinned a part of it: the host carries it, and the text says that it could not be pinned.
TEST_P(HostMemory, ThatCannotBePinnedIsCarried) {
  Bytes to(kAll + (64u << 10));
  impl::Device* const device = impl::list_devices(nullptr)[0];
  ASSERT_EQ(device->register_host(to.data() + (32u << 10), 4096), TW_OK) << impl::last_error();
  tw_memory* memory = nullptr;
  ASSERT_EQ(tw_memory_register(b.context, to.data(), to.size(), nullptr, &memory), TW_OK) << tw_last_error();
  b.memories.push_back(memory);
  tw_plan* const plan = make("emulated:0", memory);
  prepare(plan);
  EXPECT_NE(explain(plan).find("by the host"), std::string::npos) << explain(plan);
  EXPECT_NE(explain(plan).find("could not be pinned"), std::string::npos) << explain(plan);
  run(plan, to.data());
  ASSERT_EQ(tw_plan_destroy(plan), TW_OK) << tw_last_error();
  a.last.erase(a.last.end() - 2);  // the plan's; the region's is behind it
  EXPECT_EQ(device->unregister_host(to.data() + (32u << 10)), TW_OK) << impl::last_error();
}

/// Of the plan's own side: the library's is pinned until its release; a word there is not waited for.
TEST_P(HostMemory, OfTheLibraryHereIsReachedByADeviceToo) {
  tw_memory* memory = nullptr;
  unsigned char *const host = a.memory("host", kAll, &memory), *const device = a.memory("emulated:0", kLength);
  tw_plan* plan = nullptr;
  tw_plan_options options = TW_PLAN_OPTIONS_INIT;
  options.place = "emulated:0";
  ASSERT_EQ(tw_plan_create(a.context, &options, &plan), TW_OK) << tw_last_error();
  uint32_t there = 0;
  ASSERT_EQ(tw_plan_copy(plan, device, host + kGuard, kLength, nullptr, &there), TW_OK) << tw_last_error();
  tw_op_options then = TW_OP_OPTIONS_INIT;
  then.after_steps = &there;
  then.after_count = 1;
  ASSERT_EQ(tw_plan_copy(plan, host, device, 11, &then, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(plan, kLong), TW_OK) << tw_last_error();
  EXPECT_TRUE(impl::is_pinned(host));
  for (int i = 0; i < 3; ++i) {
    Bytes data = random_bytes(kAll);
    a.store(host, data);
    a.store(device, Bytes(kLength));
    ASSERT_EQ(tw_plan_run(plan, kLong), TW_OK) << tw_last_error();
    EXPECT_TRUE(a.load(device, kLength) == Bytes(data.begin() + kGuard, data.begin() + kGuard + kLength));
    std::copy_n(data.begin() + kGuard, 11, data.begin());
    EXPECT_TRUE(a.load(host, kAll) == data);
  }
  ASSERT_EQ(tw_plan_destroy(plan), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_memory_release(memory), TW_OK) << tw_last_error();
  impl::await_releases(kLong);
  EXPECT_FALSE(impl::is_pinned(host));
  a.memories.erase(a.memories.begin());

  tw_signal_options of_signal = TW_SIGNAL_OPTIONS_INIT;
  tw_signal* signal = nullptr;
  ASSERT_EQ(tw_signal_create(a.worker, &of_signal, &signal), TW_OK) << tw_last_error();
  a.last.emplace_back([signal] { (void)tw_signal_destroy(signal); });
  tw_plan* const waits = plan_at("emulated:0");
  ASSERT_EQ(tw_plan_wait(waits, signal, 1, TW_COMPARE_GE, nullptr, nullptr), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_prepare(waits, kLong), TW_ERR_UNSUPPORTED);
  EXPECT_NE(std::string(tw_last_error()).find("with the place"), std::string::npos) << tw_last_error();
}

TEST_P(HostMemory, ThatIsManagedIsReachedByTheHostWithinOneProcess) {
  tw_memory* memory = nullptr;
  unsigned char* const to = b.memory("emulated-managed:0", kAll, &memory);
  tw_plan* const plan = make("host", memory);
  prepare(plan);
  EXPECT_EQ(explain(plan).find("by the host"), std::string::npos) << explain(plan);
  run(plan, to);
}

}  // namespace
}  // namespace thalweg::tests
