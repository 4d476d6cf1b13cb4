// SPDX-License-Identifier: Apache-2.0
// CUDA queues: what becomes one engine call, batches, words, wrapped streams, captures, peers, kernels' arguments.
#include <functional>

#include "tests/unit/devices/cuda_tools.hpp"

namespace thalweg::impl::cuda {
namespace {

using CudaQueueTest = CudaTest;

TEST_F(CudaQueueTest, WhatAQueueMayNotUseIsNotAdmitted) {
  open();
  auto queue = make_queue();
  const uint64_t a = allocate(MemoryKind::device, 100), row = allocate(MemoryKind::vmm, (size_t{64} << 20) + 1);
  std::vector<std::byte> pageable(100);
  EXPECT_EQ(queue->admit(Use::copy, reinterpret_cast<uintptr_t>(pageable.data()), 100), TW_ERR_UNSUPPORTED);
  EXPECT_NE(std::string(last_error()).find("staging"), std::string::npos);
  EXPECT_EQ(queue->admit(Use::copy, a, 100), TW_OK);
  EXPECT_EQ(queue->admit(Use::copy, a + 1, 100), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(queue->admit(Use::copy, a, ~uint64_t{0}), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(queue->admit(Use::kernel, row, (size_t{64} << 20) + 1), TW_OK) << last_error();  // across pieces
  const uint64_t managed = allocate(MemoryKind::managed, 8);
  EXPECT_EQ(queue->admit(Use::word, managed, 8), TW_ERR_UNSUPPORTED);
  EXPECT_EQ(queue->admit(Use::kernel, managed, 8), TW_OK);
}

/// Streams of one priority share the hardware's channels: what moves bytes is not behind a kernel that waits for them.
TEST_F(CudaQueueTest, WhatMovesHasAPriorityOfItsOwn) {
  open();
  fake->calls.clear();
  std::unique_ptr<Queue> any, moves;
  ASSERT_EQ(devices[0]->make_queue(&any), TW_OK);
  EXPECT_EQ(fake->calls["StreamCreateWithPriority"], 0u);
  ASSERT_EQ(devices[0]->make_queue(&moves, QueueUse::moves), TW_OK);
  EXPECT_EQ(fake->calls["StreamCreateWithPriority"], 1u);
  EXPECT_GT(kMovesPriority, kHighestPriority);
  EXPECT_LT(kMovesPriority, 0);
}

/// How often the driver is called for what protocols do with every message.
TEST_F(CudaQueueTest, AnOperationIsOneCallOfTheDriver) {
  open();
  auto queue = make_queue();
  std::unique_ptr<Event> event;
  ASSERT_EQ(devices[0]->make_event(&event), TW_OK);
  const uint64_t a = allocate(MemoryKind::device, 100), b = allocate(MemoryKind::device, 100), word = a;
  const Copy copy{a, b, 64};
  const Copy rows{a, b, 8, 2, 1, 16, 32, 0, 0};
  const struct {
    const char* call;
    std::function<Status()> run;
    bool enqueues;
  } operations[] = {
      {"MemcpyAsync", [&] { return queue->copy(&copy, 1); }, true},
      {"Memcpy2DAsync", [&] { return queue->copy(&rows, 1); }, true},
      {"StreamWriteValue64", [&] { return queue->write_value(word, 1, false); }, true},
      {"StreamWaitValue64", [&] { return queue->wait_geq(word, 1); }, true},
      {"EventRecord", [&] { return queue->record(*event); }, true},
      {"StreamWaitEvent", [&] { return queue->wait_event(*event); }, true},
      {"EventQuery", [&] { return event->query(); }, false},
  };
  CuContext own = nullptr, popped = nullptr;
  ASSERT_EQ(driver.DevicePrimaryCtxRetain(&own, 0), result::success);
  for (const bool current : {true, false}) {
    if (current) {
      ASSERT_EQ(driver.CtxPushCurrent(own), result::success);
    }
    for (const auto& one : operations) {
      fake->calls.clear();
      ASSERT_FALSE(is_error(one.run())) << one.call << ": " << last_error();
      std::map<std::string, unsigned> expected{{one.call, 1u}};
      if (one.enqueues) expected["CtxGetCurrent"] = 1;
      if (one.enqueues && !current) expected["CtxPushCurrent"] = expected["CtxPopCurrent"] = 1;
      if (!one.enqueues) expected["ThreadExchangeStreamCaptureMode"] = 2;  // it could spoil somebody's capture
      EXPECT_EQ(fake->calls, expected) << one.call << (current ? ", context current" : ", no context");
    }
    if (current) {
      ASSERT_EQ(driver.CtxPopCurrent(&popped), result::success);
    }
  }
  ASSERT_EQ(queue->synchronize(), TW_OK);
}

TEST_F(CudaQueueTest, ItsDeviceSaysWhetherThisBuildHasKernels) {
  open();
  EXPECT_EQ(devices[0]->has_kernels(), has_kernels());
}

TEST_F(CudaQueueTest, AKernelAsksForACaptureOnlyWhenSeveralBlocksSignal) {
  open();
  if (!has_kernels()) GTEST_SKIP() << last_error();
  auto queue = make_queue();
  const uint64_t a = allocate(MemoryKind::device, 1 << 20), b = allocate(MemoryKind::device, 1 << 20);
  ASSERT_EQ(devices[0]->load_kernels(), TW_OK);
  const struct {
    CopyKernel kernel;
    unsigned questions;
  } cases[] = {{{{a, b, 1 << 20}, {}}, 0}, {{{a + 8, b, 8}, {a, 1, false}}, 0}, {{{a + 8, b, 1 << 19}, {a, 1, false}}, 1}};
  for (const auto& one : cases) {
    fake->calls.clear();
    ASSERT_EQ(queue->launch(one.kernel), TW_OK) << last_error();
    EXPECT_EQ(fake->calls["LaunchKernel"], 1u);
    EXPECT_EQ(fake->calls["StreamIsCapturing"], one.questions);
    EXPECT_EQ(fake->calls["PointerGetAttributes"], 0u);
  }
  ASSERT_EQ(queue->synchronize(), TW_OK);
}

TEST_F(CudaQueueTest, BatchesAreSplit) {
  open();
  constexpr size_t kCount = 600;
  const uint64_t a = allocate(MemoryKind::device, kCount * 16), b = allocate(MemoryKind::pinned, kCount * 16);
  const std::vector<std::byte> payload = fill(b, kCount * 16), old = fill(a, kCount * 16);
  std::vector<Copy> copies;
  for (size_t i = 0; i < kCount; ++i) copies.push_back({a + 16 * i, b + 16 * (kCount - 1 - i), 15});
  auto queue = make_queue();
  ASSERT_EQ(queue->copy(copies.data(), kCount), TW_OK) << last_error();
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_EQ(fake->batches, (std::vector<size_t>{255, 255, 90}));
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(std::memcmp(reinterpret_cast<void*>(a + 16 * i), &payload[16 * (kCount - 1 - i)], 15), 0) << i;
    ASSERT_EQ(bytes_at(a + 16 * i + 15, 1)[0], old[16 * i + 15]) << i;
  }
}

TEST_F(CudaQueueTest, AnOlderDriverAndACaptureTakeCopiesOneByOne) {
  open();
  const uint64_t a = allocate(MemoryKind::device, 64), b = allocate(MemoryKind::device, 64);
  const std::vector<std::byte> payload = fill(b, 64);
  const Copy copies[] = {{a, b, 32}, {a + 32, b + 32, 32}};
  auto queue = make_queue();
  symbol<void(void*, unsigned)>("fake_cuda_capture")(queue->native(), kCaptureActive);
  EXPECT_EQ(queue->capture_state(), CaptureState::active);
  ASSERT_EQ(queue->copy(copies, 2), TW_OK);
  EXPECT_EQ(queue->query(), TW_ERR_INVALID);  // and has not spoilt it:
  EXPECT_EQ(queue->synchronize(), TW_ERR_INVALID);
  EXPECT_EQ(queue->capture_state(), CaptureState::active);
  symbol<void(void*, unsigned)>("fake_cuda_capture")(queue->native(), kCaptureNone);
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_TRUE(fake->batches.empty());
  EXPECT_EQ(bytes_at(a, 64), payload);
  fake->hidden["MemcpyBatchAsync"] = true;
  DriverApi older;
  ASSERT_EQ(load_driver(FAKE_CUDA, &older), TW_OK);
  CudaBackend other(older);
  ASSERT_EQ(other.devices(&devices), TW_OK);
  auto second = make_queue();
  const std::vector<std::byte> again = fill(b, 64);
  ASSERT_EQ(second->copy(copies, 2), TW_OK);
  ASSERT_EQ(second->synchronize(), TW_OK);
  EXPECT_EQ(bytes_at(a, 64), again);
  second.reset();
}

TEST_F(CudaQueueTest, RectanglesBecomeTheFewestCalls) {
  open();
  const struct {
    Copy copy;
    const char* call;
    unsigned times;
  } cases[] = {
      {{0, 0, 10, 4, 3, 10, 10, 40, 40}, "MemcpyAsync", 1},      // touches everywhere
      {{0, 0, 10, 4, 1, 10, 30, 0, 0}, "Memcpy2DAsync", 1},      // gather
      {{0, 0, 10, 4, 3, 16, 20, 64, 100}, "Memcpy3DAsync", 1},   //
      {{0, 0, 10, 4, 3, 16, 20, 65, 100}, "Memcpy2DAsync", 3},   // slices are no whole rows apart
      {{0, 0, 10, 4, 3, 100, 100, 11, 12}, "Memcpy2DAsync", 4},  // rows beyond slices
      {{0, 0, 10, 4, 1, -20, -30, 0, 0}, "Memcpy2DAsync", 1},    // both backwards
      {{0, 0, 10, 4, 1, -20, 30, 0, 0}, "MemcpyBatchAsync", 1},  // one backwards: rows
      {{0, 0, 10, 4, 1, 10, 0, 0, 0}, "MemcpyBatchAsync", 1},    // one row to all
      {{0, 0, 10, 0, 3, 10, 10, 0, 0}, "MemcpyAsync", 0},        // nothing
  };
  const uint64_t a = allocate(MemoryKind::device, 4096), b = allocate(MemoryKind::device, 4096);
  const bool kernels = has_kernels();
  auto queue = make_queue();
  for (const auto& one : cases) {
    Copy copy = one.copy;
    copy.to = a + 1000;
    copy.from = b + 1000;
    const std::vector<std::byte> source = fill(b, 4096);
    std::vector<std::byte> expected = fill(a, 4096);
    for (int64_t z = 0; z < static_cast<int64_t>(copy.slices); ++z) {
      for (int64_t y = 0; y < static_cast<int64_t>(copy.rows); ++y)
        std::memcpy(&expected[1000 + z * copy.to_slice + y * copy.to_row],
                    &source[1000 + z * copy.from_slice + y * copy.from_row], copy.width);
    }
    fake->calls.clear();
    ASSERT_EQ(queue->copy(&copy, 1), TW_OK) << last_error();
    EXPECT_EQ(fake->calls[one.call], one.times) << one.call << " row " << copy.to_row;
    ASSERT_EQ(queue->synchronize(), TW_OK);
    EXPECT_EQ(bytes_at(a, 4096), expected) << one.call << " row " << copy.to_row;
    if (!kernels) continue;
    ASSERT_EQ(queue->launch(CopyKernel{copy, {}}), TW_OK) << last_error();  // the same by our kernel
    ASSERT_EQ(queue->synchronize(), TW_OK);
    EXPECT_EQ(bytes_at(a, 4096), expected);
  }
  if (!has_kernels()) GTEST_SKIP() << "not compared with our kernel: " << last_error();
}

TEST_F(CudaQueueTest, WaitsFlushRemoteWritesAndHoldTheStream) {
  open();
  if (!has_kernels()) GTEST_SKIP() << last_error();  // adds
  const uint64_t word = allocate(MemoryKind::device, 16);
  auto waiter = make_queue(), writer = make_queue();
  ASSERT_EQ(waiter->wait_geq(word, 5), TW_OK);
  ASSERT_EQ(waiter->write_value(word + 8, 1, false), TW_OK);
  EXPECT_EQ(waiter->query(), TW_IN_PROGRESS);
  ASSERT_EQ(writer->write_value(word, 3, false), TW_OK);
  ASSERT_EQ(writer->write_value(word, 2, true), TW_OK) << last_error();
  ASSERT_EQ(waiter->synchronize(), TW_OK);
  EXPECT_EQ(word_at(word), 5u);
  EXPECT_EQ(word_at(word + 8), 1u);
  EXPECT_EQ(fake->wait_flags, std::vector<unsigned>{kWaitFlush | kWaitGeq});
}

TEST_F(CudaQueueTest, DefaultStreamsAreOnlyOrdered) {
  open();
  const uint64_t word = allocate(MemoryKind::device, 8);
  std::unique_ptr<Event> event;
  ASSERT_EQ(devices[0]->make_event(&event), TW_OK);
  for (uintptr_t native = 0; native <= kPerThreadStream; ++native) {
    std::unique_ptr<Queue> queue;
    ASSERT_EQ(devices[0]->wrap_queue(reinterpret_cast<void*>(native), &queue), TW_OK);
    EXPECT_EQ(queue->record(*event), TW_OK);
    EXPECT_EQ(queue->wait_event(*event), TW_OK);
    const Copy copy{word, word, 8};
    EXPECT_EQ(queue->write_value(word, 1, false), TW_ERR_UNSUPPORTED);
    EXPECT_EQ(queue->wait_geq(word, 1), TW_ERR_UNSUPPORTED);
    EXPECT_EQ(queue->copy(&copy, 1), TW_ERR_UNSUPPORTED);
    EXPECT_EQ(queue->launch(CopyKernel{copy, {}}), TW_ERR_UNSUPPORTED);
  }
  EXPECT_EQ(event->synchronize(), TW_OK);
}

TEST_F(CudaQueueTest, AUsersStreamBringsItsContext) {
  open();
  const auto theirs = symbol<CuContext(int)>("fake_cuda_user_context")(1);
  CuStream stream = nullptr;
  CuContext popped = nullptr;
  ASSERT_EQ(driver.CtxPushCurrent(theirs), result::success);
  ASSERT_EQ(driver.StreamCreate(&stream, kStreamNonBlocking), result::success);
  ASSERT_EQ(driver.CtxPopCurrent(&popped), result::success);
  std::unique_ptr<Queue> queue;
  EXPECT_EQ(devices[0]->wrap_queue(stream, &queue), TW_ERR_INVALID);  // of GPU 1
  ASSERT_EQ(devices[1]->wrap_queue(stream, &queue), TW_OK) << last_error();
  std::unique_ptr<Event> event;
  ASSERT_EQ(devices[1]->make_event(&event), TW_OK);         // of the primary context,
  EXPECT_EQ(queue->record(*event), TW_OK) << last_error();  // and made anew for the stream's
  auto own = make_queue(1);
  EXPECT_EQ(own->wait_event(*event), TW_OK);
  EXPECT_EQ(own->record(*event), TW_OK);
  EXPECT_EQ(event->synchronize(), TW_OK);
  const unsigned destroyed = fake->calls["StreamDestroy"];
  queue.reset();
  EXPECT_EQ(fake->calls["StreamDestroy"], destroyed);  // it stays the user's
}

TEST_F(CudaQueueTest, AUsersStreamMayEndBeforeAQueueThatRanProgramsThere) {
  open();
  if (!has_kernels()) GTEST_SKIP() << last_error();
  const uint64_t state = allocate(MemoryKind::device, 4096), word = state + 2048;
  CuStream stream = nullptr;
  {
    const OnDevice current(*static_cast<CudaDevice*>(devices[0]));
    ASSERT_EQ(driver.StreamCreate(&stream, kStreamNonBlocking), result::success);
  }
  std::unique_ptr<Queue> queue;
  ASSERT_EQ(devices[0]->wrap_queue(stream, &queue), TW_OK) << last_error();
  device::Step signal{};
  signal.kind = device::StepKind::signal;
  signal.signal = {reinterpret_cast<device::u64*>(word), 7, 0, 0};
  ProgramRun run;
  run.steps = {&signal, 1};
  run.state = state;
  run.guard = {abort_flag_of(state), nullptr, nullptr, 1'000'000'000};
  std::memset(reinterpret_cast<void*>(state), 0, state_bytes(1));
  ASSERT_EQ(arrange({&signal, 1}, {}, 1, kMostBlocks, &run.shape), TW_OK) << last_error();
  ASSERT_EQ(queue->run(run), TW_OK) << last_error();
  ASSERT_EQ(queue->synchronize(), TW_OK) << last_error();
  EXPECT_EQ(word_at(word), 7u);
  {
    const OnDevice current(*static_cast<CudaDevice*>(devices[0]));
    ASSERT_EQ(driver.StreamDestroy(stream), result::success);
  }
  const unsigned asked = fake->calls["StreamQuery"], looked = fake->calls["StreamIsCapturing"];
  queue.reset();
  EXPECT_EQ(fake->calls["StreamQuery"], asked);
  EXPECT_EQ(fake->calls["StreamIsCapturing"], looked);
}

/// Behind a kernel that waits for others of its device none may hold multiprocessors.
TEST_F(CudaQueueTest, ExchangesStartEarlyOnlyWhereTheirRankHasTheDevice) {
  open();
  if (!has_kernels()) GTEST_SKIP() << last_error();
  auto queue = make_queue();
  device::Exchange exchange{};
  exchange.size = 2;
  ProgramRun run;
  run.state = allocate(MemoryKind::device, 4096);
  run.shape.blocks = 1;
  run.shape.threads = exchange.threads = 32;
  run.exchange = &exchange;
  for (const auto kind : {&device::Exchange::low_latency, &device::Exchange::one_word, &device::Exchange::symmetric}) {
    exchange.low_latency = exchange.one_word = exchange.symmetric = 0;
    exchange.low_latency = kind != &device::Exchange::symmetric;
    exchange.*kind = 1;
    for (const bool shares : {false, true}) {
      run.shares_device = shares;
      const unsigned early = fake->calls["LaunchKernelEx, early"], all = fake->calls["LaunchKernel"];
      ASSERT_EQ(queue->run(run), TW_OK) << last_error();
      EXPECT_EQ(fake->calls["LaunchKernel"] - all, 1u);
      EXPECT_EQ(fake->calls["LaunchKernelEx, early"] - early, shares ? 0u : 1u);
    }
  }
  EXPECT_EQ(queue->synchronize(), TW_OK);
}

TEST_F(CudaQueueTest, PeersAreReachedOnceAdmitted) {
  open();
  if (!has_kernels()) GTEST_SKIP() << last_error();
  const uint64_t here = allocate(MemoryKind::device, 100000);
  const MemoryKind kinds[] = {MemoryKind::device, MemoryKind::vmm, MemoryKind::pool};
  auto queue = make_queue();
  for (const MemoryKind kind : kinds) {
    const uint64_t there = allocate(kind, 100000, 1), far = allocate(kind, 100000, 2);
    const std::vector<std::byte> payload = fill(here, 100000);
    EXPECT_NE(queue->launch(CopyKernel{{there, here, 100000}, {}}), TW_OK);
    EXPECT_NE(queue->write_value(there, 1, false), TW_OK);
    ASSERT_EQ(queue->admit(Use::kernel, there, 100000), TW_OK) << last_error();
    ASSERT_EQ(queue->launch(CopyKernel{{there, here, 100000}, {there, 0, false}}), TW_OK) << last_error();
    ASSERT_EQ(queue->launch(CopyKernel{{there, here, 100000}, {}}), TW_OK) << last_error();
    ASSERT_EQ(queue->synchronize(), TW_OK);
    EXPECT_EQ(bytes_at(there, 100000), payload);
    EXPECT_EQ(queue->admit(Use::kernel, far, 100000), TW_ERR_UNREACHABLE);
    EXPECT_EQ(queue->admit(Use::word, far, 8), TW_ERR_UNREACHABLE);
    EXPECT_EQ(queue->admit(Use::copy, far, 100000), TW_OK) << last_error();
    const Copy copy{far, here, 100000};  // an engine goes through the host
    EXPECT_EQ(queue->copy(&copy, 1), TW_OK) << last_error();
    ASSERT_EQ(queue->synchronize(), TW_OK);
    EXPECT_EQ(bytes_at(far, 100000), payload);
  }
}

TEST_F(CudaQueueTest, SignalsComeWithTheKernelOrBehindIt) {
  open();
  if (!has_kernels()) GTEST_SKIP() << last_error();
  const uint64_t a = allocate(MemoryKind::device, 1 << 20), b = allocate(MemoryKind::device, 1 << 20);
  const uint64_t word = allocate(MemoryKind::pinned, 8);
  auto queue = make_queue();
  const auto launches = [&](const Kernel& kernel) {
    const unsigned before = fake->calls["LaunchKernel"];
    EXPECT_EQ(queue->launch(kernel), TW_OK) << last_error();
    return fake->calls["LaunchKernel"] - before;
  };
  const CopyKernel large{{a, b, 1 << 20}, {word, 1, true}};
  EXPECT_EQ(launches(large), 1u);
  symbol<void(void*, unsigned)>("fake_cuda_capture")(queue->native(), kCaptureActive);
  EXPECT_EQ(launches(large), 2u);  // a graph may run beside the queue: no shared counter
  EXPECT_EQ(launches(CopyKernel{{a, b, 100}, {word, 1, true}}), 1u);
  symbol<void(void*, unsigned)>("fake_cuda_capture")(queue->native(), kCaptureNone);
  EXPECT_EQ(launches(CopyKernel{{a, b, 0}, {word, 1, true}}), 1u);
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_EQ(word_at(word), 4u);
  EXPECT_EQ(queue->launch(CopyKernel{{a, b, 8}, {word + 4, 1, true}}), TW_ERR_MISALIGNED);
  EXPECT_EQ(queue->launch(WaitKernel{word, 1, 1000, 0}), TW_ERR_INVALID);
  const unsigned loaded = fake->calls["FuncLoad"];
  EXPECT_EQ(devices[0]->load_kernels(), TW_OK) << last_error();
  EXPECT_EQ(fake->calls["FuncLoad"] - loaded, static_cast<unsigned>(KernelName::count_));
}

/// The buffers go back with the error.
TEST_F(CudaQueueTest, AKernelWhoseSignalIsRefusedIsOver) {
  open();
  if (!has_kernels()) GTEST_SKIP() << last_error();
  constexpr size_t kLength = 1 << 20, kPairs = 2;
  const uint64_t a = allocate(MemoryKind::device, kLength), b = allocate(MemoryKind::device, kLength);
  const uint64_t word = allocate(MemoryKind::pinned, 8), pairs = allocate(MemoryKind::pinned, kPairs * sizeof(BlockPair));
  for (size_t i = 0; i < kPairs; ++i)
    reinterpret_cast<BlockPair*>(pairs)[i] = {a + i * kLength / kPairs, b + i * kLength / kPairs};
  fake->fail_next["MemAlloc"] = result::out_of_memory;  // no counter: the signal takes a launch of its own
  auto queue = make_queue();
  for (const Kernel& kernel : {Kernel(CopyKernel{{a, b, kLength}, {word, 1, true}}),
                               Kernel(BlocksKernel{pairs, kPairs, kLength / kPairs, {word, 1, true}})}) {
    const std::vector<std::byte> payload = fill(b, kLength);
    unsigned launches = 0;
    fake->watch = [&](const std::string& name) {
      if (name == "LaunchKernel" && ++launches == 2) fake->fail_next[name] = result::launch_timeout;
    };
    EXPECT_TRUE(is_error(queue->launch(kernel)));
    fake->watch = nullptr;
    EXPECT_EQ(launches, 2u);
    EXPECT_EQ(bytes_at(a, kLength), payload);
  }
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_EQ(word_at(word), 0u);
}

/// One lack of memory does not cost all later signals a launch of their own.
TEST_F(CudaQueueTest, CountersAreMadeOnceThereIsMemoryForThem) {
  open();
  const char* const failing[] = {"MemAlloc", "MemsetD8Async", "StreamSynchronize"};
  for (const char* const call : failing) {
    const unsigned allocated = fake->calls["MemAlloc"], freed = fake->calls["MemFree"];
    fake->fail_next[call] = result::out_of_memory;
    const auto queue = make_queue();
    EXPECT_EQ(fake->fail_next.count(call), 0u) << call << ": they are made with the first queue that finds none";
    EXPECT_EQ(fake->calls["MemAlloc"] - allocated, 1u) << call;
    EXPECT_EQ(fake->calls["MemFree"] - freed, call == failing[0] ? 0u : 1u) << call;
  }
  const unsigned allocated = fake->calls["MemAlloc"];
  for (int i = 0; i < 3; ++i) {
    const auto queue = make_queue();
    EXPECT_EQ(fake->calls["MemAlloc"] - allocated, 1u);
  }
}

}  // namespace
}  // namespace thalweg::impl::cuda
