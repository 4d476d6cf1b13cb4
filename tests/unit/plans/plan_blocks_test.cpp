// SPDX-License-Identifier: Apache-2.0
// Blocks of threads of plans' kernels: all of them find room on their device at once, with those of the peers that run there, too.
#include <array>

#include "../../fixtures/rooms.hpp"
#include "pair.hpp"

namespace thalweg::tests {
namespace {

constexpr size_t kMessages = 12, kCopies = 60, kSteps = 2 * kMessages + kCopies;

/// One side's part: messages each way, and behind each that came several copies of it, the last of which is checked.
struct Part {
  tw_plan* plan = nullptr;
  std::array<unsigned char*, kMessages> out{}, in{}, copy{};
};
constexpr size_t length_of(size_t message) { return 1'501 + 977 * message; }

class PlanBlocks : public Pair {
 protected:
  static tw_op_options behind(const uint32_t& step) {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.after_steps = &step;
    options.after_count = 1;
    return options;
  }
  /// More blocks are asked for than any device has.
  Part part(Side& side, const char* place) {
    Part made;
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = place;
    options.blocks = 64;
    EXPECT_EQ(tw_plan_create(side.context, &options, &made.plan), TW_OK) << tw_last_error();
    side.last.emplace_back([plan = made.plan] { EXPECT_EQ(tw_plan_destroy(plan), TW_OK) << tw_last_error(); });
    for (size_t i = 0; i < kMessages; ++i) {
      const size_t length = length_of(i);
      for (unsigned char** each : {&made.out[i], &made.in[i], &made.copy[i]}) *each = side.memory(place, length);
      EXPECT_EQ(tw_plan_send(made.plan, side.endpoint, made.out[i], length, i, nullptr, nullptr), TW_OK) << tw_last_error();
      uint32_t last = 0;
      EXPECT_EQ(tw_plan_recv(made.plan, side.endpoint, made.in[i], length, i, nullptr, &last), TW_OK) << tw_last_error();
      for (size_t k = 0; k < kCopies / kMessages; ++k) {
        const tw_op_options order = behind(last);
        EXPECT_EQ(tw_plan_copy(made.plan, made.copy[i], made.in[i], length, &order, &last), TW_OK) << tw_last_error();
      }
    }
    return made;
  }
  /// Several times, on queues.
  void run(const char* place_of_a, const char* place_of_b, const std::string& says) {
    Part of_a = part(a, place_of_a), of_b = part(b, place_of_b);
    prepare_both(of_a.plan, of_b.plan);
    for (const Part* one : {&of_a, &of_b}) {
      const std::string text = explain(one->plan);
      EXPECT_NE(text.find(says), std::string::npos) << text;
    }
    tw_queue* queues[2] = {};
    ASSERT_EQ(tw_queue_create(a.context, place_of_a, nullptr, &queues[0]), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_create(b.context, place_of_b, nullptr, &queues[1]), TW_OK) << tw_last_error();
    for (int round = 0; round < 3; ++round) {
      std::array<Bytes, kMessages> from_a, from_b;
      for (size_t i = 0; i < kMessages; ++i) {
        a.store(of_a.out[i], from_a[i] = random_bytes(length_of(i)));
        b.store(of_b.out[i], from_b[i] = random_bytes(length_of(i)));
      }
      ASSERT_EQ(tw_plan_trigger(of_a.plan, queues[0]), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_plan_trigger(of_b.plan, queues[1]), TW_OK) << tw_last_error();
      for (tw_queue* one : queues) ASSERT_EQ(tw_queue_synchronize(one), TW_OK) << tw_last_error();
      for (size_t i = 0; i < kMessages; ++i) {
        EXPECT_TRUE(b.load(of_b.copy[i], length_of(i)) == from_a[i]) << "message " << i << " of a, round " << round;
        EXPECT_TRUE(a.load(of_a.copy[i], length_of(i)) == from_b[i]) << "message " << i << " of b, round " << round;
      }
    }
    for (tw_queue* one : queues) tw_queue_destroy(one);
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, PlanBlocks, testing::Values(kWays[1]), [](const auto& info) { return info.param.name; });

/// The emulated devices have 8 multiprocessors. Four ranks that wait for each other find room on one of them.
TEST_P(PlanBlocks, OfPeersOnOneDeviceFindRoomTogether) {
  run("emulated:0", "emulated:0", "blocks of threads: 2, the most of 8 multiprocessors, which kernels of peers use, too");
}

TEST_P(PlanBlocks, HaveADeviceOfTheirOwnToThemselves) {
  run("emulated:0", "emulated:1", "blocks of threads: 8, the most of 8 multiprocessors\n");
}

/// A peer's memory there is enough to say so, too: its kernels are where its memory is.
TEST_P(PlanBlocks, OfOneSidedStepsCountThePeersOnTheirDevice) {
  constexpr size_t kLength = 9'001;
  for (const bool shared : {true, false}) {
    Target target;
    make_target(b, a, shared ? "emulated:0" : "emulated:1", kLength, TW_SIGNAL_ADD, &target);
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = "emulated:0";
    options.blocks = 64;
    tw_plan* puts = nullptr;
    ASSERT_EQ(tw_plan_create(a.context, &options, &puts), TW_OK) << tw_last_error();
    unsigned char* const from = a.memory("emulated:0", kLength);
    ASSERT_EQ(tw_plan_put(puts, a.endpoint, from, kLength, target.remote, 0, nullptr, nullptr), TW_OK) << tw_last_error();
    both([&] { ASSERT_EQ(tw_plan_prepare(puts, kLong), TW_OK) << tw_last_error(); }, [] {});
    const std::string text = explain(puts);
    EXPECT_NE(text.find(shared ? "blocks of threads: 2, the most" : "blocks of threads: 8, the most"), std::string::npos)
        << text;
    const Bytes data = random_bytes(kLength);
    a.store(from, data);
    ASSERT_EQ(tw_plan_run(puts, kLong), TW_OK) << tw_last_error();
    EXPECT_TRUE(b.load(target.address, kLength) == data);
    EXPECT_EQ(tw_plan_destroy(puts), TW_OK) << tw_last_error();
  }
}

}  // namespace
}  // namespace thalweg::tests
