// SPDX-License-Identifier: Apache-2.0
// A shm connection whose whole shared memory a hostile peer writes, before and between polls. Nothing may crash, read outside
// the mapping (the address sanitizer and the mapping's end tell) or loop for ever (libFuzzer's -timeout tells).
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "memory/segment.hpp"
#include "transports/shm/port.hpp"

namespace {

using namespace thalweg::impl;

class ReadingSink final : public Sink {
 public:
  uint64_t sum = 0;
  bool lost = false;
  void on_frame(Link& link, const FrameHeader& header, const std::byte* body) override {
    if (header.length > link.copy_max || (header.type & 0x80) != 0) abort();
    for (uint32_t i = 0; i < header.length; i += 61) sum += uint64_t(body[i]);
    if (header.length != 0) sum += uint64_t(body[header.length - 1]);
  }
  std::byte* landing(Link&, const FrameHeader&, const std::byte*, size_t) override { return nullptr; }
  void on_landed(Link&, const FrameHeader&) override {}
  void on_sent(Link&, void*, Status) override {}
  void on_lost(Link&, Status status, const char*) override {
    if (lost || status != TW_ERR_PROTOCOL) abort();
    lost = true;
  }
  void on_import(Link&, uint64_t) override {}
};

/// Fills memory with the input, repeated and varied: a page of it, again and again, because runs should be many.
void scribble(std::byte* to, size_t length, const uint8_t* data, size_t size, uint64_t& state) {
  std::byte page[4096];
  for (size_t i = 0; i < sizeof page; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    page[i] = size != 0 && i < 4 * size ? std::byte(data[i % size]) : std::byte(state >> 56);
  }
  for (size_t at = 0; at < length; at += sizeof page) std::memcpy(to + at, page, std::min(sizeof page, length - at));
}

Link* connect(Port& port, Segment& rings, const shm::OwnBell& bell) {
  LinkInit init;
  shm::SetupBody body{};
  body.magic = shm::kSetupMagic;
  body.version = shm::kSetupVersion;
  body.membarrier = 1;
  body.segment_size = sizeof(shm::Connection);
  init.theirs.bytes.resize(sizeof body);
  std::memcpy(init.theirs.bytes.data(), &body, sizeof body);
  for (int fd : {bell.segment().fd(), bell.ringer_fd(), rings.fd()}) init.theirs.fds.emplace_back(dup(fd));
  Link* link = nullptr;
  if (port.answer(init.peer, init.theirs, init.mine) != TW_OK || port.establish(std::move(init), &link) != TW_OK) abort();
  return link;
}

/// What outlives a run: the port, and the memory and the bell of its peers.
struct Rig {
  ReadingSink sink;
  std::unique_ptr<Port> port;
  Segment rings;
  shm::OwnBell bell;
  Rig() {
    PortOptions options;
    options.sink = &sink;
    if (shm::ShmPort::open(options, &port) != TW_OK || bell.open() != TW_OK) abort();
    if (Segment::create("fuzz", sizeof(shm::Connection), true, false, &rings) != TW_OK) abort();
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Rig rig;
  auto& [sink, port, rings, bell] = rig;
  sink.lost = false;
  std::memset(rings.data(), 0, sizeof(shm::Connection));
  Link* link = connect(*port, rings, bell);
  auto& memory = *reinterpret_cast<shm::Connection*>(rings.data());
  uint64_t state = size + (size != 0 ? data[0] : 0);
  // The words that are looked at first get the input itself; then everything does.
  scribble(reinterpret_cast<std::byte*>(memory.direction[0].slots), sizeof memory.direction[0].slots, data, size, state);
  const std::byte body[64] = {};
  for (int round = 0; round < 8; ++round) {
    port->progress(64);
    for (uint32_t n : {8u, 64u, 8u, 40u}) port->send(*link, FrameHeader{n, 1, 0, 0, 0, 0}, body);
    if (port->arm() != TW_OK) port->progress(8);
    if (round == 2) scribble(reinterpret_cast<std::byte*>(&memory), sizeof memory, data, size, state);
    // Plausible lengths move the bulk position through all its places.
    if (round > 3)
      for (shm::Slot& slot : memory.direction[0].slots)
        slot.word = (slot.word & ~uint64_t(0xffffffff)) | uint32_t(slot.a % 17000);
  }
  port->close(*link, false);
  return 0;
}
