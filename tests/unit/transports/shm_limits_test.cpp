// SPDX-License-Identifier: Apache-2.0
// What a hostile peer may cost: time of ours, turns of the service thread, memory, descriptors, sleep. And what a lack of
// descriptors ends: what needed them, and no link.
#include <dirent.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "unit/transports/shm_hostile.hpp"

namespace thalweg::impl::test {
namespace {

size_t open_descriptors() {
  size_t count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

/// Without progress.
bool comes(const std::function<bool()>& what) {
  const Deadline deadline(20 * kSecond);
  while (!what()) {
    if (deadline.passed()) return false;
    sched_yield();
  }
  return true;
}

int unread(int socket) {
  int bytes = 0;
  EXPECT_EQ(ioctl(socket, FIONREAD, &bytes), 0);
  return bytes;
}

/// The hostile end of a control channel, as messages.
struct Speaker {
  explicit Speaker(HostileLink& link) : channel(UniqueFd(dup(link.socket.get())), nullptr, Session{}) {}
  SetupChannel channel;
  /// False: the port has closed its side.
  bool say(uint16_t type, uint64_t value) {
    if (is_error(channel.queue(type, &value, sizeof value))) return false;
    Status s;
    while ((s = channel.flush()) == TW_IN_PROGRESS) sched_yield();
    return s == TW_OK;
  }
  SetupChannel::Message hear() {
    SetupChannel::Message message;
    EXPECT_TRUE(comes([&] { return channel.receive(&message) == TW_OK; }));
    return message;
  }
};

// ------------------------------------------------------------------------------------------------ copies without an end

/// It has said goodbye, or broken a rule.
TEST(ShmLimits, APeerThatHasPartedIsNotWaitedFor) {
  Side side;
  HostileLink links[] = {HostileLink(side), HostileLink(side), HostileLink(side)};
  const uint64_t begin = monotonic_ns();
  for (HostileLink& one : links) {
    one.incoming().control.copying = 1;
    one.link->parted = true;
    side.port->close(*one.link, false);
  }
  EXPECT_LT(monotonic_ns() - begin, 4 * kSecond);
}

/// In its set-up: the wake-up descriptor is a pipe.
TEST(ShmLimits, APeerWhoseSetupBreaksARuleIsNotWaitedFor) {
  Side side;
  Segment rings;
  ASSERT_EQ(Segment::create("hostile", sizeof(shm::Connection), true, false, &rings), TW_OK);
  shm::OwnDoorbell doorbell;
  ASSERT_EQ(doorbell.open(), TW_OK);
  reinterpret_cast<shm::Connection*>(rings.data())->direction[0].control.copying = 1;
  const uint64_t begin = monotonic_ns();
  for (int i = 0; i < 2; ++i) {
    int sockets[2], ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd socket(sockets[0]), reader(ends[0]), writer(ends[1]);
    LinkInit init;
    init.socket = UniqueFd(sockets[1]);
    shm::SetupBody body{};
    body.magic = shm::kSetupMagic;
    body.version = shm::kSetupVersion;
    body.segment_size = sizeof(shm::Connection);
    init.theirs.bytes.resize(sizeof body);
    std::memcpy(init.theirs.bytes.data(), &body, sizeof body);
    for (int fd : {doorbell.segment().fd(), writer.get(), rings.fd()}) init.theirs.fds.emplace_back(dup(fd));
    ASSERT_EQ(side.port->answer(init.peer, init.theirs, init.mine), TW_OK) << last_error();
    Link* link = nullptr;
    EXPECT_EQ(side.port->establish(std::move(init), &link), TW_ERR_PROTOCOL);
  }
  EXPECT_LT(monotonic_ns() - begin, 4 * kSecond);
}

TEST(ShmLimits, AnEndOfAPortWaitsOnceForAllItsLinks) {
  auto side = std::make_unique<Side>(true, kSecond);
  HostileLink links[] = {HostileLink(*side), HostileLink(*side), HostileLink(*side), HostileLink(*side)};
  for (HostileLink& one : links) one.incoming().control.copying = 1;
  const uint64_t begin = monotonic_ns();
  side = nullptr;
  EXPECT_GE(monotonic_ns() - begin, kSecond);
  EXPECT_LT(monotonic_ns() - begin, 3 * kSecond);
}

TEST(ShmLimits, AProcessIsNotWaitedForAtEachOfItsLinks) {
  Side side;
  auto mailbox = std::make_shared<shm::Mailbox>();
  ASSERT_EQ(mailbox->doorbell.open(), TW_OK);
  shm::RingControl words{};
  words.copying = 7;
  const auto link_of = [&](pid_t process) {
    auto control = std::make_shared<shm::Control>(mailbox, &side.loop, &side.registry, 1, 1, process);
    control->copying.open(words);
    return control;
  };
  const auto other = link_of(200);
  for (const pid_t process : {100, 0}) {  // 0: of another pid namespace
    const auto first = link_of(process), second = link_of(process);
    EXPECT_FALSE(first->await_copy(Deadline(100 * kMillisecond), 30 * kSecond));
    const uint64_t begin = monotonic_ns();
    EXPECT_FALSE(second->await_copy(Deadline(10 * kSecond), 30 * kSecond));
    EXPECT_LT(monotonic_ns() - begin, 5 * kSecond) << process;
  }
  std::thread copies([&] { __atomic_store_n(&words.copying, 8, __ATOMIC_SEQ_CST); });
  EXPECT_TRUE(other->await_copy(Deadline(60 * kSecond), 30 * kSecond));
  copies.join();
}

// ------------------------------------------------------------------------------------------------ the service thread

/// Messages that are there are read a few a turn, however many there are.
TEST(ShmLimits, AFloodOfMessagesHasNoMoreOfThemInEveryTurn) {
  constexpr int kEach = 8 + 16 + 32, kMany = 3000;
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
  SetupChannel writer{UniqueFd(pair[0]), nullptr, Session{}};
  const UniqueFd reader(pair[1]);
  std::vector<std::byte> flood(size_t(kMany) * kEach);
  const uint64_t segment = random_id();
  for (size_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(writer.queue(shm::kDropped, &segment, sizeof segment), TW_OK);
    ASSERT_EQ(writer.flush(), TW_OK);
    ASSERT_EQ(read(reader.get(), flood.data() + i * kEach, kEach), kEach);
  }
  Hostile h;
  std::vector<int> left;
  bool written = false;
  std::function<void()> look = [&] {  // once a turn
    left.push_back(unread(h.received.get()));
    if (left.back() > 0 && left.size() < 10'000) h.side.loop.post(look);
  };
  h.side.loop.call([&] {
    written = send(h.socket.get(), flood.data(), flood.size(), MSG_DONTWAIT) == ssize_t(flood.size());
    look();
  });
  ASSERT_TRUE(written);
  EXPECT_TRUE(comes([&] { return unread(h.received.get()) == 0; }));
  h.side.loop.call([] {});
  h.side.loop.call([] {});
  ASSERT_GT(left.size(), 2u);
  for (size_t i = 1; i < left.size(); ++i) EXPECT_LE((left[i - 1] - left[i]) / kEach, 64) << "turn " << i;
}

TEST(ShmLimits, ReleasesOfWhatWasNeverImportedLeaveNothing) {
  Hostile h;
  Speaker peer(h);
  for (uint64_t i = 1; i <= 20'000; ++i) ASSERT_TRUE(peer.say(shm::kReleased, i));
  ASSERT_TRUE(peer.say(shm::kReleased, 0));
  ASSERT_TRUE(peer.say(shm::kImport, 5));  // answered behind them
  EXPECT_EQ(peer.hear().type, shm::kImported);
  EXPECT_EQ(h.side.port->progress(64), 0u) << "events that nobody needs";
  EXPECT_EQ(h.side.sink.lost, 0);
}

/// The loop may hear of the process's end before it has read that.
TEST(ShmLimits, AGoodbyeCountsBehindMuchElse) {
  int gate[2];
  ASSERT_EQ(pipe2(gate, O_CLOEXEC), 0);
  Child child([&](int socket) {
    ::close(gate[1]);
    Side side(false);
    LinkInit init;
    SetupChannel channel{UniqueFd(socket), nullptr, {}};
    if (is_error(side.port->offer(init.peer, init.mine))) return 1;
    send_setup(channel, side.incarnation, init.mine);
    receive_setup(channel, &init.peer.incarnation, &init.theirs);
    char byte;
    if (read(gate[0], &byte, 1) != 0) return 2;  // until the parent has the link, and with it this process
    const uint64_t segment = random_id(), none = 0;
    for (int i = 0; i < 100; ++i)
      if (is_error(channel.queue(shm::kReleased, &segment, sizeof segment))) return 3;
    if (is_error(channel.queue(shm::kClosed, &none, sizeof none))) return 4;
    return channel.flush() == TW_OK ? 0 : 5;
  });
  ::close(gate[0]);
  Side side;
  std::atomic<bool> held{true};
  side.loop.post([&] {
    while (held) sched_yield();
  });
  Link* link = connect_over(side, child.socket(), false);
  ::close(gate[1]);
  EXPECT_EQ(child.wait(), 0);
  held = false;
  ASSERT_NE(link, nullptr);
  ASSERT_TRUE(progress_until({side.port.get()}, [&] { return side.sink.lost == 1; }));
  EXPECT_EQ(side.sink.lost_status, TW_ERR_CLOSED) << side.sink.lost_why;
  side.port->close(*link, false);
}

// ------------------------------------------------------------------------------------------------ descriptors

TEST(ShmLimits, APeerThatReadsNoAnswersPinsNoDescriptors) {
  Hostile h;
  tw_memory* memory = nullptr;
  ASSERT_EQ(h.side.registry.allocate(4096, TW_MEMORY_ALL, false, &memory), TW_OK);
  Speaker peer(h);
  h.received.reset();  // so that the end shows
  const size_t before = open_descriptors();
  size_t most = 0;
  for (int i = 0; i < 2000 && peer.say(shm::kImport, memory->segment_id); ++i) {
    if (i % 50 == 0) h.side.loop.call([] {});
    most = std::max(most, open_descriptors());
  }
  EXPECT_LT(most, before + 100);
  EXPECT_TRUE(progress_until({h.side.port.get()}, [&] { return h.side.sink.lost == 1; }));
  EXPECT_EQ(h.side.sink.lost_status, TW_ERR_PROTOCOL);
  EXPECT_EQ(h.side.registry.release(memory), TW_OK);
}

/// As many as a port has under way, to a service thread that is slow.
TEST(ShmLimits, RequestsThatWaitAreAnsweredInTheEnd) {
  Hostile h(4096);
  tw_memory* memory = nullptr;
  ASSERT_EQ(h.side.registry.allocate(4096, TW_MEMORY_ALL, false, &memory), TW_OK);
  Speaker peer(h);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 256; ++i) ASSERT_TRUE(peer.say(shm::kImport, i % 3 != 0 ? memory->segment_id : uint64_t(i) + 1));
    for (int i = 0; i < 256; ++i) {
      const SetupChannel::Message message = peer.hear();
      ASSERT_EQ(message.type, shm::kImported);
      ASSERT_EQ(message.fds.size(), i % 3 != 0 ? 1u : 0u);
      uint64_t segment = 0;
      std::memcpy(&segment, message.bytes.data(), sizeof segment);
      ASSERT_EQ(segment, i % 3 != 0 ? memory->segment_id : uint64_t(i) + 1);
    }
  }
  EXPECT_EQ(h.side.registry.release(memory), TW_OK);
}

Status import(Port& port, Link& link, uint64_t segment, Mapping** mapping) {
  Status status = TW_IN_PROGRESS;
  EXPECT_TRUE(progress_until({&port}, [&] { return (status = port.import(link, segment, mapping)) != TW_IN_PROGRESS; }));
  return status;
}

TEST(ShmLimits, AnOwnerWithoutDescriptorsFailsTheImportAlone) {
  Side a, b;
  Link *la, *lb;
  connect_sides(a, b, &la, &lb);
  tw_memory* memory = nullptr;
  ASSERT_EQ(b.registry.allocate(4096, TW_MEMORY_ALL, false, &memory), TW_OK);
  Mapping* mapping = nullptr;
  {
    const NoDescriptors none;
    EXPECT_EQ(import(*a.port, *la, memory->segment_id, &mapping), TW_ERR_NO_DESCRIPTORS);
    EXPECT_NE(std::string(last_error()).find("ulimit"), std::string::npos) << last_error();
  }
  EXPECT_EQ(import(*a.port, *la, memory->segment_id, &mapping), TW_OK) << last_error();
  EXPECT_EQ(a.sink.lost + b.sink.lost, 0);
  EXPECT_EQ(b.registry.release(memory), TW_OK);
}

/// The kernel then cuts off what was sent, as it does with too much.
TEST(ShmLimits, AnImporterWithoutDescriptorsFailsTheImportAlone) {
  Hostile h;
  Speaker peer(h);
  const uint64_t segment = random_id();
  Mapping* mapping = nullptr;
  for (const bool short_of : {true, false}) {
    ASSERT_EQ(h.side.port->import(*h.link, segment, &mapping), TW_IN_PROGRESS);
    ASSERT_EQ(peer.hear().type, shm::kImport);
    Segment memory;
    ASSERT_EQ(Segment::create("of a peer", 4096, true, false, &memory), TW_OK);
    const struct {
      uint64_t segment;
      int64_t status;
      uint64_t length;
    } answer{segment, TW_OK, 4096};
    const int fd = memory.fd();
    ASSERT_EQ(peer.channel.queue(shm::kImported, &answer, sizeof answer, &fd, 1), TW_OK);
    std::unique_ptr<NoDescriptors> none;
    if (short_of) none = std::make_unique<NoDescriptors>();
    ASSERT_EQ(peer.channel.flush(), TW_OK);
    EXPECT_EQ(import(*h.side.port, *h.link, segment, &mapping), short_of ? TW_ERR_NO_DESCRIPTORS : TW_OK) << last_error();
  }
  EXPECT_EQ(h.side.sink.lost, 0) << h.side.sink.lost_why;
}

TEST(ShmLimits, AnOfferedRingWithoutADescriptorForItIsGivenBack) {
  Hostile h;
  Speaker peer(h);
  Segment ring;
  ASSERT_EQ(Segment::create("of a peer", shm::kDeepBytes, true, false, &ring), TW_OK);
  for (const bool short_of : {true, false}) {
    const uint64_t bytes = shm::kDeepBytes;
    const int fd = ring.fd();
    ASSERT_EQ(peer.channel.queue(shm::kRing, &bytes, sizeof bytes, &fd, 1), TW_OK);
    std::unique_ptr<NoDescriptors> none;
    if (short_of) none = std::make_unique<NoDescriptors>();
    ASSERT_EQ(peer.channel.flush(), TW_OK);
    SetupChannel::Message message;
    ASSERT_TRUE(progress_until({h.side.port.get()}, [&] { return peer.channel.receive(&message) == TW_OK; }));
    EXPECT_EQ(message.type, shm::kRingTaken);
    uint64_t refused = 9;
    std::memcpy(&refused, message.bytes.data(), sizeof refused);
    EXPECT_EQ(refused, short_of ? 1u : 0u);
  }
  EXPECT_EQ(h.side.sink.lost, 0) << h.side.sink.lost_why;
}

/// Too many descriptors of this user are on their way: the kernel sends no more until some arrive.
TEST(ShmLimits, DescriptorsThatCannotBeSentNowAreSentLater) {
  Child child([&](int socket) {
    Side side;
    Link* link = connect_over(side, socket, true);
    tw_memory* memory = nullptr;
    if (side.registry.allocate(4096, TW_MEMORY_ALL, false, &memory) != TW_OK) return 1;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) != 0) return 2;
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) return 3;  // root may send as many as it likes
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &limit);
    const int many[] = {pair[0], pair[0], pair[0], pair[0], pair[0], pair[0], pair[0], pair[0]};
    for (int i = 0; i < 12; ++i) {
      char byte = 0;
      iovec piece{&byte, 1};
      alignas(cmsghdr) char space[CMSG_SPACE(sizeof many)] = {};
      msghdr header{};
      header.msg_iov = &piece;
      header.msg_iovlen = 1;
      header.msg_control = space;
      header.msg_controllen = sizeof space;
      cmsghdr* const first = CMSG_FIRSTHDR(&header);
      *first = {CMSG_LEN(sizeof many), SOL_SOCKET, SCM_RIGHTS};
      std::memcpy(CMSG_DATA(first), many, sizeof many);
      if (sendmsg(pair[0], &header, MSG_DONTWAIT) < 0 && errno != ETOOMANYREFS) return 4;
    }
    if (side.port->send(*link, FrameHeader{0, 1, 0, 0, memory->segment_id, 0}, nullptr) != TW_OK) return 5;
    if (!progress_until({side.port.get()}, [&] { return side.sink.frames == 1 || side.sink.lost != 0; })) return 6;
    char bytes[8];
    while (recv(pair[1], bytes, sizeof bytes, MSG_DONTWAIT) >= 0) {
    }
    if (!progress_until({side.port.get()}, [&] { return side.sink.frames == 2 || side.sink.lost != 0; })) return 7;
    side.port->close(*link, true);
    return side.sink.lost;
  });
  Side side;
  Link* link = connect_over(side, child.socket(), false);
  uint64_t segment = 0;
  side.sink.frame = [&](Link&, const FrameHeader& header, const std::byte*) { segment = header.a; };
  ASSERT_TRUE(progress_until({side.port.get()}, [&] { return segment != 0; }));
  Mapping* mapping = nullptr;
  const Deadline meanwhile(100 * kMillisecond);
  while (!meanwhile.passed()) {
    ASSERT_EQ(side.port->import(*link, segment, &mapping), TW_IN_PROGRESS);
    side.port->progress(8);
  }
  ASSERT_EQ(side.port->send(*link, FrameHeader{0, 1, 0, 0, 0, 0}, nullptr), TW_OK);
  EXPECT_EQ(import(*side.port, *link, segment, &mapping), TW_OK) << last_error();
  EXPECT_EQ(side.sink.lost, 0);
  EXPECT_EQ(side.port->send(*link, FrameHeader{0, 1, 0, 0, 0, 0}, nullptr), TW_OK);
  EXPECT_EQ(child.wait(), 0);
}

