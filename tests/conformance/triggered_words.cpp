// SPDX-License-Identifier: Apache-2.0
// Steps of plans on words: signals, waits, atomic operations; by the host, a queue or a captured graph.
#include <cstring>

#include "prepared.hpp"
#include "routes.hpp"

namespace conformance {
namespace {

uint64_t scrambled(uint64_t seed, uint64_t a, uint64_t b) {
  const uint64_t x = (seed + a * 0x9E3779B97F4A7C15ull + b) * 0xBF58476D1CE4E5B9ull;
  return x ^ (x >> 29);
}

// ------------------------------------------------------------------------------------------------ signal

/// What a step's signal says in its first run; the last run's comes by tw_plan_update.
uint64_t signal_base(const Row& r, unsigned step, bool updated) { return scrambled(r.seed, step, updated); }
uint64_t increment_of(const Row& r) { return 1 + r.seed % 1009; }

void expect_signals(Side& side, const Row& r) {
  const uint32_t kind = r.asynchronous ? TW_SIGNAL_ADD : TW_SIGNAL_SET;
  uint64_t expected = r.seed * 5;
  Word word(side, r.place[1], kind, expected, r.seed);
  Keys keys;
  keys.add(word);
  keys.send(side);
  for (unsigned run = 0; run <= kRuns; ++run) {
    for (unsigned step = 0; step < many(r); ++step) {
      const uint64_t value = signal_base(r, step, run == kRuns) + run * increment_of(r);
      expected = r.asynchronous ? expected + value : value;
    }
    side.await(word.signal, TW_COMPARE_EQ, expected);
    word.verify(expected);
    side.barrier();
  }
  side.barrier();
}

/// One step that sets the word, or several that add to it.
void signal(Side& side, const Row& r, Trigger trigger) {
  if (side.rank == 1) return expect_signals(side, r);
  Imports target(side, 0, 1);
  Plan plan(side, r, trigger);
  for (unsigned step = 0; step < many(r); ++step) {
    tw_op_options o = TW_OP_OPTIONS_INIT;
    o.increment = increment_of(r);
    must(tw_plan_signal(plan.plan, target.signal[0], signal_base(r, step, false), &o, nullptr), "tw_plan_signal");
  }
  plan.prepare();
  plan.expect(reach_of(side, r.place[0], place_of_word(r.place[1]), target.one_process, r.asynchronous));
  for (unsigned run = 0; run <= kRuns; ++run) {
    for (unsigned step = 0; run == kRuns && step < many(r); ++step) {
      const uint64_t value = signal_base(r, step, true);
      plan.update(step, nullptr, &value);
    }
    plan.run();
    side.barrier();
  }
  plan.close();
  side.barrier();
}

// ------------------------------------------------------------------------------------------------ wait

/// Rank 1 waits for words; rank 0 puts data and the signals that cover it, the last one when all others are there.
void send_what_is_awaited(Side& side, const Row& r) {
  Payloads out(side, r, Shape::contiguous, r.size);
  Imports target(side, many(r), many(r));
  std::vector<tw_request> requests(many(r), TW_REQUEST_NONE);
  for (unsigned run = 0; run < kRuns; ++run) {
    for (unsigned i = 0; i < many(r); ++i) out[i].fill(r.seed + run * kMany + i);
    side.barrier();
    for (unsigned i = 0; i < many(r); ++i) {
      if (i + 1 == many(r)) side.barrier();
      tw_op_options o = TW_OP_OPTIONS_INIT;
      o.signal = target.signal[i];
      o.signal_value = r.seed + i + run + 1;
      must(tw_put(side.endpoint, out[i].address(), r.size, target.memory[i], target.offset[i], &o, &requests[i]), "tw_put");
    }
    side.wait_all(requests);
    side.barrier();
  }
  side.barrier();
}

struct Waits {
  Payloads in, copies;
  std::vector<std::unique_ptr<Word>> words;
  Plan plan;

