// SPDX-License-Identifier: Apache-2.0
// The kernel identifies the peer; what it passes us cannot block us.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "memory/segment.hpp"
#include "unit/transports/shm_pair.hpp"

namespace thalweg::impl::test {
namespace {

/// A child that establishes a link by the rules but for what `lie` makes of its identity and its answer.
void answer_with(
    int socket,
    const std::function<void(uint64_t theirs, uint64_t* mine, const SetupMessage& offer, SetupMessage* answer)>& lie) {
  Side side;
  SetupChannel channel{UniqueFd(socket), nullptr, {}};
  LinkInit init;
  receive_setup(channel, &init.peer.incarnation, &init.theirs);
  ASSERT_EQ(side.port->answer(init.peer, init.theirs, init.mine), TW_OK) << last_error();
  uint64_t incarnation = side.incarnation;
  lie(init.peer.incarnation, &incarnation, init.theirs, &init.mine);
  send_setup(channel, incarnation, init.mine);
  char end = 0;
  pollfd one{channel.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&one, 1, 30'000), 1);  // the parent closes
  (void)recv(channel.fd(), &end, 1, 0);
}

/// The parent's side of it. Keeps the socket's other end open until it ends.
struct Offered {
  Side side;
  Link* link = nullptr;
  Status status = TW_OK;
  UniqueFd kept;
  explicit Offered(int socket) : kept(dup(socket)) {
    LinkInit init;
    init.initiator = true;
    SetupChannel channel{UniqueFd(socket), nullptr, {}};
    EXPECT_EQ(side.port->offer(init.peer, init.mine), TW_OK) << last_error();
    send_setup(channel, side.incarnation, init.mine);
    receive_setup(channel, &init.peer.incarnation, &init.theirs);
    init.socket = channel.take_socket();
    status = side.port->establish(std::move(init), &link);
  }
  ~Offered() {
    if (link != nullptr) side.port->close(*link, false);
    ::shutdown(kept.get(), SHUT_RDWR);
  }
};

TEST(ShmIdentity, APeersPidIsTheKernels) {
  Child child([](int socket) {
    answer_with(socket, [](uint64_t, uint64_t*, const SetupMessage&, SetupMessage*) {});
    return 0;
  });
  {
    Offered us(child.socket());
    ASSERT_EQ(us.status, TW_OK) << last_error();
    EXPECT_EQ(us.link->peer.pid, child.pid());
    EXPECT_FALSE(same_process(*us.link));
  }
  EXPECT_EQ(child.wait(), 0);
}

/// Our own set-up message sent back: it names our address and, once, our pid and a number that we hold there.
TEST(ShmIdentity, OurOwnValuesReplayedDoNotMakeUsCopyIntoOurselves) {
  Child child([](int socket) {
    answer_with(socket,
                [](uint64_t, uint64_t*, const SetupMessage& offer, SetupMessage* answer) { answer->bytes = offer.bytes; });
    return 0;
  });
  {
    Offered us(child.socket());
    ASSERT_EQ(us.status, TW_OK) << last_error();
    EXPECT_EQ(us.link->features & kLinkSameProcess, 0u);
    uint64_t mine = 1, other = 2;
    const iovec from{&other, sizeof other}, to{&mine, sizeof mine};
    (void)us.side.port->write_peer(*us.link, &from, 1, &to,
                                   1);  // a forked child may have its doorbell, and this word, where we do
    EXPECT_EQ(mine, 1u);
  }
  EXPECT_EQ(child.wait(), 0);
}

TEST(ShmIdentity, AProcessThatClaimsToBeThisOneIsRefused) {
  Child child([](int socket) {
    answer_with(socket, [](uint64_t theirs, uint64_t* mine, const SetupMessage&, SetupMessage*) { *mine = theirs; });
    return 0;
  });
  {
    Offered us(child.socket());
    EXPECT_EQ(us.status, TW_ERR_AUTHENTICATION) << last_error();
    EXPECT_NE(std::string(last_error()).find("process " + std::to_string(child.pid())), std::string::npos) << last_error();
  }
  EXPECT_EQ(child.wait(), 0);
}

// ------------------------------------------------------------------------------------------------ doorbells

/// A link whose peer gave `ringer` as its doorbell.
struct WithDoorbell {
  Side side;
  Segment rings;
  shm::OwnDoorbell doorbell;
  Link* link = nullptr;
  Status status = TW_OK;
  explicit WithDoorbell(UniqueFd ringer) {
    EXPECT_EQ(Segment::create("peer", sizeof(shm::Connection), true, false, &rings), TW_OK);
    EXPECT_EQ(doorbell.open(), TW_OK);
    LinkInit init;
    shm::SetupBody body{};
    body.magic = shm::kSetupMagic;
    body.version = shm::kSetupVersion;
    body.segment_size = sizeof(shm::Connection);
    init.theirs.bytes.resize(sizeof body);
    std::memcpy(init.theirs.bytes.data(), &body, sizeof body);
    init.theirs.fds.emplace_back(dup(doorbell.segment().fd()));
    init.theirs.fds.push_back(std::move(ringer));
    init.theirs.fds.emplace_back(dup(rings.fd()));
    EXPECT_EQ(side.port->answer(init.peer, init.theirs, init.mine), TW_OK) << last_error();
    status = side.port->establish(std::move(init), &link);
  }
  /// The peer sleeps, so a frame to it rings.
  void send_to_a_sleeper() {
    reinterpret_cast<shm::Connection*>(rings.data())->direction[1].control.consumer_mode = shm::kWantsDoorbell;
    doorbell.set_sleeping();
    const uint64_t value = 7;
    EXPECT_EQ(side.port->send(*link, FrameHeader{8, 1, 0, 0, 0, 0}, &value), TW_OK);
    EXPECT_TRUE(doorbell.rung());
  }
};

TEST(ShmDoorbell, AnythingButAUnixStreamSocketIsRefused) {
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
  const UniqueFd reader(pipe_fds[0]);
  UniqueFd counter(eventfd(0, EFD_CLOEXEC));
  const uint64_t full = UINT64_MAX - 1;  // and blocking: a write to it would wait for ever
  ASSERT_EQ(write(counter.get(), &full, sizeof full), ssize_t(sizeof full));
  std::vector<std::pair<const char*, UniqueFd>> cases;
  cases.emplace_back("a full, blocking eventfd", std::move(counter));
  cases.emplace_back("a pipe", UniqueFd(pipe_fds[1]));
  cases.emplace_back("a file", UniqueFd(memfd_create("file", MFD_CLOEXEC)));
  cases.emplace_back("a directory", UniqueFd(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  cases.emplace_back("a TCP socket", UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  cases.emplace_back("a UDP socket", UniqueFd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)));
  cases.emplace_back("a unix datagram socket", UniqueFd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)));
  for (auto& [what, fd] : cases) {
    ASSERT_TRUE(fd) << what;
    const WithDoorbell peer(std::move(fd));
    EXPECT_EQ(peer.status, TW_ERR_PROTOCOL) << what;
  }
}

TEST(ShmDoorbell, AFullOrDeadOneBlocksNobody) {
  for (const bool dead : {false, true}) {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);  // blocking
    UniqueFd reader(fds[0]);
    UniqueFd ringer(fds[1]);
    char bytes[4096] = {};
    while (!dead && send(ringer.get(), bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
    if (dead) reader.reset();  // a write would raise SIGPIPE
    WithDoorbell peer(std::move(ringer));
    ASSERT_EQ(peer.status, TW_OK) << last_error();
    alarm(60);
    peer.send_to_a_sleeper();
    alarm(0);
    EXPECT_EQ(peer.side.sink.lost, 0);
  }
}

/// What peers hold of our doorbell: they can wake us, and neither take wake-ups away nor make us wait.
TEST(ShmDoorbell, PeersCannotTakeWakeUpsAway) {
  Side side, other;
  Link *la, *lb;
  connect_sides(side, other, &la, &lb);
  SetupMessage offer;
  ASSERT_EQ(side.port->offer({}, offer), TW_OK);
  const int theirs = offer.fds[1].get();  // what a peer is given
  ASSERT_EQ(fcntl(theirs, F_SETFL, 0), 0);
  ASSERT_EQ(side.port->arm(), TW_OK);
  side.port->wake();
  char bytes[64];
  EXPECT_LE(recv(theirs, bytes, sizeof bytes, MSG_DONTWAIT), 0);
  pollfd one{side.port->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&one, 1, 0), 1);
  std::vector<char> flood(1 << 20);
  while (send(theirs, flood.data(), flood.size(), MSG_DONTWAIT) > 0) {
  }
  alarm(60);
  side.port->wake();  // full, and made blocking by the peer
  for (int i = 0; i < 10'000 && poll(&one, 1, 0) == 1; ++i) {
    side.port->progress(8);
    if (side.port->arm() != TW_OK) continue;
  }
  alarm(0);
  EXPECT_EQ(poll(&one, 1, 0), 0);  // drained in the end: it sleeps again
}

}  // namespace
}  // namespace thalweg::impl::test