// ------------------------------------------------------------------------------------------------ sleep

bool readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, 0) == 1;
}

/// Every peer may write to the doorbell, also that its owner is awake.
TEST(ShmLimits, APeerKeepsUsAsleepForAMomentOnly) {
  Hostile h;
  Side other;
  Link *la, *lb;
  connect_sides(other, h.side, &la, &lb);
  ASSERT_EQ(h.side.port->arm(), TW_OK);
  h.bells().sleeping = 0;
  ASSERT_EQ(other.port->send(*la, FrameHeader{0, 1, 0, 0, 0, 0}, nullptr), TW_OK);
  EXPECT_FALSE(readable(h.side.port->fd())) << "what this test is about";
  EXPECT_LE(h.side.port->longest_sleep.load(), kSecond);
  h.side.port->progress(8);
  EXPECT_EQ(h.side.sink.frames, 1u);
}

TEST(ShmLimits, APortWithoutOtherProcessesSleepsAsLongAsItLikes) {
  Side side;
  ASSERT_EQ(side.port->arm(), TW_OK);
  EXPECT_EQ(side.port->longest_sleep.load(), UINT64_MAX);
  {
    HostileLink one(side);
    side.port->progress(8);
    ASSERT_EQ(side.port->arm(), TW_OK);
    EXPECT_LE(side.port->longest_sleep.load(), kSecond);
    side.port->close(*one.link, false);
  }
  side.port->progress(8);
  EXPECT_TRUE(comes([&] { return side.port->arm() == TW_OK || (side.port->progress(8), false); }));
  EXPECT_EQ(side.port->longest_sleep.load(), UINT64_MAX);
}

