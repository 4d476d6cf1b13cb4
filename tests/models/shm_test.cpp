// SPDX-License-Identifier: Apache-2.0
// The ring, the doorbell and the copier's words of shared memory (src/transports/shm), and a put with its signal.
#include "models/check.hpp"

namespace thalweg::models {
namespace {

const auto kIsOne = [](Value v) { return v == 1; };
const auto kNotZero = [](Value v) { return v != 0; };
const auto kZero = [](Value v) { return v == 0; };
const auto kEven = [](Value v) { return v % 2 == 0; };
const auto kOdd = [](Value v) { return v % 2 == 1; };

/// A slot of two laps: the word's lowest bit is the parity, 1 in lap 0. The producer's acquire of the credit is the
/// compiler's: on every machine its stores come behind the branch.
TEST(ShmModels, TheParityShowsABodyAndTheCreditFreesIt) {
  expect_code("src/transports/shm/producer.hpp",
              {"load_acquire(shared_->control.consumed_slots)", "store_relaxed(slot.a, words.a);",
               "store_release(slot.word, (words.first & ~kParity) | parity_);", "parity_ ^= kParity;"});
  expect_code("src/transports/shm/consumer.hpp",
              {"const uint64_t word = load_acquire(slot.word);", "header->a = load_relaxed(slot.a);",
               "store_release(shared_->control.consumed_slots, head_);"});
  check([](Program& p) {
    const Word word = p.word(), body = p.word(), consumed = p.word();
    const Order publish = p.order("Producer::publish, slot.word", Order::release, Order::relaxed);
    const Order see = p.order("Consumer::take, slot.word", Order::acquire, Order::relaxed);
    const Order give = p.order("Consumer::give, consumed_slots", Order::release, Order::relaxed);
    Thread &producer = p.thread(), &consumer = p.thread();
    producer.store(body, 11, Order::relaxed, "first body");
    producer.store(word, 1, publish, "publish in lap 0");
    producer.await(consumed, kIsOne, Order::acquire, "the credit");
    producer.store(body, 22, Order::relaxed, "second body");
    producer.store(word, 2, publish, "publish in lap 1");
    consumer.await(word, kOdd, see, "parity of lap 0");
    const Reg first = consumer.load(body, Order::relaxed, "read first");
    consumer.store(consumed, 1, give, "give the slot back");
    consumer.await(word, kEven, see, "parity of lap 1");
    const Reg second = consumer.load(body, Order::relaxed, "read second");
    p.holds = [=](const Final& end) { return !end.stuck && end.of(first) == 11 && end.of(second) == 22; };
  });
}

/// PeerDoorbell::ring.
void ring(Thread& producer, Word bits, Word summary, Word sleeping, Word event, Order order) {
  producer.set_bits(bits, 1, order, "ring: its bit");
  producer.set_bits(summary, 1, order, "ring: the summary");
  const Reg sleeps = producer.load(sleeping, order, "does it sleep?");
  producer.when(sleeps, kNotZero, [&] {
    const Reg taken = producer.swap(sleeping, 0, order, "take the sleep");
    producer.when(taken, kNotZero, [&] { producer.store(event, 1, Order::relaxed, "write the descriptor"); });
  });
}

/// Falling asleep beside a publication. Hot: the ring was polled, so its mode changes, and it is looked at once more, behind
/// the kernel's barrier, or where there is none between fences of both. Cold: the producer rings in any case, and only the
/// doorbell is looked at; its own order does, as does the barrier.
enum class Sleep { hot_by_membarrier, hot_by_fences, cold };
void sleep(Program& p, Sleep how) {
  const bool hot = how != Sleep::cold;
  const Word word = p.word(), mode = p.word(hot ? 0 : 1), bits = p.word(), summary = p.word(), sleeping = p.word(),
             event = p.word();
  Thread &producer = p.thread(), &consumer = p.thread();
  producer.store(word, 1, Order::release, "publish");
  if (how == Sleep::hot_by_fences && p.keeps("Producer::must_ring, the fence")) producer.fence(Order::seq_cst, "fence");
  const Reg wants = producer.load(mode, Order::relaxed, "does the consumer want its doorbell rung?");
  const Order doorbell = hot ? Order::seq_cst : p.order("PeerDoorbell::ring", Order::seq_cst, Order::relaxed);
  producer.when(wants, kNotZero, [&] { ring(producer, bits, summary, sleeping, event, doorbell); });
  if (hot) consumer.store(mode, 1, Order::relaxed, "mode: doorbell");
  consumer.store(sleeping, 1, Order::seq_cst, "sleeping");
  if (how == Sleep::hot_by_membarrier && p.keeps("ShmPort::barrier, membarrier")) consumer.barrier("membarrier");
  if (how == Sleep::hot_by_membarrier || p.keeps("ShmPort::barrier, the fence")) consumer.fence(Order::seq_cst, "fence");
  const Reg rung = consumer.load(summary, Order::relaxed, "rung?");
  const Reg there = hot ? consumer.load(word, Order::acquire, "a frame?") : rung;
  p.holds = [=](const Final& end) { return end.of(rung) != 0 || end.of(there) != 0 || end.at(event) == 1; };
}

TEST(ShmModels, NoFrameIsMissedByWhoFallsAsleep) {
  expect_code("src/transports/shm/producer.hpp",
              {"bool must_ring() const {", "if (fence_needed_)", "__atomic_thread_fence(__ATOMIC_SEQ_CST);",
               "__atomic_signal_fence(__ATOMIC_SEQ_CST);", "load_relaxed(shared_->control.consumer_mode) != kPolled"});
  expect_code("src/transports/shm/doorbell.cpp",
              {"__atomic_fetch_or(&memory().words[word], uint64_t(1) << (bit % 64), __ATOMIC_SEQ_CST);",
               "__atomic_fetch_or(&memory().summary, uint64_t(1) << word, __ATOMIC_SEQ_CST);",
               "__atomic_load_n(&memory().sleeping, __ATOMIC_SEQ_CST) == 0",
               "__atomic_exchange_n(&memory().sleeping, 0, __ATOMIC_SEQ_CST)"});
  expect_code("src/transports/shm/doorbell.hpp", {"__atomic_load_n(&memory().summary, __ATOMIC_RELAXED)",
                                                  "__atomic_store_n(&memory().sleeping, 1u, __ATOMIC_SEQ_CST)"});
  expect_code("src/transports/shm/wakeup.cpp",
              {"membarrier::global();", "__atomic_thread_fence(__ATOMIC_SEQ_CST);", "Status ShmPort::arm() {",
               "set_mode(kWantsDoorbell);", "doorbell.set_sleeping();", "barrier();", "anything_there()"});
  for (const Sleep how : {Sleep::hot_by_membarrier, Sleep::hot_by_fences, Sleep::cold}) {
    SCOPED_TRACE(static_cast<int>(how));
    check([how](Program& p) { sleep(p, how); });
  }
}

TEST(ShmModels, NoBitOfABellIsLost) {
  expect_code("src/transports/shm/doorbell.hpp", {"__atomic_exchange_n(&memory().summary, 0, __ATOMIC_SEQ_CST)",
                                                  "__atomic_exchange_n(&memory().words[word], 0, __ATOMIC_SEQ_CST)"});
  check([](Program& p) {
    const Word bits = p.word(), summary = p.word();
    const Order order = p.order("PeerDoorbell::ring, its bit before the summary", Order::seq_cst, Order::relaxed);
    Thread& owner = p.thread();
    for (const int bit : {1, 2}) {
      Thread& peer = p.thread();
      peer.set_bits(bits, bit, order, "its bit");
      peer.set_bits(summary, 1, order, "the summary");
    }
    std::vector<Reg> seen;
    for (int turn = 0; turn < 2; ++turn) {
      const Reg some = owner.swap(summary, 0, Order::seq_cst, "take the summary");
      owner.when(some, kNotZero, [&] { seen.push_back(owner.swap(bits, 0, Order::seq_cst, "take the bits")); });
    }
    p.holds = [=](const Final& end) {
      const unsigned visited = end.of(seen[0]) | end.of(seen[1]);
      return visited == 3 || ((visited | end.at(bits)) == 3 && end.at(summary) != 0);
    };
  });
}

/// A producer that sleeps for room, beside a consumer that gives some back.
TEST(ShmModels, NoRoomIsMissedByAProducerThatFallsAsleep) {
  expect_code("src/transports/shm/consumer.hpp",
              {"store_release(shared_->control.consumed_slots, head_);", "if (fence_needed_)",
               "__atomic_thread_fence(__ATOMIC_SEQ_CST);", "load_relaxed(shared_->control.producer_waiting)"});
  expect_code("src/transports/shm/wakeup.cpp", {"out.set_waiting(true);", "barrier();", "link.out.refresh()"});
  for (const bool membarrier : {true, false}) {
    check([=](Program& p) {
      const Word consumed = p.word(), waiting = p.word();
      Thread &producer = p.thread(), &consumer = p.thread();
      consumer.store(consumed, 1, Order::release, "give room");
      if (!membarrier && p.keeps("Consumer::give, the fence")) consumer.fence(Order::seq_cst, "fence");
      const Reg rings = consumer.load(waiting, Order::relaxed, "does the producer wait?");
      producer.store(waiting, 1, Order::relaxed, "waiting");
      if (membarrier && p.keeps("ShmPort::barrier, membarrier")) producer.barrier("membarrier");
      if (membarrier || p.keeps("ShmPort::barrier, the fence")) producer.fence(Order::seq_cst, "fence");
      const Reg room = producer.load(consumed, Order::acquire, "room?");
      p.holds = [=](const Final& end) { return end.of(room) == 1 || end.of(rings) == 1; };
    });
  }
}

/// An owner that takes memory back, beside a peer that copies into it. The first copy of two: `copying` becomes odd, then
/// even.
TEST(ShmModels, NobodyCopiesIntoMemoryThatWasTakenBack) {
  expect_code("src/transports/shm/copying.hpp", {"__atomic_store_n(&mine_->copying, ++count_, __ATOMIC_SEQ_CST);",
                                                 "__atomic_load_n(&theirs_->closed, __ATOMIC_SEQ_CST) == 0",
                                                 "__atomic_store_n(&mine_->copying, ++count_, __ATOMIC_RELEASE);",
                                                 "__atomic_store_n(&mine_->closed, 1, __ATOMIC_SEQ_CST);",
                                                 "__atomic_load_n(&theirs_->copying, __ATOMIC_SEQ_CST)"});
  check([](Program& p) {
    const Word copying = p.word(), closed = p.word(), memory = p.word();
    Thread &copier = p.thread(), &owner = p.thread();
    copier.store(copying, 1, p.order("Copier::enter, copying", Order::seq_cst, Order::release), "copying");
    const Reg refused = copier.load(closed, p.order("Copier::enter, closed", Order::seq_cst, Order::acquire), "closed?");
    copier.when(refused, kZero, [&] { copier.store(memory, 5, Order::relaxed, "copy"); });
    copier.store(copying, 2, p.order("Copier::leave", Order::release, Order::relaxed), "done");
    owner.store(closed, 1, p.order("Copier::close", Order::seq_cst, Order::release), "close");
    owner.await(copying, kEven, p.order("PeerCopying::count", Order::seq_cst, Order::acquire), "nobody copies");
    owner.store(memory, 9, Order::relaxed, "use it for something else");
    p.holds = [=](const Final& end) { return !end.stuck && end.at(memory) == 9; };
  });
}

TEST(ShmModels, APutIsThereWhenItsSignalIs) {
  expect_code("src/memory/signal.hpp",
              {"__atomic_load_n(signal.word, __ATOMIC_ACQUIRE)", "__atomic_fetch_add(word, value, __ATOMIC_RELEASE);",
               "__atomic_store_n(word, value, __ATOMIC_RELEASE);"});
  expect_code("src/protocols/put_mapped.cpp", {"std::memmove(to, op.address, op.length);"});
  expect_code("src/protocols/one_sided.cpp", {"const Status status = move_at_once(op, access_of(op));",
                                              "if (status == TW_OK) return signal_after_data(op, completion);"});
  for (const bool adds : {false, true}) {
    check([=](Program& p) {
      const Word word = p.word();
      const int putters = adds ? 2 : 1;
      const Order touch = p.order("touch_signal", Order::release, Order::relaxed);
      std::vector<Word> data;
      for (int i = 0; i < putters; ++i) {
        data.push_back(p.word());
        Thread& putter = p.thread();
        putter.store(data.back(), 7, Order::relaxed, "data");
        if (adds) {
          putter.add(word, 1, touch, "signal: add");
        } else {
          putter.store(word, 1, touch, "signal: set");
        }
      }
      Thread& waiter = p.thread();
      waiter.await(word, [=](Value v) { return v == putters; }, p.order("signal_read", Order::acquire, Order::relaxed), "wait");
      std::vector<Reg> seen;
      for (const Word one : data) seen.push_back(waiter.load(one, Order::relaxed, "read"));
      p.holds = [=](const Final& end) {
        for (const Reg one : seen) {
          if (end.of(one) != 7) return false;
        }
        return !end.stuck;
      };
    });
  }
}

/// A receive and a send that are posted at the same time: the sender sees the offer, or the receiver finds the RTS.
TEST(ShmModels, WhoPostsSecondFindsTheFirst) {
  expect_code("src/protocols/offers.cpp",
              {"__atomic_store_n(&table.states[entry], offer_word(offers->number, OfferState::offered), __ATOMIC_RELEASE);",
               "void await_rts(Peer& peer) {", "__atomic_thread_fence(__ATOMIC_SEQ_CST);",
               "__atomic_load_n(&word, __ATOMIC_ACQUIRE) != 0", "__atomic_store_n(word_, 1, __ATOMIC_RELAXED);",
               "__atomic_thread_fence(__ATOMIC_SEQ_CST);", "__atomic_store_n(word_, 0, __ATOMIC_RELEASE);"});
  expect_code("src/protocols/rendezvous.cpp", {"const SendingRts sending_rts(peer, op, offered);", "find_claim(",
                                               "send_claiming_rts(", "peer.link->port->send(*peer.link, frame, body)"});
  expect_code("src/protocols/receives.cpp", {"make_offer(engine, run)", "await_rts(", "take_frames();"});
  check([](Program& p) {
    const Word sending_rts = p.word(), offer = p.word(), rts = p.word();
    const Order end = p.order("~SendingRts", Order::release, Order::relaxed);
    const Order await = p.order("await_rts, sending_rts", Order::acquire, Order::relaxed);
    Thread &sender = p.thread(), &receiver = p.thread();
    sender.store(sending_rts, 1, Order::relaxed, "sending_rts");
    if (p.keeps("SendingRts, the fence")) sender.fence(Order::seq_cst, "fence");
    const Reg seen = sender.load(offer, Order::acquire, "an offer?");
    sender.store(rts, 1, Order::release, "tagged_rts");
    sender.store(sending_rts, 0, end, "announced");
    receiver.store(offer, 1, Order::release, "offered");
    if (p.keeps("await_rts, the fence")) receiver.fence(Order::seq_cst, "fence");
    receiver.await(sending_rts, kZero, await, "nobody announces");
    const Reg found = receiver.load(rts, Order::acquire, "tagged_rts?");
    p.holds = [=](const Final& final) { return !final.stuck && (final.of(seen) == 1 || final.of(found) == 1); };
  });
}

/// A receive is withdrawn, and another one takes its entry: a claim is of what was read.
TEST(ShmModels, AClaimIsOfTheReceiveThatWasRead) {
  expect_code("src/transports/offers.hpp", {"__atomic_load_n(&word, __ATOMIC_ACQUIRE)",
                                            "__atomic_compare_exchange_n(&word, &from, to, false, __ATOMIC_ACQ_REL"});
  expect_code(
      "src/protocols/offers.cpp",
      {"__atomic_store_n(&table.states[entry], offer_word(offers->number, OfferState::offered), __ATOMIC_RELEASE);",
       "if (swap_state(word, offer_word(entry.number, OfferState::offered), offer_word(entry.number, OfferState::free))) {",
       "const uint64_t word = load_state(table.states[i]);", "copy_out(table.offers[out->entry], out);",
       "swap_state(peer.offers->tables.theirs->states[claim.entry], claim.word,"});
  constexpr int kFree = 0, kFirst = 1, kSecond = 2, kClaimed = 3;
  check([=](Program& p) {
    const Word state = p.word(), field = p.word();
    const Order offer = p.order("make_offer, offered", Order::release, Order::relaxed);
    const Order look = p.order("find_offer, load_state", Order::acquire, Order::relaxed);
    Thread &receiver = p.thread(), &sender = p.thread();
    receiver.store(field, 1, Order::relaxed, "the first receive");
    receiver.store(state, kFirst, offer, "offered");
    const Reg withdrawn = receiver.swap_if(state, kFirst, kFree, Order::acq_rel, "withdraw");
    receiver.when(withdrawn, kIsOne, [&] {
      receiver.store(field, 2, Order::relaxed, "the second receive");
      receiver.store(state, kSecond, offer, "offered");
    });
    const Reg seen = sender.load(state, look, "offered?");
    const Reg read = sender.load(field, Order::relaxed, "copy it out");
    Reg claimed{};
    sender.when(seen, kIsOne, [&] { claimed = sender.swap_if(state, kFirst, kClaimed, Order::acq_rel, "claim"); });
    p.holds = [=](const Final& end) { return end.of(seen) != kFirst || end.of(claimed) != kFirst || end.of(read) == 1; };
  });
}

}  // namespace
}  // namespace thalweg::models
