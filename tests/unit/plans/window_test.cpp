// SPDX-License-Identifier: Apache-2.0
// Windows among ranks of one process, in host memory and on emulated devices, with one context and with several.
#include "../../fixtures/rooms.hpp"
#include "devices/registry.hpp"
#include "unit/plans/window_ranks.hpp"

namespace thalweg::test {
namespace {

constexpr size_t kLength = 70'001, kPart = 1'013;

std::string place_of(const Rank& rank) { return "emulated:" + std::to_string(rank.number % 2); }

/// The table of a bound window, wherever it lies.
std::vector<char*> bases_of(const Rank& rank, const device::Window& bound) {
  std::vector<char*> bases(bound.size);
  rank.context.copy(bases.data(), bound.bases, bases.size() * sizeof bases[0]);
  return bases;
}

/// Bytes of a rank that tell it and its round apart from every other's: fresh, and known to all.
std::vector<std::string> share_bytes(Rank& rank, size_t length) {
  const std::string mine = random_bytes(length);
  std::vector<std::string> all(rank.size);
  for (size_t at = 0; at < length; at += kAddressRoom) {
    const std::string piece = mine.substr(at, kAddressRoom);
    const std::vector<std::string> pieces = rank.gather(piece);
    for (uint32_t i = 0; i < rank.size; ++i) all[i] += pieces[i];
  }
  return all;
}

/// Every rank writes a slot in everybody's part by `copy`, then looks at what has come into its own.
void write_to_all(Rank& rank, const Memory& memory, const std::vector<char*>& bases,
                  const std::function<void(void*, const void*, size_t)>& copy) {
  auto* const own = static_cast<char*>(memory.data());
  const std::string poison(kLength, '\x5a');
  rank.context.copy(own, poison.data(), poison.size());
  const std::vector<std::string> bytes = share_bytes(rank, kPart);
  rank.barrier();
  const auto slot = [](uint32_t writer) { return 17 + writer * (kPart + 64); };
  for (uint32_t i = 0; i < rank.size; ++i) copy(bases[i] + slot(rank.number), bytes[rank.number].data(), kPart);
  rank.barrier();
  std::string expected = poison, found(kLength, '\0');
  for (uint32_t i = 0; i < rank.size; ++i) expected.replace(slot(i), kPart, bytes[i]);
  rank.context.copy(found.data(), own, kLength);
  EXPECT_TRUE(found == expected) << "rank " << rank.number;
}

struct Case {
  uint32_t size;
  bool one_context;
};
class Windows : public testing::TestWithParam<Case> {
 protected:
  void run(const std::function<void(Rank&)>& body) { run_ranks(GetParam().size, body, {GetParam().one_context, nullptr}); }
};

TEST_P(Windows, OfHostMemoryAreReachedByLoadsAndStores) {
  run([](Rank& rank) {
    const Memory memory = rank.context.allocate(kLength);
    const Window window = rank.window(memory);
    EXPECT_EQ(window.rank(), rank.number);
    EXPECT_EQ(window.size(), rank.size);
    EXPECT_EQ(window.length(), kLength);
    EXPECT_EQ(window.address(rank.number), memory.data());
    const device::Window bound = window.bind("host");
    EXPECT_EQ(bound.rank, rank.number);
    EXPECT_EQ(bound.size, rank.size);
    EXPECT_EQ(bound.length, kLength);
    EXPECT_EQ(bound.guard.limit_ns, 20 * kSecond);
    EXPECT_EQ(*bound.guard.abort_flag, 0u);
    EXPECT_EQ(*bound.guard.abort, 0u);
    for (uint32_t i = 0; i < rank.size; ++i) EXPECT_EQ(bound.bases[i], window.address(i));
    write_to_all(rank, memory, bases_of(rank, bound), [](void* to, const void* from, size_t n) { std::memcpy(to, from, n); });
    window.check();
  });
}

TEST_P(Windows, OfPlainRegisteredMemoryWorkWithinAProcess) {
  run([](Rank& rank) {
    std::string bytes(kLength, '\0');
    const Memory memory = rank.context.register_memory(bytes);
    const Window window = rank.window(memory);
    write_to_all(rank, memory, bases_of(rank, window.bind("host")),
                 [](void* to, const void* from, size_t n) { std::memcpy(to, from, n); });
  });
}

TEST_P(Windows, OfDeviceMemoryAreReachedByTheDevice) {
  run([](Rank& rank) {
    const std::string place = place_of(rank);
    const Memory memory = rank.context.allocate(kLength, place.c_str());
    const Window window = rank.window(memory);
    const device::Window bound = window.bind(place.c_str());
    EXPECT_EQ(memory_query(bound.bases).place, place);
    EXPECT_EQ(memory_query(bound.guard.abort_flag).place, place);
    EXPECT_EQ(memory_query(bound.guard.failure).kind, uint32_t{TW_MEMORY_PINNED});
    EXPECT_EQ(memory_query(bound.guard.abort).kind, uint32_t{TW_MEMORY_PINNED});
    impl::BufferInfo info;
    ASSERT_EQ(impl::find_device(reinterpret_cast<uint64_t>(bound.bases), &info), TW_OK);
    std::unique_ptr<impl::Queue> queue;
    ASSERT_EQ(info.device->make_queue(&queue), TW_OK);
    // By kernels of the device, which need access where a copy engine does not. Pinned by it: a machine may have devices of other sorts.
    uint64_t staging = 0;
    ASSERT_EQ(info.device->allocate(impl::MemoryKind::pinned, kPart, &staging), TW_OK);
    write_to_all(rank, memory, bases_of(rank, bound), [&](void* to, const void* from, size_t n) {
      std::memcpy(reinterpret_cast<void*>(staging), from, n);
      impl::CopyKernel kernel;
      kernel.copy = {reinterpret_cast<uint64_t>(to), staging, n};
      ASSERT_EQ(queue->launch(kernel), TW_OK) << tw_last_error();
      ASSERT_EQ(queue->synchronize(), TW_OK) << tw_last_error();
    });
    EXPECT_EQ(info.device->free(staging), TW_OK);
    rank.barrier();
  });
}

TEST_P(Windows, OfHostMemoryArePinnedForADevice) {
  run([](Rank& rank) {
    const std::string place = place_of(rank);
    std::string bytes(kLength, '\0');
    const Memory memory = rank.number == 0 ? rank.context.register_memory(bytes) : rank.context.allocate(kLength);
    {
      // Two windows of the same memory: the end of one does not unpin the other's.
      Window first = rank.window(memory);
      const Window window = rank.window(memory);
      first.bind(place.c_str());
      const std::vector<char*> bases = bases_of(rank, window.bind(place.c_str()));
      EXPECT_EQ(first.destroy(), TW_OK);
      for (char* base : bases) EXPECT_EQ(memory_query(base).kind, uint32_t{TW_MEMORY_PINNED});
      write_to_all(rank, memory, bases, [](void* to, const void* from, size_t n) { std::memcpy(to, from, n); });
      rank.barrier();
    }
    rank.barrier();
    EXPECT_EQ(memory_query(memory.data()).kind, uint32_t{TW_MEMORY_HOST});
  });
}

TEST_P(Windows, AreTargetsOfPutsToo) {
  run([](Rank& rank) {
    const Memory memory = rank.context.allocate(kLength);
    const Window window = rank.window(memory);
    const std::vector<std::string> bytes = share_bytes(rank, kPart);
    const uint32_t next = (rank.number + 1) % rank.size, before = (rank.number + rank.size - 1) % rank.size;
    Request request;
    ASSERT_GE(tw_put(rank.handles[next], bytes[rank.number].data(), kPart, window.remote(next), 5, nullptr, request.out()),
              TW_OK);
    ASSERT_EQ(request.wait(), TW_OK);
    ASSERT_GE(rank.endpoints[next].flush(request), TW_OK);
    ASSERT_EQ(request.wait(), TW_OK);
    rank.barrier();
    EXPECT_EQ(std::memcmp(static_cast<char*>(memory.data()) + 5, bytes[before].data(), kPart), 0);
    const std::string own = random_bytes(kPart);
    for (int turn = 0; turn < 2; ++turn) {
      ASSERT_GE(tw_put(window.endpoint(rank.number), own.data(), kPart, window.remote(rank.number), 5 + kPart, nullptr,
                       request.out()),
                TW_OK)
          << tw_last_error();
      ASSERT_EQ(request.wait(), TW_OK);
      EXPECT_EQ(std::memcmp(static_cast<char*>(memory.data()) + 5 + kPart, own.data(), kPart), 0);
    }
    EXPECT_EQ(window.endpoint(next), rank.handles[next]);
  });
}

INSTANTIATE_TEST_SUITE_P(Of, Windows, testing::Values(Case{2, false}, Case{2, true}, Case{3, false}, Case{4, true}),
                         [](const auto& info) {
                           return std::to_string(info.param.size) + (info.param.one_context ? "_of_one" : "_of_several");
                         });

TEST(Window, OfOneRankNeedsNobody) {
  Context context(test_options());
  const Worker worker(context);
  const Memory memory = context.allocate(kLength, "emulated:1");
  tw_window* made = nullptr;
  const auto alone = [](void*, const void* mine, size_t length, void* values) -> tw_status {
    std::memcpy(values, mine, length);
    return TW_OK;
  };
  ASSERT_EQ(tw_window_create(worker.get(), nullptr, 1, 0, memory.get(), alone, nullptr, nullptr, &made), TW_OK)
      << tw_last_error();
  tw_device_window bound{};
  ASSERT_EQ(tw_window_bind(made, "emulated:1", &bound), TW_OK) << tw_last_error();
  EXPECT_EQ(bound.guard.limit_ns, 30 * kSecond);
  char* base = nullptr;
  context.copy(&base, bound.bases, sizeof base);
  EXPECT_EQ(base, memory.data());
  tw_remote_memory* own = nullptr;
  EXPECT_EQ(tw_window_remote(made, 0, &own), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_remote_memory_length(own), kLength);
  EXPECT_EQ(tw_window_check(made), TW_OK);
  EXPECT_EQ(tw_window_destroy(made), TW_OK);
}

TEST(Window, ReportsWhatDeviceCodeRecordedUntilItIsBoundAgain) {
  for (const char* place : {"host", "emulated:0"}) {
    run_ranks(2, [&](Rank& rank) {
      const Memory memory = rank.context.allocate(kLength);
      const Window window = rank.window(memory);
      const device::Window bound = window.bind(place);
      const uint64_t poison = 1;
      rank.context.copy(bound.guard.abort_flag, &poison, sizeof poison);
      *bound.guard.failure = {1, TW_ERR_TIMED_OUT, 77, 1234, 1233, {}};
      EXPECT_EQ(tw_window_check(window.get()), TW_ERR_TIMED_OUT);
      const std::string text = tw_last_error();
      for (const char* part : {"operation 77", "1234", "1233", place})
        EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
      const device::Window again = window.bind(place);
      EXPECT_EQ(again.bases, bound.bases);
      uint64_t cleared = 1;
      rank.context.copy(&cleared, again.guard.abort_flag, sizeof cleared);
      EXPECT_EQ(cleared, 0u);
      EXPECT_EQ(tw_window_check(window.get()), TW_OK);
    });
  }
}

}  // namespace
}  // namespace thalweg::test
