// SPDX-License-Identifier: Apache-2.0
// Queues and events of emulated devices: order, words, wrapped streams, captures, what is refused.
#include <atomic>

#include "devices/emulated/event.hpp"
#include "tests/unit/devices/emulated_tools.hpp"

namespace thalweg::impl::emulated {
namespace {

TEST(EmulatedQueue, MovesBytesInAndOut) {
  auto device = open_device(0), other = open_device(1);
  const uint64_t a = allocate(*device, 10007), b = allocate(*other, 10007);
  Pinned source(*device, 10001), back(*device, 10007);
  const std::vector<std::byte> before = back.bytes();
  auto queue = make_queue(*device);
  ASSERT_EQ(copy(*queue, a + 3, source.address(), 10001), TW_OK);
  ASSERT_EQ(copy(*queue, b + 2, a + 3, 10001), TW_OK);  // also between devices
  ASSERT_EQ(copy(*queue, back.address(1), b + 2, 10001), TW_OK);
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_EQ(std::memcmp(back.data() + 1, source.data(), 10001), 0);
  EXPECT_EQ(back.bytes()[0], before[0]);
  EXPECT_EQ(std::memcmp(back.data() + 10002, before.data() + 10002, 5), 0);
  EXPECT_EQ(copy(*queue, a + 10000, source.address(), 8), TW_ERR_OUT_OF_BOUNDS);
}

TEST(EmulatedQueue, PageableMemoryIsForHostQueuesOnly) {
  auto device = open_device(0);
  const uint64_t a = allocate(*device, 100);
  const std::vector<std::byte> payload = fill(*device, a, 100);
  std::vector<std::byte> pageable(100);
  const auto to = reinterpret_cast<uintptr_t>(pageable.data());
  auto queue = make_queue(*device);
  EXPECT_EQ(copy(*queue, to, a, 100), TW_ERR_UNSUPPORTED);
  auto host = make_host_queue();
  EXPECT_EQ(host->device(), nullptr);
  ASSERT_EQ(copy(*host, to, a, 100), TW_OK);
  ASSERT_EQ(host->synchronize(), TW_OK);
  EXPECT_EQ(pageable, payload);
}

TEST(EmulatedQueue, RectanglesWithNegativePitch) {
  auto device = open_device(0);
  const uint64_t address = allocate(*device, 4096);
  Pinned source(*device, 600);
  Copy in = plain(address + 2000, source.address(), 13);
  in.rows = 5;
  in.slices = 3;
  in.to_row = -100;  // rows go downwards
  in.from_row = 17;
  in.to_slice = 20;
  in.from_slice = 150;
  std::vector<std::byte> expected(4096);
  for (int z = 0; z < 3; ++z) {
    for (int y = 0; y < 5; ++y) std::memcpy(&expected[2000 - 100 * y + 20 * z], source.data() + 17 * y + 150 * z, 13);
  }
  auto queue = make_queue(*device);
  ASSERT_EQ(queue->copy(&in, 1), TW_OK);
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_TRUE(holds(*device, address, expected));
}

TEST(EmulatedQueue, ThereIsNoOrderAmongTheCopiesOfOneCall) {
  auto device = open_device(0);
  const uint64_t a = allocate(*device, 64), b = allocate(*device, 64);
  const std::vector<std::byte> old = fill(*device, a, 64);
  Pinned source(*device, 64);
  const Copy chain[] = {plain(a, source.address(), 64), plain(b, a, 64)};
  auto queue = make_queue(*device);
  ASSERT_EQ(queue->copy(chain, 2), TW_OK);
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_TRUE(holds(*device, a, source.bytes()));
  EXPECT_TRUE(holds(*device, b, old));  // who chains within one call is told so
}

TEST(EmulatedQueue, RunsBehindTheHostInOrderAndWaitsForWords) {
  auto device = open_device(0);
  const uint64_t word = allocate(*device, 16);
  auto waiter = make_queue(*device), writer = make_queue(*device);
  std::atomic<int> order{0};
  ASSERT_EQ(waiter->wait_geq(word, 5), TW_OK);
  ASSERT_EQ(waiter->launch_twin([&] { order = 1; }), TW_OK);
  EXPECT_EQ(waiter->query(), TW_IN_PROGRESS);
  ASSERT_EQ(writer->write_value(word, 3, false), TW_OK);
  ASSERT_EQ(writer->synchronize(), TW_OK);
  EXPECT_EQ(order, 0);
  ASSERT_EQ(writer->write_value(word, 2, true), TW_OK);
  ASSERT_EQ(waiter->synchronize(), TW_OK);
  EXPECT_EQ(order, 1);
  EXPECT_EQ(writer->write_value(word + 4, 1, false), TW_ERR_MISALIGNED);
  EXPECT_EQ(writer->write_value(allocate(*device, 8, MemoryKind::managed), 1, false), TW_ERR_UNSUPPORTED);
}

TEST(EmulatedQueue, AWaitIsBoundedAndBreaksTheQueueAndItsEvents) {
  Options options;
  options.wait_limit_ns = 5'000'000;
  auto device = open_device(0, options);
  const uint64_t word = allocate(*device, 8);
  auto queue = make_queue(*device);
  std::unique_ptr<Event> event;
  ASSERT_EQ(device->make_event(&event), TW_OK);
  std::atomic<bool> ran{false};
  ASSERT_EQ(queue->wait_geq(word, 1), TW_OK);
  ASSERT_EQ(queue->launch_twin([&] { ran = true; }), TW_OK);
  ASSERT_EQ(queue->record(*event), TW_OK);
  EXPECT_EQ(queue->synchronize(), TW_ERR_TIMED_OUT);
  EXPECT_FALSE(ran);
  EXPECT_EQ(event->synchronize(), TW_ERR_CLOSED);
  EXPECT_EQ(queue->write_value(word, 1, false), TW_ERR_TIMED_OUT);
}

TEST(EmulatedEvents, OrderQueuesAndTellTheHost) {
  auto device = open_device(0), other = open_device(1);
  const uint64_t gate = allocate(*device, 8), a = allocate(*device, 999), b = allocate(*other, 999);
  Pinned source(*device, 999);
  auto first = make_queue(*device), second = make_queue(*other);
  std::unique_ptr<Event> event;
  ASSERT_EQ(device->make_event(&event), TW_OK);
  EXPECT_EQ(event->query(), TW_OK);  // never recorded
  ASSERT_EQ(first->wait_geq(gate, 1), TW_OK);
  ASSERT_EQ(copy(*first, a, source.address(), 999), TW_OK);
  ASSERT_EQ(first->record(*event), TW_OK);
  ASSERT_EQ(second->wait_event(*event), TW_OK);
  ASSERT_EQ(copy(*second, b, a, 999), TW_OK);
  EXPECT_EQ(event->query(), TW_IN_PROGRESS);
  EXPECT_EQ(second->query(), TW_IN_PROGRESS);
  auto opener = make_queue(*device);
  ASSERT_EQ(opener->write_value(gate, 1, false), TW_OK);
  EXPECT_EQ(event->synchronize(), TW_OK);
  ASSERT_EQ(second->synchronize(), TW_OK);
  EXPECT_TRUE(holds(*other, b, source.bytes()));
}

TEST(EmulatedQueue, AUsersStreamIsWrappedAndItsEventToo) {
  auto device = open_device(0), other = open_device(1);
  auto users = make_queue(*device);
  const uint64_t gate = allocate(*device, 8);
  std::unique_ptr<Queue> wrapped;
  EXPECT_EQ(other->wrap_queue(users->native(), &wrapped), TW_ERR_INVALID);  // of another device
  ASSERT_EQ(device->wrap_queue(users->native(), &wrapped), TW_OK);
  std::unique_ptr<Event> event, same;
  ASSERT_EQ(device->make_event(&event), TW_OK);
  ASSERT_EQ(device->wrap_event(event->native(), &same), TW_OK);
  ASSERT_EQ(users->wait_geq(gate, 1), TW_OK);
  ASSERT_EQ(wrapped->record(*event), TW_OK);
  wrapped.reset();  // leaves the user's stream
  EXPECT_EQ(same->query(), TW_IN_PROGRESS);
  ASSERT_EQ(make_queue(*device)->write_value(gate, 1, false), TW_OK);
}

TEST(EmulatedQueue, ADefaultStreamIsOnlyOrdered) {
  auto device = open_device(0);
  const uint64_t word = allocate(*device, 8);
  std::unique_ptr<Queue> standard;
  ASSERT_EQ(device->wrap_queue(nullptr, &standard), TW_OK);
  std::unique_ptr<Event> event;
  ASSERT_EQ(device->make_event(&event), TW_OK);
  EXPECT_EQ(standard->record(*event), TW_OK);
  EXPECT_EQ(standard->wait_event(*event), TW_OK);
  EXPECT_EQ(event->synchronize(), TW_OK);
  EXPECT_EQ(standard->write_value(word, 1, false), TW_ERR_UNSUPPORTED);
  EXPECT_EQ(standard->launch(CopyKernel{}), TW_ERR_UNSUPPORTED);
}

TEST(EmulatedQueue, ACaptureBakesArgumentsAndReplays) {
  auto device = open_device(0);
  const uint64_t word = make_word(*device);
  auto queue = make_queue(*device);
  EXPECT_EQ(queue->capture_state(), CaptureState::none);
  ASSERT_EQ(queue->begin_capture(), TW_OK);
  EXPECT_EQ(queue->capture_state(), CaptureState::active);
  uint64_t value = 7;
  ASSERT_EQ(queue->write_value(word, value, true), TW_OK);
  value = 100;  // too late
  std::unique_ptr<Graph> graph;
  ASSERT_EQ(queue->end_capture(&graph), TW_OK);
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_EQ(read_word(word), 0u);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(graph->launch(*queue), TW_OK);
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_EQ(read_word(word), 21u);
}

TEST(EmulatedQueue, AskingSpoilsACapture) {
  auto device = open_device(0);
  auto queue = make_queue(*device);
  ASSERT_EQ(queue->begin_capture(), TW_OK);
  EXPECT_EQ(queue->query(), TW_ERR_INVALID);
  EXPECT_EQ(queue->capture_state(), CaptureState::invalidated);
  EXPECT_EQ(queue->write_value(make_word(*device), 1, false), TW_ERR_INVALID);
  std::unique_ptr<Graph> graph;
  EXPECT_EQ(queue->end_capture(&graph), TW_ERR_INVALID);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(queue->query(), TW_OK);
}

}  // namespace
}  // namespace thalweg::impl::emulated
