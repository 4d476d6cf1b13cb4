// SPDX-License-Identifier: Apache-2.0
// A shm connection whose whole shared memory a hostile peer writes, before and between polls. Nothing may crash, read outside
// the mapping (the address sanitizer and the mapping's end tell) or loop for ever (libFuzzer's -timeout tells).
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
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
  std::byte* destination(Link&, const FrameHeader&, const std::byte*, size_t) override { return nullptr; }
  void on_landed(Link&, const FrameHeader&) override {}
  void on_sent(Link&, void*, Status) override {}
  void on_lost(Link&, Status status, const char*) override {
    if (lost || status != TW_ERR_PROTOCOL) abort();
    lost = true;
  }
  void on_import(Link&, uint64_t) override {}
};

constexpr size_t kPage = 4096;

/// Always the same, so that a run can be repeated.
const std::byte* noise() {
  static const auto made = [] {
    std::array<std::byte, 2 * kPage> bytes;
    uint64_t state = 1;
    for (std::byte& byte : bytes) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      byte = std::byte(state >> 56);
    }
    return bytes;
  }();
  return made.data();
}

/// The input first, then noise from `at` on: a page, again and again, because runs should be many.
class Scribble {
 public:
  Scribble(const uint8_t* data, size_t size, size_t at) {
    const size_t given = std::min(kPage, 4 * size);
    std::memcpy(page_ + given, noise() + at % kPage, kPage - given);
    for (size_t to = 0; to < given; to += size) std::memcpy(page_ + to, data, std::min(size, given - to));
  }
  void over(void* memory, size_t length) const {
    auto* to = static_cast<std::byte*>(memory);
    for (size_t at = 0; at < length; at += kPage) std::memcpy(to + at, page_, std::min(kPage, length - at));
  }

 private:
  std::byte page_[kPage];
};

shm::SetupBody setup_body() {
  shm::SetupBody body{};
  body.magic = shm::kSetupMagic;
  body.version = shm::kSetupVersion;
  body.membarrier = 1;
  body.segment_size = sizeof(shm::Connection);
  return body;
}

/// All but the bodies that this side sends: it never reads those.
constexpr size_t kRead = offsetof(shm::Connection, direction[1].bulk);

/// Lengths that mostly fit move the bulk position through all its places.
void make_plausible(shm::Connection& memory) {
  for (shm::Slot& slot : memory.direction[0].slots) slot.word = (slot.word & ~uint64_t(0xffffffff)) | uint32_t(slot.a % 17000);
}

/// What outlives a run: the port and its answer to set-ups, and the memory and the doorbell of its peers.
struct Rig {
  ReadingSink sink;
  std::unique_ptr<Port> port;
  Segment rings;
  shm::OwnDoorbell doorbell;
  LinkInit init;
  Rig() {
    PortOptions options;
    options.sink = &sink;
    if (shm::ShmPort::open(options, &port) != TW_OK || doorbell.open() != TW_OK) abort();
    if (Segment::create("fuzz", sizeof(shm::Connection), true, false, &rings) != TW_OK) abort();
    const shm::SetupBody body = setup_body();
    init.theirs.bytes.resize(sizeof body);
    std::memcpy(init.theirs.bytes.data(), &body, sizeof body);
    pass_descriptors();
    if (port->answer(init.peer, init.theirs, init.mine) != TW_OK) abort();
  }
  void pass_descriptors() {
    init.theirs.fds.clear();
    for (int fd : {doorbell.segment().fd(), doorbell.ringer_fd(), rings.fd()}) init.theirs.fds.emplace_back(dup(fd));
  }
  /// All the port reads of the connection's memory is zero; what bodies there are from the last run stays.
  Link* connect() {
    for (shm::Direction& direction : memory().direction) std::memset(&direction, 0, offsetof(shm::Direction, bulk));
    pass_descriptors();
    init.adopted = nullptr;
    Link* link = nullptr;
    if (port->establish(std::move(init), &link) != TW_OK) abort();  // takes the descriptors and no more
    return link;
  }
  shm::Connection& memory() { return *reinterpret_cast<shm::Connection*>(rings.data()); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Rig rig;
  ReadingSink& sink = rig.sink;
  Port* const port = rig.port.get();
  shm::Connection& memory = rig.memory();
  sink.lost = false;
  Link* link = rig.connect();
  const size_t seed = size + (size != 0 ? data[0] : 0);
  const bool plausible = size != 0 && data[size - 1] % 2 == 0;
  // The words that are looked at first get the input itself; then everything does.
  Scribble(data, size, seed).over(memory.direction[0].slots, sizeof memory.direction[0].slots);
  if (plausible) make_plausible(memory);
  const int sleeps = size != 0 ? data[size - 1] / 2 % 8 : 0;  // a round
  const std::byte body[64] = {};
  bool lost = false;  // in the round before: what is lost is used once more, then no more
  for (int round = 0; round < 8 && !lost; ++round) {
    lost = sink.lost;
    port->progress(64);
    for (uint32_t n : {8u, 64u, 8u, 40u}) port->send(*link, FrameHeader{n, 1, 0, 0, 0, 0}, body);
    if (round == sleeps && port->arm() != TW_OK) port->progress(8);
    if (round == 2) Scribble(data, size, seed + 777).over(&memory, kRead);
    if (round > 3 || (round == 2 && plausible)) make_plausible(memory);
  }
  port->close(*link, false);
  return 0;
}
