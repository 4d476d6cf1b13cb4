// SPDX-License-Identifier: Apache-2.0
// The plans that queues keep for operations on them: which calls share one, and what happens to it when something ends.
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <mutex>

#include "copying_peer.hpp"
#include "core/context.hpp"
#include "devices/registry.hpp"
#include "pair.hpp"
#include "plans/c_steps.hpp"
#include "plans/channel.hpp"
#include "plans/proxy.hpp"
#include "plans/queue.hpp"

namespace thalweg::tests {
namespace {

class Kept : public Pair {};
INSTANTIATE_TEST_SUITE_P(Ways, Kept, testing::ValuesIn(kWays), [](const auto& info) { return info.param.name; });

/// A function on the host's queue, which ends when it is told to.
class Held {
 public:
  void on(tw_queue* queue) {
    ASSERT_EQ(tw_queue_call(
                  queue, [](void* arg) { static_cast<Held*>(arg)->go_.get_future().wait(); }, this),
              TW_OK)
        << tw_last_error();
  }
  void go() { go_.set_value(); }

 private:
  std::promise<void> go_;
};

/// Each call uses its own layout's bytes, also where that lies where another one did, which has been destroyed.
TEST_P(Kept, LayoutsAreToldApartByWhatTheySay) {
  constexpr uint64_t kBytes[] = {64, 8, 40, 8, 24};
  Target target;
  make_target(b, a, GetParam().place, 64, TW_SIGNAL_ADD, &target);
  unsigned char* const from = memory(a, 64);
  tw_queue* const qa = queue(a);
  std::atomic<bool> stop{false};
  std::thread progress([&] {
    while (!stop) tw_worker_progress(b.worker);
  });
  for (const uint64_t bytes : kBytes) {
    const Bytes data = random_bytes(64), before = random_bytes(64);
    a.store(from, data);
    b.store(target.address, before);
    tw_layout* layout = nullptr;
    const tw_piece piece{0, bytes};
    ASSERT_EQ(tw_layout_pieces(&piece, 1, &layout), TW_OK) << tw_last_error();
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.layout = layout;
    EXPECT_EQ(tw_put_on(qa, a.endpoint, from, 0, target.remote, 0, &options), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
    tw_layout_destroy(layout);
    Bytes wanted = before;
    std::copy_n(data.begin(), bytes, wanted.begin());
    EXPECT_TRUE(b.load(target.address, 64) == wanted) << bytes << " bytes";
  }
  stop = true;
  progress.join();
}

/// Its memory is gone, so it cannot be prepared again: each call says so, and none writes to what the plan had.
TEST_P(Kept, WhatCannotBePreparedAgainSaysWhy) {
  if (GetParam().mapped) return;  // mapped memory stays until its importer lets it go
  constexpr size_t kSize = 100;
  tw_memory* gone = nullptr;
  (void)b.memory(GetParam().place, kSize, &gone);
  b.memories.pop_back();
  unsigned char key[kKeyRoom];
  size_t size = sizeof key;
  ASSERT_EQ(tw_memory_export_range(gone, 0, kSize, 0, key, &size), TW_OK) << tw_last_error();
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_import(a.endpoint, key, size, &remote), TW_OK) << tw_last_error();
  Target target;
  make_target(b, a, GetParam().place, 8, TW_SIGNAL_ADD, &target);
  unsigned char* const from = memory(a, kSize);
  tw_queue* const qa = queue(a);
  std::atomic<bool> stop{false};
  std::thread progress([&] {
    while (!stop) tw_worker_progress(b.worker);
  });
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.signal = target.remote_signal;
  options.signal_op = TW_SIGNAL_ADD;
  options.signal_value = 1;
  EXPECT_EQ(tw_put_on(qa, a.endpoint, from, kSize, remote, 0, &options), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_memory_release(gone), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_put_on(qa, a.endpoint, from, kSize, remote, 0, &options), TW_OK) << tw_last_error();
  EXPECT_NE(tw_queue_synchronize(qa), TW_OK);
  for (uint64_t i = 0; i < 4; ++i) {
    options.signal_value = i;
    const tw_status again = tw_put_on(qa, a.endpoint, from, kSize, remote, 0, &options);
    if (again == TW_OK) {
      EXPECT_NE(tw_queue_synchronize(qa), TW_OK);
    } else {
      EXPECT_EQ(std::string(tw_last_error()).find("tw_plan_prepare"), std::string::npos) << tw_last_error();
    }
  }
  stop = true;
  progress.join();
  tw_remote_memory_release(remote);
}

/// The proxy's thread stands for a peer's: it is stopped in the middle of a message, until its lock is given back. Only a device's runs
/// leave all progress to it.
TEST_P(Kept, APlanWhoseQueueHasGoneEndsWhenItsPeerGoesOn) {
  if (GetParam().mapped || std::strcmp(GetParam().place, "host") == 0) return;
  constexpr size_t kSize = 16u << 20;
  unsigned char *const from = memory(a, kSize), *const to = memory(b, kSize);
  impl::Proxy *of_a = nullptr, *of_b = nullptr;
  ASSERT_EQ(impl::Proxy::of(*a.context, &of_a), TW_OK);
  ASSERT_EQ(impl::Proxy::of(*b.context, &of_b), TW_OK);
  const unsigned before = of_b->users();
  tw_queue *const qa = queue(a), *qb = nullptr;
  const auto make = [&] { ASSERT_EQ(tw_queue_create(b.context, GetParam().place, nullptr, &qb), TW_OK) << tw_last_error(); };
  const auto send = [&] { EXPECT_EQ(tw_send_on(qa, a.endpoint, from, kSize, 1, nullptr), TW_OK) << tw_last_error(); };
  const auto receive = [&] { EXPECT_EQ(tw_recv_on(qb, b.endpoint, to, kSize, 1, nullptr), TW_OK) << tw_last_error(); };
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto waits = [&](bool so) {
    std::this_thread::yield();
    return so && std::chrono::steady_clock::now() < limit;
  };
  const auto has_come = [&] { return tw_probe(&of_b->worker(), 0, 0, nullptr, nullptr, nullptr) == TW_OK; };
  make();
  both(send, receive);
  EXPECT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
  send();
  while (waits(!has_come())) continue;
  std::unique_lock stopped(of_a->mutex());
  receive();
  while (waits(has_come())) continue;
  impl::Proxy::Route route;
  ASSERT_EQ(of_b->route(*b.endpoint, &route), TW_OK) << tw_last_error();
  {
    const std::lock_guard lock(of_b->mutex());
    impl::Channel* channel = nullptr;
    ASSERT_EQ(of_b->channel(route, false, 1, 0, qb->executor, &channel), TW_OK) << tw_last_error();
    channel->fail_end(channel->epoch(), TW_ERR_TIMED_OUT, "instead of 30 s");
  }
  tw_queue_destroy(qb);
  EXPECT_GT(of_b->users(), before) << "the peer had nothing under way";
  make();
  tw_queue_destroy(qb);
  EXPECT_GT(of_b->users(), before);
  stopped.unlock();
  while (waits(of_b->users() != before)) {
    make();
    tw_queue_destroy(qb);
  }
  EXPECT_EQ(of_b->users(), before);
}

/// Until the run has ended, and as long as a graph has it.
TEST_P(Kept, BuffersAreInUseWhileARunOrAGraphHasThem) {
  constexpr size_t kSize = 3'001;
  Target target;
  make_target(b, a, GetParam().place, 8, TW_SIGNAL_ADD, &target);
  unsigned char *const x = memory(b, kSize), *const y = memory(b, kSize), *const z = memory(b, kSize);
  tw_queue *const qa = queue(a), *const qb = queue(b);
  const auto uses = [&](const void* address) {
    int in_use = -1;
    EXPECT_EQ(tw_queue_uses(qb, address, kSize, &in_use), TW_OK) << tw_last_error();
    return in_use;
  };
  const Bytes data = random_bytes(kSize);
  b.store(x, data);
  EXPECT_EQ(uses(x), 0);
  ASSERT_EQ(tw_copy_on(qb, y, x, kSize, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
  EXPECT_EQ(uses(x) + uses(y), 0);
  ASSERT_EQ(tw_wait_on(qb, target.signal, 1, TW_COMPARE_GE, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_copy_on(qb, y, x, kSize, nullptr), TW_OK) << tw_last_error();
  EXPECT_EQ(uses(x) + uses(y), 2);
  EXPECT_EQ(uses(z), 0);
  std::atomic<bool> stop{false};
  std::thread progress([&] {
    while (!stop) tw_worker_progress(b.worker);
  });
  EXPECT_EQ(tw_signal_on(qa, target.remote_signal, 1, nullptr), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
  stop = true;
  progress.join();
  EXPECT_TRUE(b.load(y, kSize) == data);
  EXPECT_EQ(uses(x) + uses(y), 0);
  tw_graph* graph = nullptr;
  ASSERT_EQ(tw_queue_begin_capture(qb), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_copy_on(qb, y, x, kSize, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_end_capture(qb, &graph), TW_OK) << tw_last_error();
  EXPECT_EQ(uses(x) + uses(y), 2);
  tw_graph_destroy(graph);
  EXPECT_EQ(uses(x) + uses(y), 0);
  int unused = 0;
  EXPECT_EQ(tw_queue_uses(qb, x, kSize, nullptr), TW_ERR_INVALID);
  EXPECT_EQ(tw_queue_uses(nullptr, x, kSize, &unused), TW_ERR_INVALID);
}

class KeptMapped : public Pair {};
INSTANTIATE_TEST_SUITE_P(Ways, KeptMapped, testing::Values(kWays[0], kWays[1]),
                         [](const auto& info) { return info.param.name; });

/// Of more receives than a queue keeps, the oldest one's buffer is taken back, and in use until the peer has given it back.
TEST_P(KeptMapped, ABufferThatThePeerGivesBackLaterIsInUseUntilThen) {
  constexpr size_t kSize = 40, kReceives = 193;
  impl::Proxy* proxy = nullptr;
  ASSERT_EQ(impl::Proxy::of(*b.context, &proxy), TW_OK);
  unsigned char *const from = memory(a, kSize), *const to = memory(b, kSize * kReceives);
  tw_queue *const qa = queue(a), *const qb = queue(b);
  const Bytes data = random_bytes(kSize);
  a.store(from, data);
  CopyingPeer peer(*b.context->registry);
  proxy->patience = std::chrono::milliseconds(20);
  both(
      [&] {
        for (size_t i = 0; i < kReceives; ++i) {
          ASSERT_EQ(tw_send_on(qa, a.endpoint, from, kSize, 1, nullptr), TW_OK) << tw_last_error();
          ASSERT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
        }
      },
      [&] {
        for (size_t i = 0; i < kReceives; ++i) {
          ASSERT_EQ(tw_recv_on(qb, b.endpoint, to + i * kSize, kSize, 1, nullptr), TW_OK) << tw_last_error();
          ASSERT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
        }
      });
  const auto uses = [&](size_t i) {
    int in_use = -1;
    EXPECT_EQ(tw_queue_uses(qb, to + i * kSize, kSize, &in_use), TW_OK) << tw_last_error();
    return in_use;
  };
  EXPECT_EQ(uses(0), 1);
  EXPECT_EQ(uses(1), 0);
  peer.stopped = false;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (uses(0) != 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  EXPECT_EQ(uses(0), 0);
  proxy->patience = std::chrono::seconds(5);
}

class KeptByTheHost : public Pair {};
INSTANTIATE_TEST_SUITE_P(Ways, KeptByTheHost, testing::Values(kWays[0], kWays[2]),
                         [](const auto& info) { return info.param.name; });

/// The capture is dropped; what the queue was given before is done.
TEST_P(KeptByTheHost, AQueueThatEndsWithinACaptureDoesItsWork) {
  constexpr size_t kSize = 5'003;
  Target target;
  make_target(b, a, GetParam().place, kSize, TW_SIGNAL_ADD, &target);
  unsigned char* const from = memory(a, kSize);
  const Bytes data = random_bytes(kSize);
  a.store(from, data);
  std::atomic<bool> stop{false};
  std::thread progress([&] {
    while (!stop) tw_worker_progress(b.worker);
  });
  tw_queue* ends = nullptr;
  ASSERT_EQ(tw_queue_create(a.context, "host", nullptr, &ends), TW_OK) << tw_last_error();
  Held held;
  held.on(ends);
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.signal = target.remote_signal;
  options.signal_op = TW_SIGNAL_ADD;
  options.signal_value = 1;
  EXPECT_EQ(tw_put_on(ends, a.endpoint, from, kSize, target.remote, 0, &options), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_begin_capture(ends), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_signal_on(ends, target.remote_signal, 100, nullptr), TW_ERR_INVALID);  // new: it cannot be prepared now
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    held.go();
  });
  tw_queue_destroy(ends);
  later.join();
  EXPECT_EQ(tw_signal_read(target.signal), 1u);
  EXPECT_TRUE(b.load(target.address, kSize) == data);
  stop = true;
  progress.join();
}

TEST_P(KeptByTheHost, AFunctionOfTheQueueCannotWaitForIt) {
  tw_queue* const qa = queue(a);
  struct Asked {
    tw_queue* queue;
    tw_status status;
    std::string why;
  } asked{qa, TW_OK, ""};
  const auto ask = [](void* arg) {
    auto* const of = static_cast<Asked*>(arg);
    of->status = tw_queue_synchronize(of->queue);
    of->why = tw_last_error();
  };
  ASSERT_EQ(tw_queue_call(qa, ask, &asked), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
  EXPECT_EQ(asked.status, TW_ERR_INVALID);
  EXPECT_NE(asked.why.find("wait for itself"), std::string::npos) << asked.why;
}

/// A wait for another signal at the same word is prepared again for that one: the first is not there any more.
TEST_P(Kept, AWaitIsForTheSignalThatIsThere) {
  const auto signal_at = [this](tw_memory* at) {
    tw_signal_options options = TW_SIGNAL_OPTIONS_INIT;
    options.memory = at;
    tw_signal* made = nullptr;
    EXPECT_EQ(tw_signal_create(a.worker, &options, &made), TW_OK) << tw_last_error();
    return made;
  };
  tw_memory* at = nullptr;
  a.store(memory(a, 64, &at), Bytes(64, 0));
  tw_queue* const qa = queue(a);
  tw_signal* const first = signal_at(at);
  ASSERT_EQ(tw_wait_on(qa, first, 0, TW_COMPARE_GE, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
  // As behind a failure.
  impl::PlanStep step;
  ASSERT_EQ(impl::wait_step(first, TW_COMPARE_GE, 0, &step), TW_OK);
  ASSERT_EQ(qa->kept(std::move(step), TW_OP_OPTIONS_INIT, [](tw_plan& kept) { return kept.release(); }), TW_OK)
      << tw_last_error();
  ASSERT_EQ(tw_signal_destroy(first), TW_OK) << tw_last_error();
  tw_signal* const second = signal_at(at);
  ASSERT_EQ(tw_wait_on(qa, second, 0, TW_COMPARE_GE, nullptr), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_signal_destroy(second), TW_OK) << tw_last_error();
}

alignas(4096) unsigned char in_static_data[8192];

/// A device reaches it while it is pinned. What it is then, its place does not say: no device owns static data.
TEST_P(Kept, ABufferThatIsPinnedNoMoreHasAnotherPlan) {
  if (std::string(GetParam().place) == "host") GTEST_SKIP() << "the host's queue reaches it anyway";
  constexpr size_t kSize = 5'003;
  Target target;
  make_target(b, a, GetParam().place, kSize, TW_SIGNAL_ADD, &target);
  tw_queue* const qa = queue(a);
  impl::Device* const device = impl::list_devices(nullptr)[0];
  std::atomic<bool> stop{false};
  std::thread progress([&] {
    while (!stop) tw_worker_progress(b.worker);
  });
  const auto put = [&](const char* when) {
    const Bytes data = random_bytes(kSize);
    std::copy(data.begin(), data.end(), in_static_data + 1);
    EXPECT_EQ(tw_put_on(qa, a.endpoint, in_static_data + 1, kSize, target.remote, 0, nullptr), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_queue_synchronize(qa), TW_OK) << when << ": " << tw_last_error();
    EXPECT_TRUE(b.load(target.address, kSize) == data) << when;
  };
  for (int turn = 0; turn < 3 && !HasFailure(); ++turn) {
    EXPECT_EQ(device->register_host(in_static_data, sizeof in_static_data), TW_OK) << impl::last_error();
    put("pinned");
    put("pinned, again");
    EXPECT_EQ(device->unregister_host(in_static_data), TW_OK) << impl::last_error();
    put("not pinned");
    put("not pinned, again");
  }
  stop = true;
  progress.join();
}

/// They share a plan, and each run has the value of its own call.
TEST_P(Kept, ThreadsOfAQueueDoNotTakeEachOthersValues) {
  const uint64_t each = GetParam().mapped ? 4'000 : 50;
  Target target;
  make_target(b, a, GetParam().place, 8, TW_SIGNAL_ADD, &target);
  tw_queue* const qa = queue(a);
  std::atomic<bool> stop{false};
  std::thread progress([&] {
    while (!stop) tw_worker_progress(b.worker);
  });
  const auto add = [&](uint64_t value) {
    for (uint64_t i = 0; i < each; ++i)
      ASSERT_EQ(tw_signal_on(qa, target.remote_signal, value, nullptr), TW_OK) << tw_last_error();
  };
  add(0);  // prepares it
  both([&] { add(1); }, [&] { add(1'000'003); });
  EXPECT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_signal_read(target.signal), each * 1'000'004);
  stop = true;
  progress.join();
}

/// Pieces of about a length share memory, and long ones have their own, which goes with them.
TEST_P(Kept, WhatIsGivenBackIsTakenAgain) {
  impl::Proxy* proxy = nullptr;
  ASSERT_EQ(impl::Proxy::of(*a.context, &proxy), TW_OK) << tw_last_error();
  impl::Executor* by = nullptr;
  ASSERT_EQ(proxy->executor_at(GetParam().place, &by), TW_OK) << tw_last_error();
  impl::Arena& arena = by->shared();
  for (const size_t first : {size_t{70'000}, size_t{5} << 20}) {
    const size_t before = arena.bytes();
    for (size_t turn = 0; turn < 50; ++turn) {
      uint64_t address = 0;
      ASSERT_EQ(arena.allocate(first + 64 * turn, &address), TW_OK) << tw_last_error();
      ASSERT_NE(arena.holder(address), nullptr);
      arena.free(address, first + 64 * turn);
    }
    const size_t kept =
        by->device() == nullptr ? 0 : 2 * first + (size_t{1} << 20);  // two size classes: not given back, taken again
    EXPECT_LE(arena.bytes(), before + kept + (size_t{2} << 20)) << first;
  }
}

/// Prepare takes no longer than it is given, where a peer does not map what it exported.
TEST_P(Kept, PrepareKeepsItsLimit) {
  Target target;
  make_target(b, a, GetParam().place, 64, TW_SIGNAL_ADD, &target);
  tw_plan* const puts = plan(a);
  ASSERT_EQ(tw_plan_put(puts, a.endpoint, memory(a, 64), 64, target.remote, 0, nullptr, nullptr), TW_OK) << tw_last_error();
  const auto begin = std::chrono::steady_clock::now();
  const tw_status status = tw_plan_prepare(puts, 50'000'000);  // nobody progresses b
  EXPECT_TRUE(status == TW_OK || status == TW_ERR_TIMED_OUT) << tw_last_error();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace thalweg::tests