/// ... and that no ring has rung.
TEST(ShmLimits, FramesWhoseBellWasTakenAwayAreFound) {
  constexpr size_t kLinks = 32;
  Hostile h;
  Side other;
  std::vector<Link*> out(kLinks), in(kLinks);
  for (size_t i = 0; i < kLinks; ++i) connect_sides(other, h.side, &out[i], &in[i]);
  ASSERT_TRUE(progress_until({h.side.port.get()}, [&] {
    other.port->send(*out[5], FrameHeader{0, 1, 0, 0, 0, 0}, nullptr);
    return h.side.shm().hot_rings() <= 1;
  }));
  while (h.side.port->progress(64) != 0) {
  }
  for (const bool sleeps : {false, true}) {
    h.side.sink.frames = 0;
    ASSERT_EQ(other.port->send(*out[sleeps ? 7 : 9], FrameHeader{0, 1, 0, 0, 0, 0}, nullptr), TW_OK);
    std::memset(h.bells().words, 0, sizeof h.bells().words);
    h.bells().summary = 0;
    const Deadline deadline(10 * kSecond);
    while (h.side.sink.frames == 0 && !deadline.passed()) {
      if (sleeps && h.side.port->arm() == TW_OK) {
        pollfd one{h.side.port->fd(), POLLIN, 0};
        poll(&one, 1, int(h.side.port->longest_sleep.load() / kMillisecond));
      }
      h.side.port->progress(8);
    }
    EXPECT_EQ(h.side.sink.frames, 1u) << sleeps;
  }
}

}  // namespace
}  // namespace thalweg::impl::test
