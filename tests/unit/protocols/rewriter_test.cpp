// SPDX-License-Identifier: Apache-2.0
// Frames in a shared ring whose sender goes on writing while they are read: an engine over a real shm port, and a thread that flips
// words of the ring under every handler. Whatever it reads, no byte outside of what was offered is touched, and each request ends.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/event_loop.hpp"
#include "base/platform/process.hpp"
#include "protocols/blocks.hpp"
#include "protocols/one_sided.hpp"
#include "support.hpp"
#include "transports/shm/port.hpp"

namespace thalweg::test {
namespace {

#ifndef __SANITIZE_THREAD__  // its point is a race

/// One process's side of a shm connection.
struct End {
  uint64_t incarnation = random_id();
  EventLoop loop;
  Registry registry{incarnation};
  Peer peer;
  std::unique_ptr<Engine> engine;
  Port* port = nullptr;
  Link* link = nullptr;
  End() {
    EXPECT_EQ(loop.start(), TW_OK);
    EngineOptions options;
    options.registry = &registry;
    options.incarnation = incarnation;
    engine = std::make_unique<Engine>(options);
    PortOptions of_port;
    of_port.sink = engine.get();
    of_port.service = &loop;
    of_port.registry = &registry;
    of_port.worker = random_id();
    of_port.incarnation = incarnation;
    std::unique_ptr<Port> made;
    EXPECT_EQ(shm::ShmPort::open(of_port, &made), TW_OK) << last_error();
    port = made.get();
    engine->add_port(std::move(made));
    engine->add(peer);
  }
  ~End() {
    engine->remove(peer);
    engine.reset();
    loop.stop();
  }
};

SetupMessage copy_of(const SetupMessage& m) {
  SetupMessage copy;
  copy.bytes = m.bytes;
  for (const UniqueFd& fd : m.fds) copy.fds.emplace_back(dup(fd.get()));
  return copy;
}

/// *ring: a mapping of the connection that stays when both ends have given theirs up, as a peer has it.
void connect(End& a, End& b, shm::Connection** ring) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
  LinkInit ia, ib;
  ia.initiator = true;
  ia.socket = UniqueFd(fds[0]);
  ib.socket = UniqueFd(fds[1]);
  ia.peer.incarnation = b.incarnation;
  ib.peer.incarnation = a.incarnation;
  ASSERT_EQ(a.port->offer(ia.peer, ia.mine), TW_OK) << last_error();
  ASSERT_EQ(b.port->answer(ib.peer, ia.mine, ib.mine), TW_OK) << last_error();
  for (const UniqueFd& fd : ia.mine.fds) {
    struct stat about {};
    if (fstat(fd.get(), &about) != 0 || about.st_size < off_t{sizeof(shm::Connection)}) continue;
    void* const mapped = mmap(nullptr, sizeof(shm::Connection), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (mapped != MAP_FAILED) *ring = static_cast<shm::Connection*>(mapped);
  }
  ASSERT_NE(*ring, nullptr);
  ib.theirs = copy_of(ia.mine);
  ia.theirs = copy_of(ib.mine);
  ASSERT_EQ(a.port->establish(std::move(ia), &a.link), TW_OK) << last_error();
  ASSERT_EQ(b.port->establish(std::move(ib), &b.link), TW_OK) << last_error();
  // Both ends are of this process, whose addresses a flipped bit must not turn into others: everything goes by frames.
  for (Link* link : {a.link, b.link}) link->features = 0;
  a.engine->attach(a.peer, *a.link);
  b.engine->attach(b.peer, *b.link);
}

/// Flips single bits of the words that frames' bodies lie in, in the ring towards b.
class Flipper {
 public:
  Flipper(shm::Connection& ring, uint64_t seed) {
    shm::Direction& direction = ring.direction[0];
    thread_ = std::thread([this, &direction, seed] {
      std::mt19937_64 random(seed);
      while (!stop_.load(std::memory_order_relaxed)) {
        const bool in_slot = random() % 2 == 0;
        std::byte* const base = in_slot ? direction.slots[random() % shm::kSlots].body : direction.bulk;
        auto* word = reinterpret_cast<uint64_t*>(base + random() % (in_slot ? 5 : 512) * 8);
        __atomic_fetch_xor(word, uint64_t{1} << random() % 20, __ATOMIC_RELAXED);
      }
    });
  }
  ~Flipper() {
    stop_ = true;
    thread_.join();
  }
  Flipper(const Flipper&) = delete;
  Flipper& operator=(const Flipper&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

constexpr size_t kRegion = 2000;

/// Posts one of each kind of operation whose frames are parsed; some end at once, when the link is closed already.
void post_some(End& a, RemoteRegion* region, Buffer& from, Layout* layout, std::vector<tw_request>& requests) {
  const auto start = [&](const OpDesc& op) {
    tw_request request = 0;
    if (a.engine->start(op, {&request}) == TW_IN_PROGRESS && request != 0) requests.push_back(request);
  };
  OpDesc op = send_op(a.peer, from.data(), 100, 1, 0);
  op.flags = TW_OP_SYNC;
  start(op);
  op.flags = TW_OP_RENDEZVOUS;
  start(op);
  op = send_op(a.peer, from.data(), 40000, 2, 0);
  start(op);
  op = send_op(a.peer, from.data(), 100, 1, 0);
  op.verb = Verb::am;
  op.header = from.data();
  for (const uint32_t length : {30, 300, 9000}) {
    op.header_length = length;
    op.flags = 0;
    start(op);
    op.flags = TW_OP_RENDEZVOUS;
    start(op);
  }
  op = send_op(a.peer, from.data(), kRegion / 2, 1, 0);
  op.verb = Verb::put;
  op.remote = region;
  op.remote_layout = layout;
  op.length = layout->bytes;
  op.flags = TW_OP_REMOTE;
  start(op);
  op.verb = Verb::get;
  start(op);
  op.verb = Verb::atomic;
  op.remote_layout = nullptr;
  op.word = 8;
  op.result = from.data();
  start(op);
}

TEST(Hostile, WordsOfARingThatChangeUnderItsReader) {
  std::mt19937_64 random(seed());
  Buffer from(random, 50000), to(random, 50000), memory(random, kRegion);
  Layout* layout = nullptr;
  const uint64_t count = 20;
  const int64_t stride = 80;
  ASSERT_EQ(make_strided(1, 40, &count, &stride, &layout), TW_OK);
  for (int round = 0; round < 30; ++round) {
    End a, b;
    shm::Connection* ring = nullptr;
    connect(a, b, &ring);
    ASSERT_NE(ring, nullptr);
    tw_memory* registered = nullptr;
    KeyBody key{};
    ASSERT_EQ(b.registry.register_memory(memory.data(), kRegion, TW_MEMORY_ALL, &registered), TW_OK);
    ASSERT_EQ(b.registry.export_range(registered, 0, kRegion, TW_MEMORY_ALL, &key), TW_OK);
    key.segment = key.base = key.check = 0;  // by frames
    RemoteRegion* region = nullptr;
    ASSERT_EQ(import_region(a.peer, key, &region), TW_OK);
    std::vector<tw_request> sent, received;
    {
      const Flipper flipper(*ring, random());
      for (int turn = 0; turn < 40 && b.peer.state == TW_OK && a.peer.state == TW_OK; ++turn) {
        tw_request receive = 0;
        ASSERT_EQ(post_short(*b.engine, to.data(), to.size(), 0, 0, &receive), TW_IN_PROGRESS);
        received.push_back(receive);
        post_some(a, region, from, layout, sent);
        for (int i = 0; i < 20; ++i) {
          a.engine->progress();
          b.engine->progress();
        }
      }
    }
    a.engine->fail(a.peer, TW_ERR_CLOSED, "the round is over");
    b.engine->fail(b.peer, TW_ERR_CLOSED, "the round is over");
    for (tw_request request : sent) {
      EXPECT_NE(Engine::test(request), TW_IN_PROGRESS);
      Engine::release(request);
    }
    for (tw_request request : received) {
      if (Engine::test(request) == TW_IN_PROGRESS) {
        EXPECT_EQ(b.engine->cancel(request), TW_OK);
      }
      Engine::release(request);
    }
    release_region(region);
    munmap(ring, sizeof *ring);
    EXPECT_EQ(b.registry.release(registered), TW_OK);
    ASSERT_TRUE(from.guarded() && to.guarded() && memory.guarded());
  }
  release(layout);
}

#endif

}  // namespace
}  // namespace thalweg::test
