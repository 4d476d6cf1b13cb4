// SPDX-License-Identifier: Apache-2.0
// When programs did their steps: each run's record in its ring, by the clock of what ran it, which the device's clock() is beside.
#include "base/clock.hpp"
#include "tests/gpu/programs.hpp"

namespace thalweg::impl::contract {
namespace {

constexpr uint32_t kKept = 4;
constexpr unsigned kRuns = 6;  // the first ones are overwritten

class ProgramTimes : public Programs {
 protected:
  void SetUp() override {
    Programs::SetUp();
    if (!IsSkipped() && GetParam() == Trigger::device) ASSERT_TRUE(device->has_clock());
  }
  /// The clock by which the site records, now.
  uint64_t now() {
    if (GetParam() != Trigger::device) return monotonic_ns();
    uint64_t time = 0;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!device->clock(&time) && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    return time;
  }
  const device::StepTime& time(const Written& program, uint64_t run, size_t step) {
    return pointer<device::StepTime>(program.run.times)[run % kKept * (program.steps.size() + 1) + step];
  }
  /// Of the last kKept runs of kRuns, all between two moments.
  void expect_times(const Written& program, uint64_t from, uint64_t to) {
    constexpr uint64_t kSlack = 10'000'000;  // between the two clocks of one device
    uint64_t before = 0;
    for (uint64_t run = kRuns - kKept; run < kRuns; ++run) {
      const device::StepTime& whole = time(program, run, program.steps.size());
      for (size_t step = 0; step <= program.steps.size(); ++step) {
        SCOPED_TRACE("run " + std::to_string(run) + ", step " + std::to_string(step));
        const device::StepTime& one = time(program, run, step);
        EXPECT_EQ(one.run, run + 1);
        EXPECT_EQ(one.check, one.ended ^ one.run);
        EXPECT_LE(whole.begun, one.begun);
        EXPECT_LE(one.begun, one.ended);
        EXPECT_LE(one.ended, whole.ended);
      }
      EXPECT_LE(before, whole.begun) << "runs are one after the other";
      before = whole.ended;
      EXPECT_LE(from, whole.begun + kSlack);
      EXPECT_LE(whole.ended, to + kSlack);
    }
  }
};

TEST_P(ProgramTimes, OfCopiesByOneBlockAndByMany) {
  constexpr size_t kLength = 64 * 1024 + 3;
  Site site(GetParam(), device, ordinary);
  const uint64_t from = site.allocate(kLength), to = site.allocate(kLength), word = site.allocate(8);
  const Bytes payload = site.fill(from, kLength);
  for (const uint32_t blocks : {1u, 8u}) {
    for (const size_t length : {size_t{8}, size_t{4096}, kLength}) {
      Written program(site, blocks);
      program.kept_runs = kKept;
      program.copy(at(to), at(from), length, {pointer<device::u64>(word), 1, 1, 0});
      program.prepare();
      const uint64_t begun = now();
      for (unsigned run = 0; run < kRuns; ++run) {
        program.trigger();
        program.finish();
      }
      program.expect_good();
      expect_times(program, begun, now());
    }
  }
  EXPECT_TRUE(site.read(to, kLength) == payload);
}

/// A list, and a chain of everything, which no specialised kernel runs; longer than a launch brings along, too.
TEST_P(ProgramTimes, OfLists) {
  constexpr size_t kLength = 5000;
  Site site(GetParam(), device, ordinary);
  const uint64_t from = site.allocate(kLength), to = site.allocate(kLength), word = site.allocate(8);
  site.put_word(word, 1'000'000);
  for (const uint32_t steps : {3u, 11u, 90u}) {
    for (const bool chain : {false, true}) {
      for (const uint32_t blocks : {1u, 4u}) {
        Written program(site, blocks);
        program.kept_runs = kKept;
        for (uint32_t i = 0; i < steps; ++i) {
          if (chain && i % 3 == 2) {
            program.wait(word, 1, 0, TW_COMPARE_GE, {i - 1});
          } else if (chain && i != 0) {
            program.copy(at(to), at(from), kLength, {}, {i - 1});
          } else {
            program.copy(at(to + i * 50), at(from + i * 50), 50);
          }
        }
        program.prepare();
        const uint64_t begun = now();
        for (unsigned run = 0; run < kRuns; ++run) {
          program.trigger();
          program.finish();
        }
        program.expect_good();
        SCOPED_TRACE("steps " + std::to_string(steps) + (chain ? ", chain" : "") + ", blocks " + std::to_string(blocks));
        expect_times(program, begun, now());
        for (uint32_t i = 1; chain && i < steps; ++i)
          EXPECT_LE(time(program, kRuns - 1, i - 1).begun, time(program, kRuns - 1, i).begun) << "step " << i;
      }
    }
  }
}

/// A message from one site to another: the receive is not over before its send has begun, by the clock of one device.
TEST_P(ProgramTimes, OfMessages) {
  constexpr size_t kLength = 3000;
  Site site(GetParam(), device, ordinary), target(GetParam(), device, ordinary);
  const uint64_t from = site.allocate(kLength), to = target.allocate(kLength);
  target.admit(from, kLength);
  site.admit(to, kLength);
  const Bytes payload = site.fill(from, kLength);
  const Channel channel(site, target, {{at(to), kLength}});
  Written sends(site), receives(target);
  sends.kept_runs = receives.kept_runs = kKept;
  sends.send(channel.send, at(from), kLength);
  receives.post(channel.recv, 0);
  receives.take(channel.recv);
  sends.prepare();
  receives.prepare();
  const uint64_t begun = now();
  for (unsigned run = 0; run < kRuns; ++run) {
    receives.trigger();
    sends.trigger();
    Status left[] = {TW_IN_PROGRESS, TW_IN_PROGRESS};
    while (left[0] == TW_IN_PROGRESS || left[1] == TW_IN_PROGRESS) {
      left[0] = receives.advance();
      left[1] = sends.advance();
    }
    sends.finish();
    receives.finish();
  }
  sends.expect_good();
  receives.expect_good();
  const uint64_t end = now();
  expect_times(sends, begun, end);
  expect_times(receives, begun, end);
  for (uint64_t run = kRuns - kKept; run < kRuns; ++run)
    EXPECT_LE(time(sends, run, 0).begun, time(receives, run, 1).ended) << "run " << run;
  EXPECT_TRUE(target.read(to, kLength) == payload);
}

INSTANTIATE_TEST_SUITE_P(All, ProgramTimes, kTriggers, trigger_name);

}  // namespace
}  // namespace thalweg::impl::contract
