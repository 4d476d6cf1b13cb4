// SPDX-License-Identifier: Apache-2.0
// Peers that are nothing but shared memory and the other end of a control channel: they may store and say anything.
#pragma once
#include <sys/resource.h>

#include "memory/segment.hpp"
#include "unit/transports/shm_pair.hpp"

namespace thalweg::impl::test {

/// A link whose other end is raw shared memory.
struct HostileLink {
  Segment rings;
  shm::OwnDoorbell doorbell;
  shm::PeerDoorbell theirs;   // the port's
  Segment doorbell_of_port;   // the same, to be written to
  UniqueFd socket, received;  // our end; the port's again, to look at what it has not read
  Link* link = nullptr;
  shm::Connection& memory() { return *reinterpret_cast<shm::Connection*>(rings.data()); }
  shm::Direction& incoming() { return memory().direction[0]; }
  shm::DoorbellMemory& bells() { return *reinterpret_cast<shm::DoorbellMemory*>(doorbell_of_port.data()); }
  explicit HostileLink(Side& side, int send_buffer = 0) {
    EXPECT_EQ(Segment::create("hostile", sizeof(shm::Connection), true, false, &rings), TW_OK);
    EXPECT_EQ(doorbell.open(), TW_OK);
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    if (send_buffer != 0) {
      EXPECT_EQ(setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer), 0);
    }
    socket = UniqueFd(fds[0]);
    received = UniqueFd(dup(fds[1]));
    LinkInit init;
    init.socket = UniqueFd(fds[1]);
    shm::SetupBody body{};
    body.magic = shm::kSetupMagic;
    body.version = shm::kSetupVersion;
    body.segment_size = sizeof(shm::Connection);
    init.theirs.bytes.resize(sizeof body);
    std::memcpy(init.theirs.bytes.data(), &body, sizeof body);
    for (int fd : {doorbell.segment().fd(), doorbell.ringer_fd(), rings.fd()}) init.theirs.fds.emplace_back(dup(fd));
    EXPECT_EQ(side.port->answer(init.peer, init.theirs, init.mine), TW_OK) << last_error();
    EXPECT_EQ(theirs.open(UniqueFd(dup(init.mine.fds[0].get())), UniqueFd(dup(init.mine.fds[1].get()))), TW_OK);
    EXPECT_EQ(Segment::open(UniqueFd(dup(init.mine.fds[0].get())), shm::kDoorbellBytes, &doorbell_of_port), TW_OK);
    EXPECT_EQ(side.port->establish(std::move(init), &link), TW_OK) << last_error();
  }
};

struct Victim {
  Side side;
};
struct Hostile : Victim, HostileLink {
  explicit Hostile(int send_buffer = 0) : HostileLink(side, send_buffer) {}
};

/// While it lives, this process gets no new descriptor.
struct NoDescriptors {
  rlimit before{};
  UniqueFd lowest{dup(0)};
  NoDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    // All below are in use. Not 0: asked for a number from there on, fcntl would call it invalid.
    const rlimit none{4, before.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before); }
};

}  // namespace thalweg::impl::test
