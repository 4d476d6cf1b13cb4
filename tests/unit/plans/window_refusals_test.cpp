// SPDX-License-Identifier: Apache-2.0
// What windows refuse, at every rank and with a text that names the rank, the reason and the remedy; and the loss of a peer.
#include "unit/plans/window_ranks.hpp"

namespace thalweg::test {
namespace {

constexpr size_t kLength = 5'003;

/// The last error's text holds all of these.
void expect_text(std::initializer_list<const char*> parts) {
  const std::string text = tw_last_error();
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in \"" << text << '"';
}

TEST(WindowRefusals, LengthsThatDiffer) {
  run_ranks(3, [](Rank& rank) {
    const Memory memory = rank.context.allocate(kLength + (rank.number == 2 ? 1 : 0));
    tw_window* window = nullptr;
    EXPECT_EQ(rank.create(memory.get(), &window), TW_ERR_INVALID);
    expect_text({"rank 2", "5004", "5003"});
    EXPECT_EQ(window, nullptr);
  });
}

TEST(WindowRefusals, OfOneRankReachAll) {
  run_ranks(3, [](Rank& rank) {
    Context other(test_options());
    const Memory memory = (rank.number == 1 ? other : rank.context).allocate(kLength);
    tw_window* window = nullptr;
    EXPECT_EQ(rank.create(memory.get(), &window), TW_ERR_INVALID);
    expect_text({rank.number == 1 ? "another context" : "rank 1 cannot take part"});
    EXPECT_EQ(rank.create(rank.number == 0 ? nullptr : memory.get(), &window), TW_ERR_INVALID);
    std::swap(rank.handles[0], rank.handles[1]);
    const Memory good = rank.context.allocate(kLength);
    EXPECT_EQ(rank.create(good.get(), &window), TW_ERR_INVALID);
    std::swap(rank.handles[0], rank.handles[1]);
    tw_endpoint* const saved = rank.handles[(rank.number + 1) % 3];
    rank.handles[(rank.number + 1) % 3] = rank.handles[(rank.number + 2) % 3];
    EXPECT_EQ(rank.create(good.get(), &window), TW_ERR_INVALID);
    expect_text({"same endpoint"});
    rank.handles[(rank.number + 1) % 3] = saved;
    Window after = rank.window(good);
    EXPECT_EQ(after.destroy(), TW_OK);
  });
}

TEST(WindowRefusals, ARankThatIsMissing) {
  Context context(test_options());
  Meeting meeting(2, std::chrono::milliseconds(50));
  const Worker worker(context), other(context);
  const Memory memory = context.allocate(kLength);
  const Endpoint endpoint = worker.connect(other.address());
  tw_endpoint* const endpoints[] = {nullptr, endpoint.get()};
  const auto exchange = [](void* arg, const void* mine, size_t length, void* values) {
    return static_cast<Meeting*>(arg)->exchange(0, mine, length, values);
  };
  tw_window* window = nullptr;
  EXPECT_EQ(tw_window_create(worker.get(), endpoints, 2, 0, memory.get(), exchange, &meeting, nullptr, &window),
            TW_ERR_TIMED_OUT);
  EXPECT_EQ(tw_window_create(worker.get(), endpoints, 2, 2, memory.get(), exchange, &meeting, nullptr, &window),
            TW_ERR_INVALID);
  EXPECT_EQ(tw_window_create(worker.get(), endpoints, 2, 0, memory.get(), nullptr, nullptr, nullptr, &window), TW_ERR_INVALID);
  EXPECT_EQ(tw_window_create(worker.get(), endpoints, 2, 0, memory.get(), exchange, &meeting, nullptr, nullptr),
            TW_ERR_INVALID);
  EXPECT_EQ(tw_window_destroy(nullptr), TW_ERR_INVALID);
}

/// Busy is a window that is still there, which only a group's can be.
TEST(WindowRefusals, AnExchangeThatIsBusyEndsTheWindowAllTheSame) {
  Context context(test_options());
  const Worker worker(context);
  const Memory memory = context.allocate(kLength);
  int calls = 0;
  const auto exchange = [](void* arg, const void* mine, size_t length, void* values) -> tw_status {
    std::memcpy(values, mine, length);
    return ++*static_cast<int*>(arg) == 3 ? TW_ERR_BUSY : TW_OK;
  };
  tw_window* window = nullptr;
  ASSERT_EQ(tw_window_create(worker.get(), nullptr, 1, 0, memory.get(), exchange, &calls, nullptr, &window), TW_OK)
      << tw_last_error();
  EXPECT_EQ(tw_window_destroy(window), TW_ERR_INVALID);
}

TEST(WindowRefusals, RanksThatDisagreeWhoTheyAre) {
  run_ranks(2, [](Rank& rank) {
    const Memory memory = rank.context.allocate(kLength);
    tw_window* window = nullptr;
    tw_endpoint* const endpoints[] = {nullptr, rank.handles[1 - rank.number]};
    EXPECT_EQ(tw_window_create(rank.worker->get(), endpoints, 2, 0, memory.get(), Rank::exchange, &rank, nullptr, &window),
              TW_ERR_INVALID);
    expect_text({"in place 1", "rank 0 of 2"});
  });
}

TEST(WindowRefusals, PlacesThatAreNoExecutors) {
  run_ranks(2, [](Rank& rank) {
    const Memory memory = rank.context.allocate(kLength);
    const Window window = rank.window(memory);
    tw_device_window bound{};
    for (const char* place : {"pinned", "emulated-vmm:0", "somewhere", "emulated:7"}) {
      EXPECT_EQ(tw_window_bind(window.get(), place, &bound), TW_ERR_INVALID) << place;
      expect_text({place});
    }
    EXPECT_EQ(tw_window_bind(window.get(), "host", nullptr), TW_ERR_INVALID);
    void* address = nullptr;
    EXPECT_EQ(tw_window_address(window.get(), 2, &address), TW_ERR_INVALID);
    EXPECT_EQ(tw_window_bind(nullptr, "host", &bound), TW_ERR_INVALID);
  });
}

TEST(WindowRefusals, DeviceMemoryFromTheHost) {
  run_ranks(2, [](Rank& rank) {
    const Memory memory = rank.context.allocate(kLength, rank.number == 0 ? "host" : "emulated:0");
    const Window window = rank.window(memory);
    tw_device_window bound{};
    EXPECT_EQ(tw_window_bind(window.get(), "host", &bound), TW_ERR_UNSUPPORTED);
    expect_text({"rank 1", "the host", "device memory", "bind the window to a device"});
    void* address = nullptr;
    EXPECT_EQ(tw_window_address(window.get(), 1, &address), TW_ERR_UNSUPPORTED);
    EXPECT_EQ(tw_window_address(window.get(), 0, &address), TW_OK);
    EXPECT_EQ(tw_window_bind(window.get(), "emulated:0", &bound), TW_OK) << tw_last_error();
  });
}

TEST(WindowRefusals, PathsThatAreNotMapped) {
  run_ranks(2,
            [](Rank& rank) {
              for (const char* place : {"host", "emulated:0"}) {
                const Memory memory = rank.context.allocate(kLength, place);
                const Window window = rank.window(memory);
                tw_device_window bound{};
                EXPECT_EQ(tw_window_bind(window.get(), place, &bound), TW_ERR_UNSUPPORTED) << place;
                expect_text({rank.number == 0 ? "rank 1" : "rank 0", "machine"});
                EXPECT_EQ(tw_window_check(window.get()), TW_OK);
                const std::string mine = random_bytes(99);  // a put takes the way that a load does not
                const uint32_t other = 1 - rank.number;
                const std::string theirs = rank.gather(mine)[other];
                Request request;
                ASSERT_GE(
                    tw_put(rank.handles[other], mine.data(), mine.size(), window.remote(other), 1, nullptr, request.out()),
                    TW_OK);
                ASSERT_GE(rank.endpoints[other].flush(request), TW_OK);
                ASSERT_EQ(request.wait(std::chrono::seconds(20)), TW_OK);
                rank.barrier();
                std::string found(theirs.size(), '\0');
                rank.context.copy(found.data(), static_cast<char*>(memory.data()) + 1, found.size());
                EXPECT_TRUE(found == theirs);
                rank.barrier();
              }
            },
            {false, "tcp", TW_PROGRESS_THREAD});
}

/// Rank 1 leaves; rank 0 is told without progressing.
TEST(WindowLoss, EndsWaitsAndIsSaidByEverything) {
  for (const char* place : {"host", "emulated:1"}) {
    run_ranks(2, [&](Rank& rank) {
      std::optional<Memory> memory = rank.context.allocate(kLength, place);
      tw_window* window = nullptr;
      ASSERT_EQ(rank.create(memory->get(), &window), TW_OK) << tw_last_error();
      tw_device_window bound{};
      ASSERT_EQ(tw_window_bind(window, place, &bound), TW_OK) << tw_last_error();
      EXPECT_EQ(tw_window_check(window), TW_OK);
      rank.barrier();
      if (rank.number == 1) {
        rank.endpoints[0] = Endpoint();  // by force
        EXPECT_EQ(tw_window_check(window), TW_ERR_CLOSED);
        EXPECT_EQ(*bound.guard.abort, static_cast<uint64_t>(int64_t{TW_ERR_CLOSED}));
      } else {
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (__atomic_load_n(bound.guard.abort, __ATOMIC_ACQUIRE) == 0 && std::chrono::steady_clock::now() < limit) {
        }
        EXPECT_EQ(*bound.guard.abort, static_cast<uint64_t>(int64_t{TW_ERR_PEER_LOST}));
        EXPECT_EQ(tw_window_check(window), TW_ERR_PEER_LOST);
        expect_text({"rank 1"});
        EXPECT_EQ(tw_window_bind(window, place, &bound), TW_ERR_PEER_LOST);
        void* address = nullptr;
        EXPECT_EQ(tw_window_address(window, 1, &address), TW_ERR_PEER_LOST);
      }
      EXPECT_LT(tw_window_destroy(window), TW_OK) << "nobody is waited for";
      rank.barrier();
    });
  }
}

}  // namespace
}  // namespace thalweg::test
