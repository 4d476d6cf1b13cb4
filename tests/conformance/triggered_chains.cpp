// SPDX-License-Identifier: Apache-2.0
// Plans of several steps, by the host, a queue or a captured graph: local copies, chains with one notification at their end,
// and plans whose buffers change between runs.
#include <cstring>

#include "prepared.hpp"

namespace conformance {
namespace {

uint64_t seed_of(const Row& r, unsigned run, unsigned i) { return r.seed + run * kMany + i; }

bool fits(Side& side, const Row& r, uint64_t size) { return Payload(side, r.remote, size, kPlain, r.seed).bytes() == size; }

// ------------------------------------------------------------------------------------------------ copy

bool device_of(unsigned place, const char* number) { return std::strstr(place_name(place), number) != nullptr; }

/// Does the executor of `mine` copy to memory of `other`? Either: peer access to pool memory is the device's own affair.
Reach copies(unsigned mine, unsigned other) {
  if (mine < kFirstDevice) return on_device(other) ? Reach::carried : Reach::mapped;
  if (other == kPlain) return Reach::carried;
  const bool pool = std::strstr(place_name(other), "pool") != nullptr;
  return pool && device_of(mine, ":0") != device_of(other, ":0") ? Reach::either : Reach::mapped;
}

/// Each side for itself, from its own place to the other's. Copies are not carried by the host: what the executor does not
/// reach is refused.
void copy(Side& side, const Row& r, Trigger trigger) {
  const uint64_t size = agreed_size(side, r);
  if (!fits(side, r, size)) return side.barrier();
  const unsigned mine = r.place[side.rank], other = r.place[!side.rank];
  std::vector<std::unique_ptr<Payload>> from, to;
  Plan plan(side, r, trigger);
  for (unsigned i = 0; i < many(r); ++i) {
    from.push_back(std::make_unique<Payload>(side, r.local, r.size, mine, r.seed + i));
    to.push_back(std::make_unique<Payload>(side, r.remote, size, other, r.seed + 3 * i));
    tw_op_options o = TW_OP_OPTIONS_INIT;
    o.layout = from[i]->layout();
    o.remote_layout = to[i]->layout();
    must(tw_plan_copy(plan.plan, to[i]->address(), from[i]->address(), size, &o, nullptr), "tw_plan_copy");
  }
  const Reach reach = size == 0 ? Reach::mapped : copies(mine, other);
  const tw_status status = tw_plan_prepare(plan.plan, kLong);
  if (reach == Reach::carried || (reach == Reach::either && status != TW_OK)) {
    must_refuse(status, TW_ERR_UNSUPPORTED, "copy", "tw_plan_prepare");
    return side.barrier();
  }
  plan.prepare();
  for (unsigned run = 0; run < kRuns; ++run) {
    for (unsigned i = 0; i < many(r); ++i) {
      side.look();
      from[i]->fill(seed_of(r, run, i));
      to[i]->poison();
    }
    plan.run();
    for (unsigned i = 0; i < many(r); ++i) {
      side.look();
      to[i]->verify(seed_of(r, run, i), size);
      from[i]->verify(seed_of(r, run, i), size);
    }
  }
  plan.close();
  side.barrier();
}

// ------------------------------------------------------------------------------------------------ chain

/// Rank 0's plan: waits to be told, copies into a layout, puts, and signals once when all is there. The copies' sources
/// change from run to run.
void send_chain(Side& side, const Row& r, Trigger trigger, uint64_t size) {
  Payloads first(side, r, Shape::contiguous, size), second(side, r, Shape::contiguous, size), packed(side, r, r.local, r.size);
  Word go(side, r.place[0], TW_SIGNAL_SET, 0, r.seed);
  Keys keys;
  keys.add(go);
  keys.send(side);
  Imports target(side, many(r), 1);
  const Payload shape(side, r.remote, size, kPlain, r.seed);
  Plan plan(side, r, trigger);
  tw_op_options counts = TW_OP_OPTIONS_INIT;
  counts.increment = 1;
  std::vector<uint32_t> waits(1), copies(many(r)), puts(many(r));
  must(tw_plan_wait(plan.plan, go.signal, 1, TW_COMPARE_GE, &counts, &waits[0]), "tw_plan_wait");
  for (unsigned i = 0; i < many(r); ++i) {
    tw_op_options o = after(waits);
    o.remote_layout = packed[i].layout();
    must(tw_plan_copy(plan.plan, packed[i].address(), first[i].address(), size, &o, &copies[i]), "tw_plan_copy");
    const std::vector<uint32_t> its_copy{copies[i]};
    o = after(its_copy);
    o.layout = packed[i].layout();
    o.remote_layout = shape.layout();
    must(tw_plan_put(plan.plan, side.endpoint, packed[i].address(), size, target.memory[i], target.offset[i], &o, &puts[i]),
         "tw_plan_put");
  }
  tw_op_options last = after(puts);
  last.increment = 1;
  must(tw_plan_signal(plan.plan, target.signal[0], 1, &last, nullptr), "tw_plan_signal");
  plan.prepare();
  for (unsigned run = 0; run < kRuns; ++run) {
    Payloads& from = run % 2 == 0 ? first : second;
    for (unsigned i = 0; i < many(r); ++i) {
      side.look();
      from[i].fill(seed_of(r, run, i));
      packed[i].poison();
      if (run > 0 && size > 0) plan.update(copies[i], from[i].address(), nullptr);
    }
    plan.give_up = [&] { (void)tw_signal_reset(go.signal, run + 1); };
    plan.start();
    side.await(go.signal, TW_COMPARE_GE, run + 1);
    plan.finish();
    for (unsigned i = 0; i < many(r); ++i) {
      side.look();
      packed[i].verify(seed_of(r, run, i), size);
    }
    go.verify(run + 1);
    side.barrier();
  }
  plan.close();
  side.barrier();
}

/// Rank 1's plan waits for the notification and copies out.
void receive_chain(Side& side, const Row& r, Trigger trigger, uint64_t size) {
  Payloads in(side, r, r.remote, size), out(side, r, Shape::contiguous, size);
  Word done(side, r.place[1], TW_SIGNAL_SET, 0, r.seed);
  Imports source(side, 0, 1);
  Keys keys;
  for (unsigned i = 0; i < many(r); ++i) keys.add(in[i]);
  keys.add(done);
  keys.send(side);
  Plan plan(side, r, trigger);
  tw_op_options counts = TW_OP_OPTIONS_INIT;
  counts.increment = 1;
  std::vector<uint32_t> waits(1);
  must(tw_plan_wait(plan.plan, done.signal, 1, TW_COMPARE_GE, &counts, &waits[0]), "tw_plan_wait");
  for (unsigned i = 0; i < many(r); ++i) {
    tw_op_options o = after(waits);
    o.layout = in[i].layout();
    must(tw_plan_copy(plan.plan, out[i].address(), in[i].address(), size, &o, nullptr), "tw_plan_copy");
  }
  plan.prepare();
  for (unsigned run = 0; run < kRuns; ++run) {
    for (unsigned i = 0; i < many(r); ++i) {
      side.look();
      in[i].poison();
      out[i].poison();
    }
    plan.give_up = [&] { (void)tw_signal_reset(done.signal, run + 1); };
    plan.start();
    tw_request request = TW_REQUEST_NONE;
    must(tw_signal_post(source.signal[0], run + 1, nullptr, &request), "tw_signal_post");
    side.wait(request);
    side.await(done.signal, TW_COMPARE_GE, run + 1);
    plan.finish();
    for (unsigned i = 0; i < many(r); ++i) {
      side.look();
      out[i].verify(seed_of(r, run, i), size);
      in[i].verify(seed_of(r, run, i), size);
    }
    done.verify(run + 1);
    side.barrier();
  }
  plan.close();
  side.barrier();
}

void chain(Side& side, const Row& r, Trigger trigger) {
  const uint64_t size = agreed_size(side, r);
  if (!fits(side, r, size)) return side.barrier();
  (side.rank == 0 ? send_chain : receive_chain)(side, r, trigger, size);
}

// ------------------------------------------------------------------------------------------------ update

/// Two buffers of a step, used in turn.
struct Turns {
  Payload first, second;
  Turns(Side& side, const Row& r, Shape shape, uint64_t size)
      : first(side, shape, size, r.place[side.rank], r.seed), second(side, shape, size, r.place[side.rank], r.seed + 7) {}
  Payload& of(unsigned run) { return run % 2 == 0 ? first : second; }
};

/// Rank 0 sends, puts and gets from and to other buffers in each run.
void update_sender(Side& side, const Row& r, Trigger trigger, uint64_t size) {
  Turns sent(side, r, r.local, r.size), put(side, r, r.local, r.size), got(side, r, r.local, r.size);
  Imports target(side, 2, 1);
  const Payload shape(side, r.remote, size, kPlain, r.seed);
  Plan plan(side, r, trigger);
  tw_op_options o = TW_OP_OPTIONS_INIT;
  o.layout = sent.first.layout();
  must(tw_plan_send(plan.plan, side.endpoint, sent.first.address(), size, tag_of(r, 0), &o, nullptr), "tw_plan_send");
  o.remote_layout = shape.layout();
  must(tw_plan_get(plan.plan, side.endpoint, got.first.address(), size, target.memory[1], target.offset[1], &o, nullptr),
       "tw_plan_get");
  o.signal = target.signal[0];
  o.signal_value = o.increment = 1;
  must(tw_plan_put(plan.plan, side.endpoint, put.first.address(), size, target.memory[0], target.offset[0], &o, nullptr),
       "tw_plan_put");
  plan.prepare();
  for (unsigned run = 0; run < kRuns; ++run) {
    sent.of(run).fill(seed_of(r, run, 0));
    put.of(run).fill(seed_of(r, run, 1));
    got.first.poison();
    got.second.poison();
    const void* const buffers[] = {sent.of(run).address(), got.of(run).address(), put.of(run).address()};
    for (uint32_t step = 0; run > 0 && step < 3; ++step) plan.update(step, buffers[step], nullptr);
    side.barrier();
    plan.run();
    got.of(run).verify(seed_of(r, run, 2), size);
    got.of(run + 1).verify(r.seed, 0);
    side.barrier();
  }
  plan.close();
  side.barrier();
}

void update_receiver(Side& side, const Row& r, Trigger trigger, uint64_t size) {
  Turns received(side, r, r.remote, size);
  Payload target(side, r.remote, size, r.place[1], r.seed), source(side, r.remote, size, r.place[1], r.seed + 1);
  Word word(side, r.place[1], TW_SIGNAL_SET, 0, r.seed);
  Keys keys;
  keys.add(target);
  keys.add(source);
  keys.add(word);
  keys.send(side);
  Plan plan(side, r, trigger);
  tw_op_options o = TW_OP_OPTIONS_INIT;
  o.layout = target.layout();
  must(tw_plan_recv(plan.plan, side.endpoint, received.first.address(), size, tag_of(r, 0), &o, nullptr), "tw_plan_recv");
  plan.prepare();
  for (unsigned run = 0; run < kRuns; ++run) {
    received.first.poison();
    received.second.poison();
    target.poison();
    source.fill(seed_of(r, run, 2));
    if (run > 0) plan.update(0, received.of(run).address(), nullptr);
    side.barrier();
    plan.run();
    received.of(run).verify(seed_of(r, run, 0), size);
    received.of(run + 1).verify(r.seed, 0);
    side.await(word.signal, TW_COMPARE_GE, run + 1);
    target.verify(seed_of(r, run, 1), size);
    word.verify(run + 1);
    side.barrier();
  }
  plan.close();
  side.barrier();
}

void update(Side& side, const Row& r, Trigger trigger) {
  const uint64_t size = agreed_size(side, r);
  if (!fits(side, r, size)) return side.barrier();
  (side.rank == 0 ? update_sender : update_receiver)(side, r, trigger, size);
}

}  // namespace

void add_triggered_chains(std::vector<Operation>& all) {
  add_by_each<copy>(all, {"plan_copy_host", "plan_copy_queue", "plan_copy_graph"}, true);
  add_by_each<chain>(all, {"plan_chain_host", "plan_chain_queue", "plan_chain_graph"}, true, Rows::fewest);
  add_by_each<update>(all, {"plan_update_host", "plan_update_queue", "plan_update_graph"}, true, Rows::fewest);
}

}  // namespace conformance
