// SPDX-License-Identifier: Apache-2.0
// When a plan is at rest: it is not while a queue has a run of it before it, also one that will do nothing because the plan failed.
#include <atomic>
#include <chrono>
#include <future>
#include <utility>

#include "../../fixtures/rooms.hpp"
#include "core/context.hpp"
#include "pair.hpp"
#include "plans/channel.hpp"
#include "plans/proxy.hpp"
#include "plans/queue.hpp"

namespace thalweg::tests {
namespace {

class PlansAtRest : public Pair {
 protected:
  /// A word of a's that b stores to.
  struct Gate {
    tw_signal* signal = nullptr;
    tw_remote_signal* remote = nullptr;
  };
  Gate make_gate() {
    Gate made;
    tw_signal_options options = TW_SIGNAL_OPTIONS_INIT;
    tw_memory* at = nullptr;
    memory(a, 64, &at);
    options.memory = at;
    EXPECT_EQ(tw_signal_create(a.worker, &options, &made.signal), TW_OK) << tw_last_error();
    unsigned char key[kKeyRoom];
    size_t length = sizeof key;
    EXPECT_EQ(tw_signal_export(made.signal, key, &length), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_signal_import(b.endpoint, key, length, &made.remote), TW_OK) << tw_last_error();
    a.last.emplace_back([made] { (void)tw_signal_destroy(made.signal); });
    b.last.emplace_back([made] { tw_remote_signal_release(made.remote); });
    return made;
  }
  void open(const Gate& gate, uint64_t value) {
    std::atomic<bool> stop{false};
    std::thread progress([&] {  // a's worker serves b over frames
      while (!stop) tw_worker_progress(a.worker);
    });
    tw_request request = TW_REQUEST_NONE;
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.flags = TW_OP_REMOTE;
    const tw_status status = tw_signal_post(gate.remote, value, &options, &request);
    EXPECT_TRUE(status == TW_OK || tw_request_finish(request) == TW_OK) << tw_last_error();
    stop = true;
    progress.join();
  }
  /// Waits for the gate, at most `limit`.
  tw_plan* waiting(const Gate& gate, uint64_t limit) {
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = GetParam().place;
    options.timeout_ns = limit;
    tw_plan* made = nullptr;
    EXPECT_EQ(tw_plan_create(a.context, &options, &made), TW_OK);
    EXPECT_EQ(tw_plan_wait(made, gate.signal, 1, TW_COMPARE_GE, nullptr, nullptr), TW_OK);
    EXPECT_EQ(tw_plan_prepare(made, 0), TW_OK) << tw_last_error();
    return made;
  }
  /// A graph of the queue's stream, as the program captures it.
  static void capture_stream(tw_plan* of, tw_queue* on, tw_graph** graph) {
    ASSERT_EQ(tw_queue_begin_capture(on), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_trigger_stream(of, tw_queue_native(on)), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_end_capture(on, graph), TW_OK) << tw_last_error();
  }
  static tw_status until(const std::function<tw_status()>& ask, tw_status wanted) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    tw_status status = TW_OK;
    while ((status = ask()) != wanted && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    return status;
  }
};
INSTANTIATE_TEST_SUITE_P(Mapped, PlansAtRest, testing::Values(kWays[0], kWays[1]),
                         [](const auto& info) { return info.param.name; });

/// Runs of a stream's own graphs are not counted when they are launched, but when they end: that hides none that is to come.
TEST_P(PlansAtRest, NotWhileARunBehindGraphsOfAStreamIsToCome) {
  if (std::strcmp(GetParam().place, "host") == 0) return;  // it has no streams
  const Gate gate = make_gate();
  tw_queue* on = queue(a);
  tw_plan* copies = plan(a);
  unsigned char *from = memory(a, 64), *to = memory(a, 64);
  ASSERT_EQ(tw_plan_copy(copies, to, from, 64, nullptr, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(copies, 0), TW_OK) << tw_last_error();
  tw_graph* graph = nullptr;
  ASSERT_NO_FATAL_FAILURE(capture_stream(copies, on, &graph));
  for (int i = 0; i < 5; ++i) ASSERT_EQ(tw_graph_launch(graph, on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_wait_on(on, gate.signal, 1, TW_COMPARE_GE, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(copies, on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_prepare(copies, 0), TW_ERR_BUSY);
  EXPECT_EQ(tw_plan_update(copies, 0, to, nullptr), TW_ERR_BUSY);
  open(gate, 1);
  ASSERT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_prepare(copies, 0), TW_OK) << tw_last_error();
  tw_graph_destroy(graph);
}

/// So it is with a queue that the user made of the stream, when the capture was not begun by that queue.
TEST_P(PlansAtRest, NotWhileARunBehindGraphsOfAWrappedStreamIsToCome) {
  if (std::strcmp(GetParam().place, "host") == 0) return;  // it has no streams
  const Gate gate = make_gate();
  tw_queue *on = queue(a), *wrapper = nullptr;
  ASSERT_EQ(tw_queue_wrap(a.context, tw_queue_native(on), GetParam().place, nullptr, &wrapper), TW_OK) << tw_last_error();
  a.last.emplace_back([wrapper] { tw_queue_destroy(wrapper); });
  tw_plan* copies = plan(a);
  unsigned char *from = memory(a, 64), *to = memory(a, 64);
  ASSERT_EQ(tw_plan_copy(copies, to, from, 64, nullptr, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(copies, 0), TW_OK) << tw_last_error();
  tw_graph* graph = nullptr;
  ASSERT_EQ(tw_queue_begin_capture(on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(copies, wrapper), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_end_capture(on, &graph), TW_OK) << tw_last_error();
  for (int i = 0; i < 5; ++i) ASSERT_EQ(tw_graph_launch(graph, on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_wait_on(on, gate.signal, 1, TW_COMPARE_GE, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(copies, wrapper), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_prepare(copies, 0), TW_ERR_BUSY);
  EXPECT_EQ(tw_plan_update(copies, 0, to, nullptr), TW_ERR_BUSY);
  open(gate, 1);
  ASSERT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_prepare(copies, 0), TW_OK) << tw_last_error();
  tw_graph_destroy(graph);
}

/// The receiver has waited in vain, and its buffer is its own again: a send that begins then stores nothing there.
TEST_P(PlansAtRest, ASendThatBeginsWhenTheReceiverHasFailedStoresNothing) {
  constexpr size_t kSize = 4'099;
  const Gate gate = make_gate();
  tw_plan *const sends = plan(a), *const receives = plan(b, 200'000'000);
  unsigned char *const from = memory(a, kSize), *const to = memory(b, kSize);
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, kSize, 7, nullptr, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to, kSize, 7, nullptr, nullptr), TW_OK) << tw_last_error();
  prepare_both(sends, receives);
  tw_queue* const on = queue(a);
  a.store(from, random_bytes(kSize));
  ASSERT_EQ(tw_wait_on(on, gate.signal, 1, TW_COMPARE_GE, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(sends, on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_run(receives, kLong), TW_ERR_TIMED_OUT);
  EXPECT_EQ(until([&] { return tw_queue_check(on); }, TW_ERR_TIMED_OUT), TW_ERR_TIMED_OUT) << "its plan is told";
  const Bytes kept = random_bytes(kSize);
  b.store(to, kept);
  open(gate, 1);
  (void)tw_queue_synchronize(on);
  EXPECT_TRUE(b.load(to, kSize) == kept);
}

/// A queue that is full: it takes an event when its first run has ended, which needs the proxy.
class FullQueue final : public impl::Queue {
 public:
  using Status = impl::Status;
  FullQueue(std::unique_ptr<impl::Queue> of, impl::Proxy& needs) : queue_(std::move(of)), proxy_(needs) {}
  impl::Device* device() override { return queue_->device(); }
  void* native() override { return queue_->native(); }
  Status admit(impl::Use use, uint64_t address, uint64_t length) override { return queue_->admit(use, address, length); }
  Status copy(const impl::Copy* copies, size_t count) override { return queue_->copy(copies, count); }
  Status write_value(uint64_t address, uint64_t value, bool add) override { return queue_->write_value(address, value, add); }
  Status wait_geq(uint64_t address, uint64_t value) override { return queue_->wait_geq(address, value); }
  Status launch(const impl::Kernel& kernel) override { return queue_->launch(kernel); }
  Status run(const impl::ProgramRun& program) override { return queue_->run(program); }
  Status call(void (*function)(void*), void* argument) override { return queue_->call(function, argument); }
  Status record(impl::Event& event) override {
    ++records;
    proxy_goes_on = proxy_goes_on && free_soon();
    return queue_->record(event);
  }
  Status wait_event(impl::Event& event) override { return queue_->wait_event(event); }
  Status begin_capture() override { return queue_->begin_capture(); }
  Status end_capture(std::unique_ptr<impl::Graph>* out) override { return queue_->end_capture(out); }
  impl::CaptureState capture_state() override { return queue_->capture_state(); }
  Status query() override { return queue_->query(); }
  Status synchronize() override { return queue_->synchronize(); }
  unsigned records = 0;
  bool proxy_goes_on = true;

 private:
  /// The proxy's thread has its lock for moments.
  bool free_soon() {
    return std::async(std::launch::async,
                      [this] {
                        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2);
                        while (!proxy_.mutex().try_lock()) {
                          if (std::chrono::steady_clock::now() > limit) return false;
                          std::this_thread::yield();
                        }
                        proxy_.mutex().unlock();
                        return true;
                      })
        .get();
  }
  const std::unique_ptr<impl::Queue> queue_;
  impl::Proxy& proxy_;
};

TEST_P(PlansAtRest, AFullQueueHoldsUpNoProxy) {
  if (std::strcmp(GetParam().place, "host") == 0) return;  // it has no streams
  tw_queue* on = queue(a);
  tw_plan* copies = plan(a);
  unsigned char *from = memory(a, 64), *to = memory(a, 64);
  ASSERT_EQ(tw_plan_copy(copies, to, from, 64, nullptr, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(copies, 0), TW_OK) << tw_last_error();
  tw_graph* graph = nullptr;
  ASSERT_NO_FATAL_FAILURE(capture_stream(copies, on, &graph));
  impl::Proxy* proxy = nullptr;
  ASSERT_EQ(impl::Proxy::of(*a.context, &proxy), TW_OK);
  auto made = std::make_unique<FullQueue>(std::move(on->queue), *proxy);
  FullQueue* const full = made.get();
  on->queue = std::move(made);
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(tw_plan_trigger(copies, on), TW_OK) << tw_last_error();  // the second has an event already
  EXPECT_EQ(full->records, 2u);
  EXPECT_TRUE(full->proxy_goes_on);
  EXPECT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_prepare(copies, 0), TW_OK) << tw_last_error();
  tw_graph_destroy(graph);
}

/// It says how it failed, and stays as it is: what prepares it again may get stuck half-way.
TEST_P(PlansAtRest, AFailedPlanIsNotUpdated) {
  const Gate never = make_gate();
  tw_plan* const fails = waiting(never, 20'000'000);
  EXPECT_EQ(tw_plan_run(fails, kLong), TW_ERR_TIMED_OUT);
  const uint64_t value = 0;
  EXPECT_EQ(tw_plan_update(fails, 0, nullptr, &value), TW_ERR_TIMED_OUT);
  EXPECT_NE(std::strstr(tw_last_error(), "step 0"), nullptr) << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(fails, 0), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_update(fails, 0, nullptr, &value), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_run(fails, kLong), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_destroy(fails), TW_OK) << tw_last_error();
}

TEST_P(PlansAtRest, AFailedPlanIsNotWhileAQueueHasMoreRunsOfIt) {
  const Gate never = make_gate(), gate = make_gate();
  tw_queue* on = queue(a);
  tw_plan *fails = waiting(never, 20'000'000), *holds = waiting(gate, kLong);
  ASSERT_EQ(tw_plan_trigger(fails, on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(holds, on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(fails, on), TW_OK) << tw_last_error();
  EXPECT_EQ(until([&] { return tw_queue_check(on); }, TW_ERR_TIMED_OUT), TW_ERR_TIMED_OUT);
  EXPECT_EQ(tw_plan_prepare(fails, 0), TW_ERR_BUSY);
  EXPECT_EQ(tw_plan_destroy(fails), TW_ERR_BUSY);
  open(gate, 1);
  EXPECT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_prepare(fails, 0), TW_OK) << tw_last_error();
  open(never, 1);
  ASSERT_EQ(tw_plan_trigger(fails, on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_destroy(fails), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_destroy(holds), TW_OK) << tw_last_error();
}

/// What a graph launched counts, too, on whichever queue.
TEST_P(PlansAtRest, GraphsOfAFailedPlanAreWaitedFor) {
  const Gate never = make_gate(), gate = make_gate();
  tw_queue *first = queue(a), *second = queue(a);
  tw_plan *fails = waiting(never, 20'000'000), *holds = waiting(gate, kLong);
  tw_graph* graph = nullptr;
  ASSERT_EQ(tw_queue_begin_capture(first), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(fails, first), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_end_capture(first, &graph), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(fails, first), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(holds, second), TW_OK) << tw_last_error();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(tw_graph_launch(graph, second), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(first), TW_ERR_TIMED_OUT);
  const uint64_t value = 1;
  EXPECT_EQ(tw_plan_update(fails, 0, nullptr, &value), TW_ERR_BUSY);
  EXPECT_EQ(tw_plan_prepare(fails, 0), TW_ERR_BUSY);
  EXPECT_EQ(tw_plan_destroy(fails), TW_ERR_BUSY);
  tw_graph_destroy(graph);
  EXPECT_EQ(tw_plan_destroy(fails), TW_ERR_BUSY);
  open(gate, 1);
  EXPECT_EQ(tw_queue_synchronize(second), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_destroy(fails), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_destroy(holds), TW_OK) << tw_last_error();
}

/// By several blocks, which are counted one by one; behind one that runs, and behind its failure.
TEST_P(PlansAtRest, OfSeveralBlocks) {
  constexpr size_t kSize = 70003;
  const Gate gate = make_gate();
  tw_queue* on = queue(a);
  tw_plan_options options = TW_PLAN_OPTIONS_INIT;
  options.place = GetParam().place;
  options.blocks = 8;
  options.timeout_ns = 50'000'000;
  tw_plan* moves = nullptr;
  ASSERT_EQ(tw_plan_create(a.context, &options, &moves), TW_OK);
  unsigned char *from = memory(a, kSize), *to = memory(a, kSize);
  uint32_t wait = 0;
  tw_op_options behind = TW_OP_OPTIONS_INIT;
  behind.after_steps = &wait;
  behind.after_count = 1;
  ASSERT_EQ(tw_plan_wait(moves, gate.signal, 2, TW_COMPARE_GE, nullptr, &wait), TW_OK);
  ASSERT_EQ(tw_plan_copy(moves, to, from, kSize, &behind, nullptr), TW_OK);
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_EQ(tw_plan_prepare(moves, 0), TW_OK) << tw_last_error();
    const Bytes old = random_bytes(kSize), data = random_bytes(kSize);
    a.store(from, data);
    a.store(to, old);
    ASSERT_EQ(tw_plan_trigger(moves, on), TW_OK) << tw_last_error();
    const bool goes_well = turn == 2;
    if (!goes_well) {
      EXPECT_EQ(tw_queue_synchronize(on), TW_ERR_TIMED_OUT);
      EXPECT_TRUE(a.load(to, kSize) == old);
      if (turn == 1) open(gate, 2);
      continue;
    }
    for (int i = 0; i < 4; ++i) ASSERT_EQ(tw_plan_trigger(moves, on), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
    EXPECT_TRUE(a.load(to, kSize) == data);
  }
  EXPECT_EQ(tw_plan_destroy(moves), TW_OK) << tw_last_error();
}

/// Runs by the host are no runs of queues.
TEST_P(PlansAtRest, RunsByTheHostHideNone) {
  const Gate gate = make_gate();
  tw_queue* on = queue(a);
  tw_plan *holds = waiting(gate, kLong), *copies = plan(a);
  unsigned char *from = memory(a, 100), *to = memory(a, 100);
  ASSERT_EQ(tw_plan_copy(copies, to, from, 100, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_prepare(copies, 0), TW_OK) << tw_last_error();
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(tw_plan_trigger(copies, nullptr), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_finish(copies, kLong), TW_OK) << tw_last_error();
  }
  ASSERT_EQ(tw_plan_trigger(holds, on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(copies, on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_update(copies, 0, to, nullptr), TW_ERR_BUSY);
  open(gate, 1);
  EXPECT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_update(copies, 0, from, nullptr), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_destroy(holds), TW_OK) << tw_last_error();
}

/// What a queue of the library's own had not run when it ended is said by its plan, and waited for by nobody.
TEST_P(PlansAtRest, AQueueEndsInTheMiddle) {
  const Gate gate = make_gate();
  tw_queue* gone = nullptr;
  ASSERT_EQ(tw_queue_create(a.context, GetParam().place, nullptr, &gone), TW_OK);
  tw_plan *holds = waiting(gate, kLong), *behind = waiting(gate, kLong);
  ASSERT_EQ(tw_plan_trigger(holds, gone), TW_OK) << tw_last_error();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(tw_plan_trigger(behind, gone), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_destroy(behind), TW_ERR_BUSY);
  tw_queue_destroy(gone);
  EXPECT_EQ(tw_plan_trigger(behind, nullptr), TW_ERR_CLOSED);
  EXPECT_EQ(tw_plan_prepare(behind, 0), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_prepare(holds, 0), TW_OK) << tw_last_error();
  open(gate, 1);
  tw_queue* on = queue(a);
  for (tw_plan* one : {holds, behind}) {
    ASSERT_EQ(tw_plan_trigger(one, on), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_destroy(one), TW_OK) << tw_last_error();
  }
}

/// Whatever else the last one has before it, and whether it is still there.
TEST_P(PlansAtRest, AnotherQueueTakesAChannelOver) {
  constexpr size_t kSize = 1203;
  const Gate gate = make_gate();
  tw_queue *first = queue(a), *second = queue(a), *there = queue(b);
  tw_plan *holds = waiting(gate, kLong), *sends = plan(a), *receives = plan(b);
  unsigned char *from = memory(a, kSize), *to = memory(b, kSize);
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, kSize, 1, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to, kSize, 1, nullptr, nullptr), TW_OK);
  prepare_both(sends, receives);
  const auto pass = [&](tw_queue* by) {
    const Bytes data = random_bytes(kSize);
    a.store(from, data);
    b.store(to, Bytes(kSize, 0xee));
    ASSERT_EQ(tw_plan_trigger(sends, by), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_trigger(sends, by == first ? second : first), TW_ERR_BUSY);
    ASSERT_EQ(tw_plan_trigger(receives, there), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_queue_synchronize(there), TW_OK) << tw_last_error();
    EXPECT_TRUE(b.load(to, kSize) == data);
  };
  pass(first);
  ASSERT_EQ(tw_queue_synchronize(first), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(holds, first), TW_OK) << tw_last_error();
  pass(second);
  open(gate, 1);
  EXPECT_EQ(tw_queue_synchronize(second), TW_OK) << tw_last_error();
  pass(first);
  EXPECT_EQ(tw_queue_synchronize(first), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_destroy(holds), TW_OK) << tw_last_error();
}

/// A receiver gives up while the sender's queue still has the run that its credit is for. That run may store to the buffer, so it is not
/// the receiver's again before; and plans that open the channel anew meanwhile are not disturbed.
TEST_P(PlansAtRest, AReceiversBufferIsNotItsOwnBeforeTheSendersRunIsOver) {
  constexpr size_t kSize = 70003;
  const Gate gate = make_gate();
  tw_queue* on = queue(a);
  tw_plan *holds = waiting(gate, kLong), *sends = plan(a), *receives = nullptr;
  tw_plan_options options = TW_PLAN_OPTIONS_INIT;
  options.place = GetParam().place;
  options.timeout_ns = 20'000'000;
  ASSERT_EQ(tw_plan_create(b.context, &options, &receives), TW_OK) << tw_last_error();
  unsigned char *from = memory(a, kSize), *late = memory(b, kSize), *to = memory(b, kSize);
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, kSize, 1, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, late, kSize, 1, nullptr, nullptr), TW_OK);
  prepare_both(sends, receives);
  a.store(from, random_bytes(kSize));
  ASSERT_EQ(tw_plan_trigger(holds, on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(sends, on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_run(receives, kLong), TW_ERR_TIMED_OUT);
  impl::Proxy* proxy = nullptr;
  ASSERT_EQ(impl::Proxy::of(*b.context, &proxy), TW_OK);
  proxy->patience = std::chrono::milliseconds(100);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(tw_plan_destroy(receives), TW_ERR_BUSY);
    EXPECT_NE(std::strstr(tw_last_error(), "has not given back"), nullptr) << tw_last_error();
  }

  tw_plan *sends_next = plan(a), *receives_next = plan(b);
  unsigned char* const from_next = memory(a, kSize);
  ASSERT_EQ(tw_plan_send(sends_next, a.endpoint, from_next, kSize, 1, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_recv(receives_next, b.endpoint, to, kSize, 1, nullptr, nullptr), TW_OK);
  prepare_both(sends_next, receives_next);
  const Bytes poison(kSize, 0xee), data = random_bytes(kSize);
  b.store(to, poison);
  a.store(from_next, data);
  EXPECT_EQ(tw_plan_destroy(receives), TW_ERR_BUSY);
  open(gate, 1);
  (void)tw_queue_synchronize(on);
  EXPECT_TRUE(b.load(to, kSize) == poison);
  proxy->patience = std::chrono::seconds(20);
  EXPECT_EQ(tw_plan_destroy(receives), TW_OK) << tw_last_error();
  for (int i = 0; i < 3; ++i) {
    b.store(to, poison);
    both([&] { ASSERT_EQ(tw_plan_run(sends_next, kLong), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(tw_plan_run(receives_next, kLong), TW_OK) << tw_last_error(); });
    EXPECT_TRUE(b.load(to, kSize) == data);
  }
  EXPECT_EQ(tw_plan_destroy(holds), TW_OK) << tw_last_error();
}

class FailedPlans : public Pair {
 protected:
  static constexpr size_t kSize = 1203;
  tw_plan* receiving(unsigned char* to, uint64_t limit) {
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = GetParam().place;
    options.timeout_ns = limit;
    tw_plan* made = nullptr;
    EXPECT_EQ(tw_plan_create(b.context, &options, &made), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_recv(made, b.endpoint, to, kSize, 1, nullptr, nullptr), TW_OK) << tw_last_error();
    return made;
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, FailedPlans, testing::ValuesIn(kWays), [](const auto& info) { return info.param.name; });

/// The message that a destroyed plan did not take must not be the next one's.
TEST_P(FailedPlans, EndTheirChannelsWhenTheyAreDestroyedAndNobodyAskedThem) {
  unsigned char *from = memory(a, kSize), *to = memory(b, kSize);
  tw_plan *sends = plan(a), *receives = receiving(to, 20'000'000);
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, kSize, 1, nullptr, nullptr), TW_OK);
  prepare_both(sends, receives);
  tw_queue *here = queue(a), *there = nullptr;
  ASSERT_EQ(tw_queue_create(b.context, GetParam().place, nullptr, &there), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(receives, there), TW_OK) << tw_last_error();
  tw_queue_destroy(there);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto goes_on = [&](bool so) { return so && std::chrono::steady_clock::now() < limit; };
  while (goes_on(tw_plan_destroy(receives) == TW_ERR_BUSY)) std::this_thread::yield();
  while (goes_on(tw_plan_test(sends) == TW_OK)) std::this_thread::yield();
  EXPECT_LT(tw_plan_test(sends), 0);

  receives = receiving(to, kLong);
  prepare_both(sends, receives);
  const Bytes data = random_bytes(kSize);
  a.store(from, data);
  b.store(to, Bytes(kSize, 0xee));
  there = queue(b);
  ASSERT_EQ(tw_plan_trigger(sends, here), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(receives, there), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(there), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(here), TW_OK) << tw_last_error();
  EXPECT_TRUE(b.load(to, kSize) == data);
  EXPECT_EQ(tw_plan_destroy(receives), TW_OK) << tw_last_error();
}

}  // namespace
}  // namespace thalweg::tests
