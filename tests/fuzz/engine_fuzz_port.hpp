// SPDX-License-Identifier: Apache-2.0
// What the stateful target of the engine stands on: the input as a source of decisions, buffers that may be touched only
// while an operation has them, and a port whose other end is the input. The port learns from sent frames what a peer learns:
// names of live runs.
#pragma once
#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "protocols/engine.hpp"

namespace thalweg::fuzz {

using namespace thalweg::impl;

inline void require(bool held) {
  if (!held) std::abort();
}

/// Zeros behind the end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  unsigned below(unsigned n) { return byte() % n; }
  uint64_t word() {
    uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word = word << 8 | byte();
    return word;
  }
  /// Small numbers, powers of two and their neighbours, or anything.
  uint64_t number() {
    const uint8_t how = byte();
    if (how < 128) return how;
    if (how < 192) return (uint64_t{1} << (how % 64)) + byte() - 128;
    if (how < 240) return uint64_t{byte()} << 8 | byte();
    return word();
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

/// Buffers of users. One that no operation has is poisoned, and so is what lies around each. Their memory is that of the
/// process: to map it anew for every input took longer than the engine did.
class Buffers {
 public:
  static constexpr size_t kCount = 24, kSmall = 512, kLarge = 200'000, kGap = 64;
  static constexpr size_t size(size_t i) { return i % 6 == 5 ? kLarge : kSmall; }
  Buffers() {
    size_t all = kGap;
    for (size_t i = 0; i < kCount; ++i) {
      at_[i] = all;
      all += size(i) + kGap;
    }
    static std::byte* const memory = [all] {
      auto* made = static_cast<std::byte*>(std::calloc(all, 1));
      require(made != nullptr);
      ASAN_POISON_MEMORY_REGION(made, all);
      return made;
    }();
    bytes_ = memory;
  }
  ~Buffers() {
    for (size_t i = 0; i < kCount; ++i)
      if (lent(i)) take_back(i);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  std::byte* at(size_t i) { return bytes_ + at_[i]; }
  bool lent(size_t i) const { return lent_[i]; }
  void lend(size_t i) {
    ASAN_UNPOISON_MEMORY_REGION(at(i), size(i));
    lent_[i] = true;
  }
  void take_back(size_t i) {
    ASAN_POISON_MEMORY_REGION(at(i), size(i));
    lent_[i] = false;
  }

 private:
  size_t at_[kCount] = {};
  bool lent_[kCount] = {};
  std::byte* bytes_ = nullptr;
};

class Wire;
struct WireLink : Link {
  Wire* wire = nullptr;
  bool dead = false;
  std::vector<std::byte> reserved;
  struct Reference {
    void* token;
    std::vector<iovec> pieces;
  };
  std::deque<Reference> references;
  // A body that is on its way straight to where destination() said.
  std::byte* destination = nullptr;
  FrameHeader destination_header{};
  uint32_t landed = 0;
  bool discard = false;
  struct Told {
    uint64_t op, at;  // at: where the next piece of its payload belongs
  };
  std::vector<Told> told;  // names of runs that were sent to this peer, the latest last
};

/// The other end is the input.
class Wire final : public Port {
 public:
  static constexpr size_t kReserveGuard = 64;
  Wire(Sink& sink, Input& input, uint32_t features) : sink_(sink), input_(input), features_(features) { segment.resize(4096); }
  WireLink& make_link() {
    WireLink& link = *links_.emplace_back(std::make_unique<WireLink>());
    link.port = this;
    link.wire = this;
    link.features = features_;
    link.copy_max = 4096;
    link.fragment = 4096;
    link.reference_max = 1u << 16;
    link.peer.incarnation = 11;
    return link;
  }
  const char* name() const override { return "fuzz"; }
  Status offer(const PeerIdentity&, SetupMessage&) override { return TW_OK; }
  Status answer(const PeerIdentity&, const SetupMessage&, SetupMessage&) override { return TW_OK; }
  Status establish(LinkInit&&, Link**) override { return TW_ERR_UNSUPPORTED; }

  Status send(Link& base, const FrameHeader& header, const void* body) override {
    WireLink& link = own(base);
    if (link.dead) return TW_ERR_PEER_LOST;
    require(header.length <= link.copy_max);
    if (refuses()) return TW_AGAIN;
    learn(link, header, static_cast<const std::byte*>(body), header.length);
    return TW_OK;
  }
  std::byte* reserve(Link& base, size_t n) override {
    WireLink& link = own(base);
    require(n <= link.copy_max);
    if (link.dead || refuses()) return nullptr;
    link.reserved.assign(n, std::byte{0});
    link.reserved.shrink_to_fit();
    return link.reserved.data();
  }
  void commit(Link& base, const FrameHeader& header) override {
    WireLink& link = own(base);
    require(header.length <= link.reserved.size());
    learn(link, header, link.reserved.data(), header.length);
  }
  Status send_reference(Link& base, const FrameHeader& header, const iovec* pieces, size_t count, void* token) override {
    WireLink& link = own(base);
    if (link.dead) return TW_ERR_PEER_LOST;
    require(header.length <= link.reference_max);
    if (refuses()) return TW_AGAIN;
    if ((header.flags & kFrameAck) != 0) learn(link, header, static_cast<const std::byte*>(pieces[0].iov_base), 8);
    link.references.push_back({token, {pieces, pieces + count}});
    return TW_IN_PROGRESS;
  }
  void withdraw(Link& base, std::byte* destination) override {
    WireLink& link = own(base);
    if (link.destination == destination) link.discard = true;
  }
  Status import(Link&, uint64_t id, Mapping** mapping) override {
    if (id % 4 != 1) return id % 4 == 0 ? TW_IN_PROGRESS : TW_ERR_STALE;
    mapped_.address = segment.data();
    mapped_.length = segment.size();
    *mapping = &mapped_;
    return TW_OK;
  }
  int64_t read_peer(Link&, const iovec* local, size_t locals, const iovec*, size_t) override {
    return copy(local, locals, true);
  }
  int64_t write_peer(Link&, const iovec* local, size_t locals, const iovec*, size_t) override {
    return copy(local, locals, false);
  }
  unsigned progress(unsigned) override { return 0; }
  int fd() const override { return -1; }
  Status arm() override { return TW_OK; }
  void wake() override {}
  void close(Link& base, bool) override { cut(own(base)); }
  size_t queued(const Link&) const override { return 0; }

  // ---- what the input does
  void deliver(WireLink& link, FrameHeader header, const std::vector<std::byte>& body) {
    if (link.dead || link.destination != nullptr) return;  // frames of a link come one after the other
    header.length = static_cast<uint32_t>(body.size());
    if ((features_ & kLinkByReference) != 0 && body.size() >= 64) {
      link.destination = sink_.destination(link, header, body.data(), 16);
      link.discard = false;
      link.landed = 0;
      link.destination_header = header;
      if (link.destination != nullptr) return;
    }
    // Exactly as long as it says, so that reads past it show.
    std::unique_ptr<std::byte[]> exact(new std::byte[std::max<size_t>(body.size(), 1)]);
    if (!body.empty()) std::memcpy(exact.get(), body.data(), body.size());
    if (body.empty()) ASAN_POISON_MEMORY_REGION(exact.get(), 1);
    sink_.on_frame(link, header, exact.get());
    ASAN_UNPOISON_MEMORY_REGION(exact.get(), std::max<size_t>(body.size(), 1));
  }
  /// More of the body that is landing; its end is reported.
  void land(WireLink& link, uint32_t n) {
    if (link.dead || link.destination == nullptr) return;
    n = std::min(n, link.destination_header.length - link.landed);
    if (!link.discard) std::memset(link.destination + link.landed, 0x5c, n);
    link.landed += n;
    if (link.landed != link.destination_header.length) return;
    const bool tell = !link.discard;
    link.destination = nullptr;
    if (tell) sink_.on_landed(link, link.destination_header);
  }
  void sent(WireLink& link) {
    if (link.dead || link.references.empty()) return;
    const WireLink::Reference reference = std::move(link.references.front());
    link.references.pop_front();
    for (const iovec& piece : reference.pieces) look(piece);
    sink_.on_sent(link, reference.token, TW_OK);
  }
  void lose(WireLink& link) {
    if (link.dead) return;
    cut(link);
    sink_.on_lost(link, TW_ERR_PEER_LOST, "the input broke it");
  }
  std::vector<std::byte> segment;  // of the peer, mapped here
  uint8_t refusing = 0;            // of 8 frames

 private:
  static WireLink& own(Link& link) { return static_cast<WireLink&>(link); }
  bool refuses() { return refusing != 0 && (turn_++ & 7) < refusing; }
  static void look(const iovec& piece) {
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < piece.iov_len; i += 61) sum = sum + static_cast<const uint8_t*>(piece.iov_base)[i];
  }
  static void cut(WireLink& link) {
    link.dead = true;
    link.references.clear();
    link.destination = nullptr;
  }
  int64_t copy(const iovec* local, size_t locals, bool in) {
    if (input_.byte() % 4 == 0) return TW_ERR_IO;
    int64_t moved = 0;
    for (size_t i = 0; i < locals; ++i) {
      if (in) {
        std::memset(local[i].iov_base, 0x6b, local[i].iov_len);
      } else {
        look(local[i]);
      }
      moved += static_cast<int64_t>(local[i].iov_len);
    }
    return moved;
  }
  static uint64_t word_at(const std::byte* body, size_t at) {
    uint64_t word;
    std::memcpy(&word, body + at, 8);
    return word;
  }
  void learn(WireLink& link, const FrameHeader& header, const std::byte* body, size_t length) {
    uint64_t op = 0, at = 0;
    switch (static_cast<Frame>(header.type & kFrameTypeMask)) {
      case Frame::tagged:
        if ((header.flags & kFrameSync) != 0) op = word_at(body, length - 8);
        break;
      case Frame::cts:
        at = word_at(body, offsetof(CtsBody, offset));
        [[fallthrough]];
      case Frame::tagged_rts:
      case Frame::am_rts:
      case Frame::get:
      case Frame::atomic:
        op = word_at(body, 0);
        break;
      case Frame::put:
      case Frame::put_layout:
      case Frame::put_blocks:
      case Frame::signal:
        if ((header.flags & kFrameAck) != 0) op = word_at(body, 0);
        break;
      case Frame::am_long_rts:
        op = word_at(body, sizeof(FirstBody));
        break;
      case Frame::am_ask:
      case Frame::flush:
      case Frame::get_blocks:
        op = header.a;
        break;
      default:
        break;
    }
    const bool known = std::any_of(link.told.begin(), link.told.end(), [op](const auto& one) { return one.op == op; });
    if (op == 0 || known) return;
    if (link.told.size() >= 16) link.told.erase(link.told.begin());
    link.told.push_back({op, at});
  }

  Sink& sink_;
  Input& input_;
  uint32_t features_;
  unsigned turn_ = 0;
  Mapping mapped_;
  std::vector<std::unique_ptr<WireLink>> links_;
};

}  // namespace thalweg::fuzz