  Waits(Side& side, const Row& r, Trigger trigger)
      : in(side, r, Shape::contiguous, r.size), copies(side, r, Shape::contiguous, r.size), plan(side, r, trigger) {
    Keys keys;
    for (unsigned i = 0; i < many(r); ++i) keys.add(in[i]);
    for (unsigned i = 0; i < many(r); ++i) {
      words.push_back(std::make_unique<Word>(side, r.place[1], TW_SIGNAL_SET, r.seed + i, r.seed + i));
      keys.add(*words[i]);
    }
    keys.send(side);
    for (unsigned i = 0; i < many(r); ++i) {
      const auto compare = static_cast<uint32_t>((r.seed + i) % 3);
      tw_op_options waits = TW_OP_OPTIONS_INIT;
      waits.increment = 1;
      uint32_t step = 0;
      must(tw_plan_wait(plan.plan, words[i]->signal, r.seed + i + (compare != TW_COMPARE_NE), compare, &waits, &step),
           "tw_plan_wait");
      const std::vector<uint32_t> steps{step};
      const tw_op_options o = after(steps);
      must(tw_plan_copy(plan.plan, copies[i].address(), in[i].address(), r.size, &o, nullptr), "tw_plan_copy");
    }
  }
  void give_up(const Row& r, unsigned run) {
    for (unsigned i = 0; i < many(r); ++i) (void)tw_signal_reset(words[i]->signal, r.seed + i + run + 1);
  }
};

/// A copy behind each wait shows when it ends, and that it acquires what its signal covers.
void wait(Side& side, const Row& r, Trigger trigger) {
  if (side.rank == 0) return send_what_is_awaited(side, r);
  Waits waits(side, r, trigger);
  waits.plan.prepare();
  const unsigned last = many(r) - 1;
  for (unsigned run = 0; run < kRuns; ++run) {
    waits.plan.give_up = [&] { waits.give_up(r, run); };
    for (unsigned i = 0; i <= last; ++i) {
      waits.in[i].poison();
      waits.copies[i].poison();
    }
    waits.plan.start();
    waits.plan.check_running();
    for (unsigned i = 0; i <= last; ++i) waits.copies[i].verify(r.seed, 0);
    side.barrier();
    for (unsigned i = 0; i < last; ++i) side.await(waits.words[i]->signal, TW_COMPARE_GE, r.seed + i + run + 1);
    waits.plan.check_running();
    waits.copies[last].verify(r.seed, 0);
    side.barrier();
    side.await(waits.words[last]->signal, TW_COMPARE_GE, r.seed + last + run + 1);
    waits.plan.finish();
    for (unsigned i = 0; i <= last; ++i) {
      waits.copies[i].verify(r.seed + run * kMany + i, r.size);
      waits.words[i]->verify(r.seed + i + run + 1);
    }
    side.barrier();
  }
  waits.plan.close();
  side.barrier();
}

// ------------------------------------------------------------------------------------------------ atomic

constexpr size_t kLong8 = 512, kShort4 = 1028;  // where the words are
constexpr uint32_t kOps[] = {TW_ATOMIC_ADD,  TW_ATOMIC_AND,   TW_ATOMIC_OR,    TW_ATOMIC_XOR,
                             TW_ATOMIC_SWAP, TW_ATOMIC_CSWAP, TW_ATOMIC_CSWAP, TW_ATOMIC_ADD};
constexpr unsigned kSteps = 8, kMatching = 5, kSilent = 7;  // the swap's value is found by the first compare-and-swap

uint64_t mask_of(size_t width) { return width == 4 ? 0xffffffffu : ~uint64_t{0}; }
uint64_t operand_of(const Row& r, size_t width, unsigned step, unsigned run) {
  return scrambled(r.seed, step + 64 * width, kOps[step] == TW_ATOMIC_SWAP ? 0 : run) & mask_of(width);
}
uint64_t compare_of(const Row& r, size_t width, unsigned step) {
  const uint64_t swapped = operand_of(r, width, kMatching - 1, 0);
  return step == kMatching ? swapped : ~swapped & mask_of(width);
}

/// The old values of a run into `results`; the word's new value.
uint64_t simulate(const Row& r, size_t width, unsigned run, uint64_t word, Cells& results) {
  const uint64_t mask = mask_of(width);
  for (unsigned step = 0; step < kSteps; ++step) {
    const size_t slot = width * 100 + step * 8;
    if (step != kSilent) results.expect(slot, word & mask, width);
    word = apply(kOps[step], word & mask, operand_of(r, width, step, run), compare_of(r, width, step));
  }
  return word & mask;
}

void add_atomics(Side& side, const Row& r, Plan& plan, const Imports& target, const Cells& results, size_t width) {
  uint32_t before = 0;
  for (unsigned step = 0; step < kSteps; ++step) {
    const std::vector<uint32_t> steps(step == 0 ? 0 : 1, before);
    const tw_op_options o = after(steps);
    must(tw_plan_atomic(plan.plan, side.endpoint, kOps[step], target.memory[0], width == 8 ? kLong8 : kShort4, width,
                        operand_of(r, width, step, 0), compare_of(r, width, step),
                        step == kSilent ? nullptr : results.address() + width * 100 + step * 8, &o, &before),
         "tw_plan_atomic");
  }
}

void keep_words(Side& side, const Row& r) {
  Cells words(side, r.place[1], r.seed);
  uint64_t both[2] = {words.load(kLong8), words.load(kShort4) & 0xffffffffu}, refused = 0;
  Keys keys;
  keys.add(words.memory, 0);
  keys.send(side);
  side.send_control(both, sizeof both);
  side.receive_control(&refused, sizeof refused);
  Routes routes(side, r, Routes::Kind::plans);
  for (unsigned run = 0; run < kRuns && refused == 0; ++run) {
    side.receive_control(both, sizeof both);
    words.expect(kLong8, both[0], 8);
    words.expect(kShort4, both[1], 4);
    words.verify();
    side.barrier();
  }
  routes.check();
  side.barrier();
}

/// Old values go to memory of the plan's place, or to pinned memory where a row is asynchronous. Where the host carries the
/// steps the former may be a device's, which is refused.
void atomic(Side& side, const Row& r, Trigger trigger) {
  if (side.rank == 1) return keep_words(side, r);
  const unsigned near = r.asynchronous && r.place[0] >= kFirstDevice ? kPinned : r.place[0];
  Cells results(side, near, r.seed + 1);
  Imports target(side, 1, 0);
  uint64_t both[2], refused = 0;
  side.receive_control(both, sizeof both);
  Plan plan(side, r, trigger);
  for (const size_t width : {size_t{8}, size_t{4}}) add_atomics(side, r, plan, target, results, width);
  const Reach reach = reach_of(side, r.place[0], r.place[1], target.one_process, true);
  if (reach != Reach::mapped && near >= kFirstDevice) {
    const tw_status status = tw_plan_prepare(plan.plan, kLong);
    refused = status != TW_OK;
    if (refused) must_refuse(status, TW_ERR_UNSUPPORTED, "old value", "tw_plan_prepare");
    check(refused || reach == Reach::either, "the host stores into device memory");
  }
  if (!refused) {
    plan.prepare();
    plan.expect(reach);
  }
  side.send_control(&refused, sizeof refused);
  Routes routes(side, r, Routes::Kind::plans);
  if (refused == 0) routes.expect_runs(plan.explain(), kRuns, plan.started_by_host());
  for (unsigned run = 0; run < kRuns && refused == 0; ++run) {
    for (unsigned step = 0; run > 0 && step < 2 * kSteps; ++step) {
      const uint64_t operand = operand_of(r, step < kSteps ? 8 : 4, step % kSteps, run);
      plan.update(step, nullptr, &operand);
    }
    plan.run();
    both[0] = simulate(r, 8, run, both[0], results);
    both[1] = simulate(r, 4, run, both[1], results);
    results.verify();
    side.send_control(both, sizeof both);
    side.barrier();
  }
  routes.check();
  plan.close();
  side.barrier();
}

}  // namespace

void add_triggered_words(std::vector<Operation>& all) {
  add_by_each<signal>(all, {"plan_signal_host", "plan_signal_queue", "plan_signal_graph"}, false, Rows::few, 8);
  add_by_each<wait>(all, {"plan_wait_host", "plan_wait_queue", "plan_wait_graph"}, false, Rows::fewest);
  add_by_each<atomic>(all, {"plan_atomic_host", "plan_atomic_queue", "plan_atomic_graph"}, false, Rows::few, 8);
}

}  // namespace conformance
