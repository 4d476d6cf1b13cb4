// SPDX-License-Identifier: Apache-2.0
// Device code: channels' credits and flags, blocks that share a step, runs that follow each other, what the host carries,
// the persistent kernel's commands. The orders are those of PTX (order.hpp); the host's are stronger.
#include "models/check.hpp"

namespace thalweg::models {
namespace {

const auto kOne = [](Value v) { return v == 1; };
const auto kTwo = [](Value v) { return v == 2; };

/// Two messages by one receive buffer. The sender's host has filled in the receive buffer before it let the receiver name
/// it. Behind the first message the receiver's kernel, or its post step, has a fence before it offers the buffer again.
TEST(DeviceModels, ACreditNamesABufferThatIsReadAndAFlagOneThatIsWritten) {
  expect_code("include/thalweg/device/machine/cuda.hpp",
              {"st.relaxed.sys.global.u64", "ld.acquire.sys.global.u64", "st.release.sys.global.u64", "fence.acq_rel.sys;"});
  expect_code("src/devices/program/specialised_run.hpp", {"found_ = m_.acquire(credit_);", "found_ = m_.acquire(flag_);",
                                                          "write_flag<Publish::released>(m_, sender(), sent_, status_);"});
  expect_code("src/devices/program/program_executor.hpp",
              {"*found = m_.acquire(own.watch.word);", "(step.kind != StepKind::post || step.after_count != 0)) m_.fence();",
               "if (step.kind == StepKind::post && step.after_count != 0) give_credit(step, found);"});
  expect_code("include/thalweg/device/channel_steps.hpp",
              {"m.release(slots + n % kSlots, slot_word(n, info));", "m.acquire(read_pointer(m, &end->credits) + n % kSlots)",
               "write_flag<Publish::released>(m, end, sending.n, sending.status);", "m.acquire(read_pointer(m, &end->flags)"});
  check([](Program& p) {
    const Word recv_buffer = p.word(), known = p.word(), credit = p.word(), flag = p.word(), buffer = p.word();
    const Order flag_out = p.order("the flag's release", Order::release, Order::relaxed);
    const Order flag_in = p.order("the flag's acquire", Order::acquire, Order::relaxed);
    const Order credit_in = p.order("the credit's acquire", Order::acquire, Order::relaxed);
    Thread &host = p.thread(), &sender = p.thread(), &receiver = p.thread();
    host.store(recv_buffer, 3, Order::relaxed, "fill in the receive buffer");
    host.store(known, 1, Order::release, "tell the receiver that it is known");
    receiver.await(known, kOne, Order::acquire, "it is known");
    receiver.store(credit, 1, Order::relaxed, "first credit");
    receiver.await(flag, kOne, flag_in, "first flag");
    const Reg first = receiver.load(buffer, Order::relaxed, "read first");
    if (p.keeps("the fence before the credit")) receiver.fence(Order::acq_rel, "fence");
    receiver.store(credit, 2, Order::relaxed, "second credit");
    receiver.await(flag, kTwo, flag_in, "second flag");
    const Reg second = receiver.load(buffer, Order::relaxed, "read second");
    sender.await(credit, [](Value v) { return v >= 1; }, credit_in, "first credit there");
    const Reg where = sender.load(recv_buffer, Order::relaxed, "read the receive buffer");
    sender.store(buffer, 11, Order::relaxed, "first message");
    sender.store(flag, 1, flag_out, "first flag");
    sender.await(credit, kTwo, credit_in, "second credit there");
    sender.store(buffer, 22, Order::relaxed, "second message");
    sender.store(flag, 2, flag_out, "second flag");
    p.holds = [=](const Final& end) { return !end.stuck && end.of(where) == 3 && end.of(first) == 11 && end.of(second) == 22; };
  });
}

/// Each block stores its share, fences, and counts itself; the last one gives the flag for all.
TEST(DeviceModels, TheLastBlocksFlagCoversAllBlocks) {
  expect_code("src/devices/program/specialised_run.hpp",
              {"if (announces() || program_.times != nullptr) m_.fence();", "m_.fetch_add(&program_.state->arrived,"});
  expect_code("include/thalweg/device/thread_group.hpp",
              {"m.fence();", "m.last_of(arrived, count);", "if (is_last) m.fence_near();"});
  check([](Program& p) {
    const Word arrived = p.word(), flag = p.word();
    const bool fence = p.keeps("each block's fence before it counts itself");
    std::vector<Word> shares;
    for (int block = 0; block < 2; ++block) {
      shares.push_back(p.word());
      Thread& one = p.thread();
      one.store(shares.back(), 7, Order::relaxed, "share");
      if (fence) one.fence(Order::acq_rel, "fence");
      const Reg before = one.add(arrived, 1, Order::relaxed, "arrive");
      one.when(before, kOne, [&] { one.store(flag, 1, Order::release, "flag"); });
    }
    Thread& receiver = p.thread();
    receiver.await(flag, kOne, p.order("the flag's acquire", Order::acquire, Order::relaxed), "flag there");
    const Reg a = receiver.load(shares[0], Order::relaxed, "read"), b = receiver.load(shares[1], Order::relaxed, "read");
    p.holds = [=](const Final& end) { return !end.stuck && end.of(a) == 7 && end.of(b) == 7; };
  });
}

/// The end of a run, and the first block of the next one, which another launch brought.
TEST(DeviceModels, ARunFindsWhatTheOneBeforeItCounted) {
  expect_code("src/devices/program/specialised_run.hpp", {"m_.store(&receiver()->taken, taken_ + 1);", "m_.fence_near();"});
  expect_code("include/thalweg/device/machine/cuda.hpp", {"atom.acquire.gpu.global.or.b64"});
  expect_code("src/devices/program/ownership.hpp", {"machine::take_lowest_bit(m,", "m.store(words + block,",
                                                    "release_blocks(m, state, steps, blocks, run, open, 0, 1);"});
  expect_code("src/devices/program/program_executor.hpp", {"if (channels_) m_.fence_near();", "device::end_run("});
  check([](Program& p) {
    const Word taken = p.word(), block = p.word(1);
    Thread &last = p.thread(), &next = p.thread();
    last.store(taken, 1, Order::relaxed, "count");
    if (p.keeps("SpecialisedRun::count, the fence")) last.fence(Order::acq_rel, "fence");
    last.store(block, 2, Order::relaxed, "let go");
    const Reg held = next.set_bits(block, 1, p.order("take_word", Order::acquire, Order::relaxed), "take hold");
    const Reg found = next.load(taken, Order::relaxed, "count?");
    p.holds = [=](const Final& end) { return end.of(held) != 2 || end.of(found) == 1; };  // else it is refused
  });
}

/// The first to fail records the reason; the host reads it.
TEST(DeviceModels, AFailureIsWholeWhenItsCodeIsThere) {
  expect_code("include/thalweg/device/wait.hpp", {"m.compare_swap(abort_flag", "m.store(&failure->what, what);",
                                                  "m.release(reinterpret_cast<u64*>(&failure->code)"});
  expect_code("src/plans/plan_failure.cpp", {"__atomic_load_n(&records_[part].code, __ATOMIC_ACQUIRE)"});
  check([](Program& p) {
    const Word what = p.word(), code = p.word(), abort_flag = p.word();
    for (int block = 1; block <= 2; ++block) {
      Thread& one = p.thread();
      const Reg before = one.add(abort_flag, 1, Order::relaxed, "abort flag");
      one.when(
          before, [](Value v) { return v == 0; },
          [&] {
            one.store(what, block, Order::relaxed, "what");
            one.store(code, block, p.order("record, the code", Order::release, Order::relaxed), "code");
          });
    }
    Thread& host = p.thread();
    const Reg seen = host.load(code, p.order("failure_now, the code", Order::acquire, Order::relaxed), "code?");
    const Reg found = host.load(what, Order::relaxed, "what?");
    p.holds = [=](const Final& end) { return end.of(seen) == 0 || end.of(found) == end.of(seen); };
  });
}

/// A step that the host carries, twice: the executor fills the buffer and says where it is, asks, and does so again when it was carried.
/// The host says how much it was.
TEST(DeviceModels, WhatTheHostCarriesIsThereAndFreeBehindIt) {
  expect_code("src/plans/proxied.cpp",
              {"__atomic_load_n(ring, __ATOMIC_ACQUIRE)", "__atomic_store_n(self.received, info->length, __ATOMIC_RELAXED);",
               "__atomic_store_n(done, seen.load(std::memory_order_relaxed), __ATOMIC_RELEASE);"});
  expect_code("src/devices/program/program_executor.hpp",
              {"*found = m_.acquire(own.watch.word);", "tell_carrier(m_, step, run_);",
               "m_.store(step.result, m_.load(step.word + 1));", "m_.fence();", "ring_doorbell(m_, step, run_);"});
  expect_code("src/devices/program/ownership.hpp", {"m.store(step.result, step.operand);", "m.store(step.word, run + 1);"});
  check([](Program& p) {
    const Word buffer = p.word(), address = p.word(), ring = p.word(), done = p.word(), received = p.word();
    Thread &executor = p.thread(), &proxy = p.thread();
    const bool fence = p.keeps("the executor's fence before it asks");
    const Order see = p.order("Proxied::look", Order::acquire, Order::relaxed);
    executor.store(buffer, 11, Order::relaxed, "first");
    executor.store(address, 5, Order::relaxed, "first address");
    if (fence) executor.fence(Order::acq_rel, "fence");
    executor.store(ring, 1, Order::relaxed, "ask");
    executor.await(done, kOne, p.order("is_ready, the word", Order::acquire, Order::relaxed), "carried");
    const Reg length = executor.load(received, Order::relaxed, "how much");
    executor.store(buffer, 22, Order::relaxed, "second");
    executor.store(address, 6, Order::relaxed, "second address");
    if (fence) executor.fence(Order::acq_rel, "fence");
    executor.store(ring, 2, Order::relaxed, "ask again");
    proxy.await(ring, kOne, see, "asked");
    const Reg where = proxy.load(address, Order::relaxed, "where first");
    const Reg first = proxy.load(buffer, Order::relaxed, "carry first");
    proxy.store(received, 3, Order::relaxed, "so much");
    proxy.store(done, 1, p.order("Proxied::finish", Order::release, Order::relaxed), "done");
    proxy.await(ring, kTwo, see, "asked again");
    const Reg then = proxy.load(address, Order::relaxed, "where second");
    const Reg second = proxy.load(buffer, Order::relaxed, "carry second");
    p.holds = [=](const Final& end) {
      const bool carried = end.of(where) == 5 && end.of(first) == 11 && end.of(then) == 6 && end.of(second) == 22;
      return !end.stuck && carried && end.of(length) == 3;
    };
  });
}

/// A command's words show in any order; each brings its tag. What it tells to copy was written before.
TEST(DeviceModels, ACommandIsTakenWholeAndItsBytesAreThere) {
  expect_code("src/devices/persistent.cpp",
              {"__atomic_store_n(&words[i], persistent::word_of(command, i, tag), __ATOMIC_RELEASE);"});
  expect_code("src/devices/persistent/block.hpp", {"const u64 word = m.acquire(&slot->words[i]);",
                                                   "void say(u64* word, u64 value) const { m.release(word, value); }"});
  check([](Program& p) {
    const Word source = p.word(), target = p.word(), first = p.word(), second = p.word(), done = p.word();
    const Order post = p.order("PersistentCopier::post", Order::release, Order::relaxed);
    const Order fetch = p.order("OneThreadIo::fetch", Order::acquire, Order::relaxed);
    Thread &host = p.thread(), &kernel = p.thread();
    host.store(source, 7, Order::relaxed, "bytes");
    host.store(first, 1, post, "first word");
    host.store(second, 1, post, "second word");
    const Reg finished = host.await(done, kOne, p.order("PersistentCopier::done", Order::acquire, Order::relaxed), "done");
    const Reg copied = host.load(target, Order::relaxed, "look at the copy");
    kernel.await(second, kOne, fetch, "second word there");
    kernel.await(first, kOne, fetch, "first word there");
    const Reg bytes = kernel.load(source, Order::relaxed, "load");
    kernel.store(target, bytes, Order::relaxed, "store");
    kernel.store(done, 1, p.order("OneThreadIo::say", Order::release, Order::relaxed), "say done");
    p.holds = [=](const Final& end) { return !end.stuck && end.of(finished) == 1 && end.of(copied) == 7; };
  });
}

}  // namespace
}  // namespace thalweg::models
