// SPDX-License-Identifier: Apache-2.0
// The C++ view of plans: chains, options, queues, graphs, and what is thrown. Two ranks of one process.
#include "unit/plans/window_ranks.hpp"

namespace thalweg::test {
namespace {

constexpr uint64_t kRows = 9, kColumns = 14, kGhost = 0x5a5a5a5a5a5a5a5a;
using Grid = std::vector<uint64_t>;

/// In place: plans know addresses.
void fill(Grid& grid) {
  const std::string bytes = random_bytes(grid.size() * sizeof grid[0]);
  std::memcpy(grid.data(), bytes.data(), bytes.size());
}
Grid empty_grid() { return Grid(kRows * kColumns, kGhost); }
Layout column(uint64_t x) { return Layout::subarray<uint64_t>({kRows, kColumns}, {kRows, 1}, {0, x}); }

/// What is found in `grid` but for column x, which is `from`'s column y.
void expect_column(const Grid& grid, uint64_t x, const Grid& from, uint64_t y) {
  for (uint64_t row = 0; row < kRows; ++row) {
    for (uint64_t at = 0; at < kColumns; ++at) {
      const uint64_t expected = at == x ? from[row * kColumns + y] : kGhost;
      ASSERT_EQ(grid[row * kColumns + at], expected) << "row " << row << ", column " << at;
    }
  }
}

/// Everybody's grid, in pieces that the harness's exchange takes.
std::vector<Grid> share(Rank& rank, const Grid& mine) {
  const size_t bytes = mine.size() * sizeof mine[0];
  std::string all(rank.size * bytes, '\0');
  EXPECT_EQ(rank.meeting.exchange(rank.number, mine.data(), bytes, all.data()), TW_OK);
  std::vector<Grid> grids(rank.size, Grid(mine.size()));
  for (uint32_t i = 0; i < rank.size; ++i) std::memcpy(grids[i].data(), all.data() + i * bytes, bytes);
  return grids;
}

TEST(PlanView, ChainsOfStridedFacesOnAQueueAndByTheHost) {
  run_ranks(2, [](Rank& rank) {
    const uint32_t other = 1 - rank.number;
    Grid mine = empty_grid(), theirs = empty_grid();
    Queue queue(rank.context);
    Plan plan;
    plan.recv(rank.handles[other], theirs.data(), column(3), 7).send(rank.handles[other], mine.data(), column(11), 7);
    EXPECT_EQ(plan.last(), 1u);
    plan.prepare();
    EXPECT_NE(plan.explain().find("recv"), std::string::npos) << plan.explain();
    for (int round = 0; round < 4; ++round) {
      fill(mine);
      std::fill(theirs.begin(), theirs.end(), kGhost);
      const std::vector<Grid> all = share(rank, mine);
      if (round % 2 == 0) {
        ASSERT_EQ(plan.trigger(queue), TW_OK) << tw_last_error();
        ASSERT_EQ(queue.synchronize(), TW_OK) << tw_last_error();
      } else if (round == 1) {
        check(plan.run(std::chrono::seconds(20)));
      } else {
        ASSERT_GE(plan.trigger(), TW_OK) << tw_last_error();
        ASSERT_EQ(plan.finish(std::chrono::seconds(20)), TW_OK) << tw_last_error();
      }
      check(queue);
      expect_column(theirs, 3, all[other], 11);
      rank.barrier();
    }
  });
}

TEST(PlanView, SaysThatItIsBusyInsteadOfEnding) {
  Context context(test_options());
  const Worker worker(context);
  const Signal signal = worker.signal();
  uint64_t from = 5, to = 0;
  Plan plan(context);
  plan.wait(signal, 1).copy(std::as_writable_bytes(std::span(&to, 1)), std::as_bytes(std::span(&from, 1)));
  plan.prepare();
  ASSERT_GE(plan.trigger(), TW_OK) << tw_last_error();
  ASSERT_EQ(plan.destroy(), TW_ERR_BUSY);
  ASSERT_NE(plan.get(), nullptr);
  ASSERT_EQ(signal.reset(1), TW_OK);
  ASSERT_EQ(plan.finish(std::chrono::seconds(20)), TW_OK) << tw_last_error();
  EXPECT_EQ(to, from);
  EXPECT_EQ(plan.destroy(), TW_OK) << tw_last_error();
  EXPECT_EQ(plan.get(), nullptr);
  EXPECT_EQ(plan.destroy(), TW_OK);
}

TEST(PlanView, BothSidesOfACopyAreOfOneSize) {
  Context context(test_options());
  const Queue queue(context);
  Grid from = empty_grid(), to(from.size() - 1, 1), whole(from.size(), 1);
  const Grid before = to;
  EXPECT_EQ(queue.copy(to, from), TW_ERR_INVALID);
  Plan plan(context);
  EXPECT_THROW(plan.copy(to, from), Error);
  EXPECT_THROW(plan.copy(to, from, OpOptions().layout(column(3))), Error);
  EXPECT_TRUE(to == before);
  fill(from);
  ASSERT_EQ(queue.copy(whole, from), TW_OK) << tw_last_error();
  ASSERT_EQ(queue.synchronize(), TW_OK) << tw_last_error();
  EXPECT_TRUE(whole == from);
  Grid face(kRows, 1);
  plan.copy(face, from, OpOptions().layout(column(3)));
  plan.prepare();
  check(plan.run(std::chrono::seconds(20)));
  for (uint64_t row = 0; row < kRows; ++row) EXPECT_EQ(face[row], from[row * kColumns + 3]);
}

TEST(PlanView, AGraphAndNewAddresses) {
  run_ranks(2, [](Rank& rank) {
    const uint32_t other = 1 - rank.number;
    Grid mine = empty_grid(), first = empty_grid(), second = empty_grid();
    const Queue queue(rank.context);
    Plan plan(rank.context);
    plan.send(rank.handles[other], mine, 1);
    const uint32_t received = plan.recv(rank.handles[other], first, 1).last();
    plan.prepare();
    queue.begin_capture();
    ASSERT_EQ(plan.trigger(queue), TW_OK) << tw_last_error();
    const Graph graph = queue.end_capture();
    for (int round = 0; round < 3; ++round) {
      fill(mine);
      const std::vector<Grid> all = share(rank, mine);
      ASSERT_EQ(queue.launch(graph), TW_OK) << tw_last_error();
      ASSERT_EQ(queue.synchronize(), TW_OK) << tw_last_error();
      EXPECT_EQ(first, all[other]);
      rank.barrier();
    }
    const Grid before = first;
    ASSERT_EQ(plan.update(received, second.data()), TW_OK) << tw_last_error();
    const std::vector<Grid> all = share(rank, mine);
    ASSERT_EQ(plan.trigger(queue), TW_OK) << tw_last_error();
    ASSERT_EQ(queue.synchronize(), TW_OK) << tw_last_error();
    EXPECT_EQ(second, all[other]);
    EXPECT_EQ(first, before);
    rank.barrier();
  });
}

TEST(PlanView, PutsWithSignalsInOrder) {
  run_ranks(2, [](Rank& rank) {
    const uint32_t other = 1 - rank.number;
    Grid mine = empty_grid(), local = empty_grid();
    const Memory memory = rank.context.allocate(mine.size() * sizeof mine[0]);
    const Window window = rank.window(memory);
    const Signal signal = rank.worker->signal();
    const RemoteSignal remote = rank.endpoints[other].import_signal(rank.gather(signal.key())[other]);
    const Queue queue(rank.context);
    Plan plan;
    const uint32_t copied =
        plan.put(rank.handles[other], mine, window.remote(other), 0, OpOptions().signal(remote, 1).increment(1)).last();
    const uint32_t waited = plan.wait(signal, 1, TW_COMPARE_GE, OpOptions().increment(1)).last();
    plan.copy(local, {memory.data(), memory.size()}, OpOptions().after({copied, waited}));
    plan.prepare();
    for (int round = 0; round < 4; ++round) {
      fill(mine);
      const std::vector<Grid> all = share(rank, mine);
      ASSERT_EQ(plan.trigger(queue), TW_OK) << tw_last_error();
      ASSERT_EQ(queue.synchronize(), TW_OK) << tw_last_error();
      EXPECT_EQ(local, all[other]) << "round " << round;
      EXPECT_EQ(signal.read(), static_cast<uint64_t>(round) + 1);
      rank.barrier();
    }
  });
}

TEST(PlanView, SingleOperationsOnAQueue) {
  run_ranks(2, [](Rank& rank) {
    const uint32_t other = 1 - rank.number;
    Grid mine = empty_grid(), theirs = empty_grid();
    const Queue queue(rank.context);
    for (int round = 0; round < 3; ++round) {
      fill(mine);
      const std::vector<Grid> all = share(rank, mine);
      // Rank 0 sends first: each waits for the other in its queue, not here.
      if (rank.number == 0) {
        ASSERT_EQ(queue.send(rank.handles[other], mine, 5), TW_OK) << tw_last_error();
        ASSERT_EQ(queue.recv(rank.handles[other], theirs, 5), TW_OK) << tw_last_error();
      } else {
        ASSERT_EQ(queue.recv(rank.handles[other], theirs, 5), TW_OK) << tw_last_error();
        ASSERT_EQ(queue.send(rank.handles[other], mine, 5), TW_OK) << tw_last_error();
      }
      ASSERT_EQ(queue.synchronize(), TW_OK) << tw_last_error();
      EXPECT_EQ(theirs, all[other]);
      rank.barrier();
    }
  });
}

TEST(PlanView, ThrowsWhatIsWrongBeforeAnythingRuns) {
  Context context(test_options());
  const Worker worker(context);
  const Endpoint self = worker.connect(worker.address());
  Grid grid = empty_grid();
  Plan plan(context);
  EXPECT_THROW(plan.send(self, grid.data(), column(kColumns), 1), Error);
  EXPECT_THROW(plan.send(nullptr, grid, 1), Error);
  EXPECT_THROW(plan.recv(self, grid, 1, OpOptions().after({5})), Error);
  EXPECT_THROW(Queue(context, "nowhere"), Error);
  EXPECT_LT(Plan(context).trigger(), TW_OK);
}

/// Packs and unpacks nothing: it is never asked.
struct Unasked {
  struct State {
    size_t packed_size() const noexcept { return 8; }
    size_t pack(uint64_t, std::span<std::byte> to) { return to.size(); }
    void unpack(uint64_t, std::span<const std::byte>) {}
  };
  State start(const void*, size_t, int) { throw 1; }
};

TEST(PlanView, ALayoutOfCallbacksIsRefused) {
  Context context(test_options());
  const Worker worker(context);
  const Endpoint self = worker.connect(worker.address());
  Grid grid = empty_grid();
  const Layout layout = Layout::callbacks(Unasked{});
  Plan plan(context);
  for (const bool sends : {true, false}) {
    try {
      sends ? plan.send(self, grid.data(), layout, 1) : plan.recv(self, grid.data(), layout, 1);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), TW_ERR_UNSUPPORTED);
      EXPECT_NE(std::strstr(error.what(), "names no bytes"), nullptr) << error.what();
    }
  }
  tw_channel_buffer buffer{};
  buffer.address = grid.data();
  buffer.layout = layout.get();
  EXPECT_THROW(BoundRecv(self, std::vector<tw_channel_buffer>{buffer}, 1), Error);
}

}  // namespace
}  // namespace thalweg::test
