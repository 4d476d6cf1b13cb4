// SPDX-License-Identifier: Apache-2.0
// Programs on emulated devices: order of their stores, kernel slots, what is refused. tests/gpu has what holds everywhere.
#include "devices/emulated/machine.hpp"
#include "devices/program/one_thread_run.hpp"
#include "tests/gpu/program_tools.hpp"
#include "tests/unit/devices/emulated_tools.hpp"

namespace thalweg::impl::emulated {
namespace {

using device::StepKind;
using programs::at;
using programs::pointer;
using programs::Site;
using programs::Trigger;
using programs::Written;

/// The blocks of one run, each with its stores; `seen` is called whenever one more of them shows.
struct Blocks {
  struct One {
    One(const EmulatedDevice& device, const ProgramRun& run, bool skip_fences, uint32_t block)
        : memory(&device, skip_fences), block(Machine(memory), run, block) {}
    BlockMemory memory;
    OneThreadBlock<Machine> block;
    bool over = false;
  };
  Blocks(const EmulatedDevice& device, const ProgramRun& run, bool skip_fences, const std::function<void()>& seen) {
    for (uint32_t i = 0; i < run.shape.blocks; ++i) all.emplace_back(device, run, skip_fences, i).memory.stores.watch(seen);
  }
  void finish() {
    for (bool over = false; !over;) {
      over = true;
      for (One& one : all) {
        one.over = one.over || one.block.over();
        over = over && one.over;
        ASSERT_EQ(one.memory.failed, TW_OK) << last_error();
      }
    }
    all.clear();
  }
  std::deque<One> all;
};

/// Is there ever a signal, or a flag, before all of its payload?
bool flag_overtakes(bool skip_fences, uint32_t blocks, bool by_channel, bool apart) {
  auto device = open_device(0), other = open_device(1);
  Site here(Trigger::device, device.get(), MemoryKind::emulated), there(Trigger::device, other.get(), MemoryKind::emulated);
  constexpr size_t kLength = 10007;
  const uint64_t from = here.allocate(kLength), to = there.allocate(kLength), word = there.allocate(8);
  here.admit(to, kLength);
  here.admit(word, 8);
  const std::vector<std::byte> payload = here.fill(from, kLength);
  programs::Channel channel(here, there, {{at(to), kLength}});
  Written program(here, blocks);
  const device::Signal signal{pointer<device::u64>(word), 1, 0, 0};
  uint64_t flag = word;
  if (by_channel) {
    program.send(channel.send, at(from), kLength);
    device::SendEnd end;
    const auto bytes = here.read(channel.send, sizeof end);
    std::memcpy(&end, bytes.data(), sizeof end);
    flag = reinterpret_cast<uint64_t>(end.flags);
    here.put(reinterpret_cast<uint64_t>(end.credits), uint64_t{1} << 16);
  } else {
    program.copy(at(to), at(from), kLength, apart ? device::Signal{} : signal);
    if (apart) program.signal(signal, {0});
  }
  program.prepare();
  bool early = false, late = false;
  const std::byte* const landed = other->translate(to, kLength);
  const auto* const flagged = reinterpret_cast<const uint64_t*>(other->translate(flag, 8));
  Blocks run(*device, program.run, skip_fences, [&] {
    if (*flagged == 0) return;
    (std::memcmp(landed, payload.data(), kLength) == 0 ? late : early) = true;
  });
  run.finish();
  program.expect_good();
  EXPECT_TRUE(late);
  return early;
}

TEST(EmulatedPrograms, NoFlagOvertakesItsPayloadUnlessFencesAreLeftOut) {
  for (const uint32_t blocks : {1u, 2u, 8u}) {
    for (const bool by_channel : {false, true}) {
      for (const bool apart : {false, true}) {
        EXPECT_FALSE(flag_overtakes(false, blocks, by_channel, apart)) << blocks << by_channel << apart;
        EXPECT_TRUE(flag_overtakes(true, blocks, by_channel, apart)) << blocks << by_channel << apart;
      }
    }
  }
}

TEST(EmulatedPrograms, AWaitHoldsASlotUntilItsLimit) {
  for (const unsigned slots : {1u, 2u}) {
    Options options;
    options.kernel_slots = slots;
    auto device = open_device(0, options);
    Site one(Trigger::device, device.get(), MemoryKind::emulated), two(Trigger::device, device.get(), MemoryKind::emulated);
    const uint64_t word = one.allocate(8);
    Written waits(one), gives(two);
    waits.wait(word, 1, 0);
    gives.signal({pointer<device::u64>(word), 1, 0, 0});
    waits.prepare(slots == 1 ? 50'000'000 : 20'000'000'000);
    gives.prepare();
    waits.trigger();
    while (waits.owner_word(0) == 0) std::this_thread::yield();  // it has the first slot
    gives.trigger();
    waits.finish();
    gives.finish();
    EXPECT_EQ(waits.failed().code, slots == 1 ? TW_ERR_TIMED_OUT : TW_OK);
    EXPECT_EQ(gives.failed().code, TW_OK);
    EXPECT_EQ(one.word(word), 1u);
  }
}

TEST(EmulatedPrograms, ASteppedStreamComesBackToARunThatWaits) {
  Options options;
  options.stepped = true;
  auto device = open_device(0, options);
  for (const bool ends : {false, true}) {
    Site site(Trigger::device, device.get(), MemoryKind::emulated);
    const uint64_t word = site.allocate(8), seen = site.allocate(8);
    Written program(site);
    program.wait(word, 1, 0);
    program.signal({pointer<device::u64>(seen), 7, 0, 0}, {0});
    program.prepare();
    auto queue = make_queue(*device);
    ASSERT_EQ(queue->run(program.run), TW_OK) << last_error();
    for (unsigned i = 0; i < 50; ++i) EXPECT_FALSE(device->step(i));
    EXPECT_EQ(program.failed().code, TW_OK);
    EXPECT_EQ(site.word(seen), 0u);
    if (ends) {
      queue.reset();
      EXPECT_EQ(program.failed().code, TW_ERR_CLOSED);
      continue;
    }
    site.put(word, uint64_t{1});
    while (device->step(0)) continue;
    EXPECT_EQ(queue->query(), TW_OK);
    EXPECT_EQ(program.failed().code, TW_OK);
    EXPECT_EQ(site.word(seen), 7u);
  }
}

TEST(EmulatedPrograms, AnIllegalAddressBreaksTheQueue) {
  auto device = open_device(0);
  Site site(Trigger::device, device.get(), MemoryKind::emulated);
  const uint64_t from = site.allocate(100);
  Written program(site);
  program.copy(at(from + 50), at(from), 80);
  program.prepare();
  program.trigger();
  EXPECT_EQ(site.queue().synchronize(), TW_ERR_OUT_OF_BOUNDS);
}

TEST(EmulatedPrograms, GraphsBelongToADevice) {
  auto device = open_device(0), other = open_device(1);
  auto queue = make_queue(*device), stranger = make_queue(*other);
  ASSERT_EQ(queue->begin_capture(), TW_OK);
  std::unique_ptr<Graph> graph;
  ASSERT_EQ(queue->end_capture(&graph), TW_OK);
  EXPECT_EQ(graph->launch(*stranger), TW_ERR_INVALID);
  EXPECT_EQ(graph->launch(*make_host_queue()), TW_ERR_INVALID);
  EXPECT_EQ(graph->launch(*queue), TW_OK);
  EXPECT_EQ(queue->call([](void*) {}, nullptr), TW_ERR_UNSUPPORTED);
}

TEST(HostPrograms, CallsKeepTheQueuesOrder) {
  auto queue = make_host_queue();
  std::vector<uint64_t> seen;
  static uint64_t stored = 0;
  const auto call = [](void* to) { static_cast<std::vector<uint64_t>*>(to)->push_back(stored); };
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(queue->write_value(reinterpret_cast<uintptr_t>(&stored), i, false), TW_OK);
    ASSERT_EQ(queue->call(call, &seen), TW_OK);
  }
  ASSERT_EQ(queue->synchronize(), TW_OK);
  EXPECT_EQ(seen, (std::vector<uint64_t>{1, 2, 3}));
}

TEST(HostPrograms, ARunThatIsNotOverIsNotStartedAgain) {
  Site site(Trigger::caller, nullptr, MemoryKind::host);
  const uint64_t word = site.allocate(8);
  Written program(site);
  program.wait(word, 1, 0);
  program.prepare();
  HostProgram run(program.run);
  EXPECT_EQ(run.advance(), TW_OK);  // there is none
  ASSERT_EQ(run.start(), TW_OK);
  EXPECT_EQ(run.advance(), TW_IN_PROGRESS);
  EXPECT_EQ(run.start(), TW_ERR_BUSY);
  site.put(word, uint64_t{1});
  EXPECT_EQ(run.advance(), TW_OK);
  EXPECT_EQ(run.start(), TW_OK);
  EXPECT_EQ(run.advance(), TW_OK);
}

TEST(Arrange, HasNoMoreBlocksThanFindRoom) {
  EXPECT_EQ(most_blocks(0, true), kMostBlocks);  // the host's take turns
  EXPECT_EQ(most_blocks(132, false), kMostBlocks);
  EXPECT_EQ(most_blocks(132, true), 32u);
  EXPECT_EQ(most_blocks(28, false), 16u);
  EXPECT_EQ(most_blocks(3, true), 1u);
  Options options;
  options.kernel_slots = 3;
  const auto device = open_device(0, options);
  Site site(Trigger::device, device.get(), MemoryKind::emulated);
  constexpr uint64_t kBytes = 64u << 20;  // never moved
  const uint64_t word = site.allocate(64);
  for (const bool generic : {false, true}) {
    for (const uint32_t wanted : {0u, 1u, 64u}) {
      Written program(site);
      if (generic) program.add(StepKind::atomic).word = pointer<device::u64>(word);
      if (generic) program.steps[0].atomic_bytes = 8;
      device::Step& copy = program.add(StepKind::copy);
      copy.to = device::contiguous_at(word);
      copy.from = device::contiguous_at(word + kBytes);
      copy.bytes = kBytes;
      ProgramShape shape;
      ASSERT_EQ(arrange(program.steps, program.numbers, wanted, most_blocks(device->multiprocessors(), false), &shape), TW_OK);
      EXPECT_EQ(shape.blocks, wanted == 1 ? 1u : 2u);
      EXPECT_NE(shape.specialised.known(), generic);
    }
  }
}

/// A host's plan may name any length, and learns of what is not there when it runs.
TEST(Arrange, CutsStepsOfAnyLength) {
  Site site(Trigger::caller, nullptr, MemoryKind::host);
  const uint64_t word = site.allocate(64);
  const auto arranged = [&](std::initializer_list<uint64_t> lengths, ProgramShape* shape) {
    Written program(site);
    for (const uint64_t bytes : lengths) {
      device::Step& copy = program.add(StepKind::copy);
      copy.to = device::contiguous_at(word);
      copy.from = device::contiguous_at(word);
      copy.bytes = bytes;
    }
    return arrange(program.steps, program.numbers, 0, kMostBlocks, shape);
  };
  for (const unsigned bits : {30u, 45u, 46u, 50u, 60u}) {
    ProgramShape shape;
    ASSERT_EQ(arranged({uint64_t{1} << bits}, &shape), TW_OK) << bits;
    EXPECT_GE(shape.item, 256u) << bits;
  }
  ProgramShape shape;
  constexpr uint64_t kMost = uint64_t{1} << 60;
  EXPECT_EQ(arranged({kMost, kMost}, &shape), TW_OK);
  EXPECT_EQ(arranged({kMost, kMost, kMost, kMost, kMost}, &shape), TW_ERR_INVALID);  // together
  EXPECT_EQ(arranged({~uint64_t{0}}, &shape), TW_ERR_INVALID);
}

TEST(Arrange, RefusesWhatCannotRun) {
  Site site(Trigger::caller, nullptr, MemoryKind::host);
  const uint64_t word = site.allocate(64);
  ProgramShape shape;
  const auto result = [&](Written& program) { return arrange(program.steps, program.numbers, 0, kMostBlocks, &shape); };
  Written forward(site);
  forward.wait(word, 1, 0, TW_COMPARE_GE, {0});
  EXPECT_EQ(result(forward), TW_ERR_INVALID);
  Written outside(site);
  outside.wait(word, 1, 0);
  outside.steps[0].after_count = 1;
  EXPECT_EQ(result(outside), TW_ERR_INVALID);
  Written nowhere(site);
  nowhere.add(StepKind::ring);
  EXPECT_EQ(result(nowhere), TW_ERR_INVALID);
  Written odd(site);
  odd.add(StepKind::atomic).word = pointer<device::u64>(word);
  odd.steps[0].atomic_bytes = 2;
  EXPECT_EQ(result(odd), TW_ERR_INVALID);
  Written many(site);
  for (uint32_t i = 0; i <= device::kSlots; ++i) many.post(word, 0);
  EXPECT_EQ(result(many), TW_ERR_UNSUPPORTED);
  many.steps.pop_back();
  EXPECT_EQ(result(many), TW_OK);
  Written endless(site);
  for (uint32_t i = 0; i <= kMostSteps; ++i) endless.wait(word, 1, 0);
  EXPECT_EQ(result(endless), TW_ERR_UNSUPPORTED);
  auto device = open_device(0);
  Site emulated(Trigger::device, device.get(), MemoryKind::emulated);
  Written unplaced(emulated);
  const uint64_t there = emulated.allocate(8);
  for (uint32_t i = 0; i <= kInlineSteps; ++i) unplaced.signal({pointer<device::u64>(there), 1, 0, 0});
  unplaced.prepare();
  unplaced.run.placed = 0;
  EXPECT_EQ(emulated.queue().run(unplaced.run), TW_ERR_INVALID);
}

}  // namespace
}  // namespace thalweg::impl::emulated
