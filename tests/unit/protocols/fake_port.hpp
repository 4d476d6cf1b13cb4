// SPDX-License-Identifier: Apache-2.0
// A port in memory for tests of the engine: links deliver in order, refuse at random, report references late, and die on
// demand. What it may do is set by FakeOptions, so that every feature bit is tested with and without.
#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "../../fixtures/copy_pieces.hpp"
#include "memory/registry.hpp"
#include "protocols/engine.hpp"

namespace thalweg::test {

using namespace thalweg::impl;

struct FakeOptions {
  uint32_t features = 0;
  uint32_t copy_max = 4096, fragment = 4096, reference_max = 1u << 20;
  double refuse = 0;     // probability of TW_AGAIN
  double copied = 0.5;   // ... that a body by reference is read at once
  size_t capacity = 64;  // frames under way per link
  bool land = true;      // ask for destinations (stream transports)
  bool kernel_fails = false;
  bool import_slow = false;  // an import is answered by this side's next progress
  bool offers = false;       // of receives
};

class FakePort;

struct FakeLink : Link {
  FakePort* owner = nullptr;
  FakePort* remote_port = nullptr;
  FakeLink* remote = nullptr;
  bool dead = false;
  size_t under_way = 0;  // frames sent and not yet delivered
  std::vector<std::byte> staging;
  std::shared_ptr<std::array<OfferTable, 2>> tables;  // null: none
  unsigned side = 0;
  uint64_t taken = 0;             // frames that were handed over here
  std::vector<FrameHeader> sent;  // from here
};

class FakePort final : public Port {
 public:
  FakePort(Sink& sink, const FakeOptions& options, uint64_t seed) : sink_(sink), options_(options), random_(seed) {}
  ~FakePort() override {
    for (auto& link : links_) {
      cut(*link);
      if (link->remote == nullptr) continue;
      link->remote->remote = nullptr;  // the last one has no peer to notify
      link->remote->remote_port = nullptr;
    }
  }

  static void connect(FakePort& a, FakePort& b, FakeLink** to_b, FakeLink** to_a) {
    *to_b = a.make_link();
    *to_a = b.make_link();
    (*to_b)->remote = *to_a;
    (*to_b)->remote_port = &b;
    (*to_a)->remote = *to_b;
    (*to_a)->remote_port = &a;
    if (!a.options_.offers) return;
    (*to_b)->tables = (*to_a)->tables = std::make_shared<std::array<OfferTable, 2>>();
    (*to_a)->side = 1;
  }

  const char* name() const override { return "fake"; }
  Status offer(const PeerIdentity&, SetupMessage&) override { return TW_OK; }
  Status answer(const PeerIdentity&, const SetupMessage&, SetupMessage&) override { return TW_OK; }
  Status establish(LinkInit&&, Link**) override { return TW_ERR_UNSUPPORTED; }

  Status send(Link& link, const FrameHeader& header, const void* body) override {
    FakeLink& mine = static_cast<FakeLink&>(link);
    if (mine.dead) return TW_ERR_PEER_LOST;
    if (header.length > link.copy_max) std::abort();  // the engine broke the contract
    if (std::exchange(lose_at_send, false)) {
      cut(mine);
      sink_.on_lost(link, TW_ERR_PEER_LOST, "the fake connection broke");
      return TW_ERR_PEER_LOST;
    }
    if (delivering_data_) ++sent_while_delivering_data;
    if (full(mine)) return TW_AGAIN;
    const std::byte* bytes = static_cast<const std::byte*>(body);
    deliver(mine, header, {bytes, bytes + header.length});
    return TW_OK;
  }
  std::byte* reserve(Link& link, size_t n) override {
    FakeLink& mine = static_cast<FakeLink&>(link);
    if (n > link.copy_max) std::abort();
    if (mine.dead || full(mine)) return nullptr;
    mine.staging.assign(n + kGuard, kGuarded);
    return mine.staging.data();
  }
  void commit(Link& link, const FrameHeader& header) override {
    FakeLink& mine = static_cast<FakeLink&>(link);
    if (header.length + kGuard != mine.staging.size()) std::abort();
    static const std::vector<std::byte> guard(kGuard, kGuarded);
    if (std::memcmp(mine.staging.data() + header.length, guard.data(), kGuard) != 0) std::abort();  // written past its end
    mine.staging.resize(header.length);
    deliver(mine, header, std::move(mine.staging));
  }
  Status send_reference(Link& link, const FrameHeader& header, const iovec* pieces, size_t count, void* token) override {
    FakeLink& mine = static_cast<FakeLink&>(link);
    if (mine.dead) return TW_ERR_PEER_LOST;
    if (header.length > link.reference_max) std::abort();
    if (full(mine)) return TW_AGAIN;
    if (chance(options_.copied)) {
      std::vector<std::byte> body;
      for (size_t i = 0; i < count; ++i) {
        const std::byte* from = static_cast<const std::byte*>(pieces[i].iov_base);
        body.insert(body.end(), from, from + pieces[i].iov_len);
      }
      deliver(mine, header, std::move(body));
      return TW_OK;
    }
    // The memory is read when the frame is delivered, and free when this side progresses after that.
    Delivery delivery{mine.remote, header, {}, {pieces, pieces + count}, &mine, token, false};
    ++mine.under_way;
    note(mine, header);
    ++reading;
    mine.remote_port->inbox_.push_back(std::move(delivery));
    last_token = token;
    return TW_IN_PROGRESS;
  }
  void withdraw(Link&, std::byte*) override {}

  Status import(Link& link, uint64_t segment, Mapping** mapping) override {
    auto found = segments.find(segment);
    if (found == segments.end()) return TW_ERR_STALE;
    if (without_descriptors) return TW_ERR_NO_DESCRIPTORS;
    if (options_.import_slow && !answered_[segment]) {
      asked_[segment] = &link;
      return TW_IN_PROGRESS;
    }
    *mapping = &found->second;
    return TW_OK;
  }
  /// Of memory that `lender` lends, to any device of this process.
  Status import_device(Link& link, uint64_t segment, Device& device, Mapping** mapping) override {
    ++device_imports;
    if (lender == nullptr) return Port::import_device(link, segment, device, mapping);
    if (options_.import_slow && !answered_[segment]) {
      asked_[segment] = &link;
      return TW_IN_PROGRESS;
    }
    Mapping& found = on_devices_[{segment, &device}];
    *mapping = &found;
    if (found.device != nullptr) return TW_OK;
    std::vector<ExportedMemory> pieces;
    if (const Status status = lender->export_device_segment(segment, &pieces); status != TW_OK) return status;
    if (const Status status = device.import_memory(pieces, &found.device_address); status != TW_OK) return status;
    found.device = &device;
    for (const ExportedMemory& piece : pieces) found.length += piece.handle.length;
    return TW_OK;
  }
  OfferTables offers(Link& link) override {
    const auto& mine = static_cast<FakeLink&>(link);
    return mine.tables == nullptr ? OfferTables{} : OfferTables{&(*mine.tables)[mine.side], &(*mine.tables)[1 - mine.side]};
  }
  uint64_t taken(const Link& link) override { return static_cast<const FakeLink&>(link).taken; }
  bool any_behind(const Link& link, uint64_t taken, FrameTest test, const void* what) override {
    const auto& sent = static_cast<const FakeLink&>(link).sent;
    return taken > sent.size() || std::any_of(sent.begin() + static_cast<std::ptrdiff_t>(taken), sent.end(),
                                              [&](const FrameHeader& header) { return test(header, what); });
  }
  unsigned take(unsigned budget, FrameTest test) override {
    unsigned events = 0;
    while (budget-- != 0 && !inbox_.empty() && !inbox_.front().loss && test(inbox_.front().header, nullptr)) {
      Delivery delivery = std::move(inbox_.front());
      inbox_.pop_front();
      ++events;
      hand_over(delivery);
    }
    return events;
  }
  int64_t read_peer(Link&, const iovec* local, size_t locals, const iovec* remote, size_t remotes) override {
    return copy(local, locals, remote, remotes, true);
  }
  int64_t write_peer(Link&, const iovec* local, size_t locals, const iovec* remote, size_t remotes) override {
    return copy(local, locals, remote, remotes, false);
  }

  unsigned progress(unsigned budget) override {
    unsigned events = 0;
    ++turns;
    for (auto& [segment, link] : std::exchange(asked_, {})) {
      answered_[segment] = true;
      if (!static_cast<FakeLink*>(link)->dead) sink_.on_import(*link, segment);
    }
    while (!sent_.empty()) {
      auto [link, token] = sent_.front();
      sent_.pop_front();
      if (!link->dead) sink_.on_sent(*link, token, TW_OK);
      ++events;
    }
    while (budget-- != 0 && !inbox_.empty()) {
      Delivery delivery = std::move(inbox_.front());
      inbox_.pop_front();
      ++events;
      hand_over(delivery);
    }
    return events;
  }
  int fd() const override { return -1; }
  Status arm() override { return inbox_.empty() && sent_.empty() ? TW_OK : TW_ERR_BUSY; }
  void wake() override {}
  void close(Link& link, bool) override {
    ++closed;
    parted += link.parted;
    cut(static_cast<FakeLink&>(link));
  }
  size_t queued(const Link&) const override { return 0; }

  /// The connection breaks: both sides learn it behind what is under way.
  void lose(FakeLink& link) {
    if (link.dead) return;
    inbox_.push_back({&link, {}, {}, {}, nullptr, nullptr, true});
    cut(link);
    link.dead = false;  // until it is reported
  }
  /// As new, but for the order of chance. No engine has a link of it.
  void forget() {
    inbox_.clear();
    sent_.clear();
    accepted_.clear();
    links_.clear();
    reading = 0;
  }
  /// A frame out of nowhere.
  void inject(FakeLink& link, const FrameHeader& header, const std::vector<std::byte>& body) {
    inbox_.push_back({&link, header, body, {}, nullptr, nullptr, false});
  }
  std::map<uint64_t, Mapping> segments;  // of peers, importable here
  Registry* lender = nullptr;            // whose device memory is importable here; null: none
  unsigned device_imports = 0;           // asked for
  /// The devices let go of what was imported.
  void release_imports() {
    for (auto& [key, mapping] : on_devices_) {
      if (mapping.device != nullptr) mapping.device->release_import(mapping.device_address);
    }
    on_devices_.clear();
  }
  unsigned kernel_copies = 0;
  unsigned turns = 0;                       // calls of progress()
  size_t allowed = SIZE_MAX;                // frames that may still go
  unsigned closed = 0;                      // links
  unsigned parted = 0;                      // of them those whose peer was not to be waited for
  bool without_descriptors = false;         // imports fail
  bool lose_at_send = false;                // the next send() finds its link dead, and says so first
  unsigned sent_while_delivering_data = 0;  // frames
  void* last_token = nullptr;               // of what went by reference
  size_t reading = 0;                       // bodies by reference that are still to be read

  /// Of the frames of this type that were accepted: how many, their body bytes, and those accepted before the last `mark`.
  size_t frames(Frame type) const {
    return static_cast<size_t>(
        std::count_if(accepted_.begin(), accepted_.end(), [&](const auto& f) { return f.first == type; }));
  }
  size_t payload(Frame type) const { return payload(type, accepted_.size()); }
  size_t payload_before_last(Frame mark, Frame type) const {
    size_t end = accepted_.size();
    while (end > 0 && accepted_[end - 1].first != mark) --end;
    return payload(type, end);
  }

 private:
  static constexpr size_t kGuard = 4096;  // behind what was reserved
  static constexpr std::byte kGuarded{0xa5};
  struct Delivery {
    FakeLink* to;
    FrameHeader header;
    std::vector<std::byte> body;
    std::vector<iovec> pieces;  // by reference
    FakeLink* from;
    void* token;
    bool loss;
  };

  FakeLink* make_link() {
    links_.push_back(std::make_unique<FakeLink>());
    FakeLink* link = links_.back().get();
    link->port = this;
    link->owner = this;
    link->features = options_.features;
    link->copy_max = options_.copy_max;
    link->fragment = options_.fragment;
    link->reference_max = options_.reference_max;
    return link;
  }
  size_t payload(Frame type, size_t end) const {
    size_t sum = 0;
    for (size_t i = 0; i < end; ++i) sum += accepted_[i].first == type ? accepted_[i].second : 0;
    return sum;
  }
  void note(FakeLink& link, const FrameHeader& header) {
    if (link.tables != nullptr) link.sent.push_back(header);
    if (allowed != SIZE_MAX) --allowed;
    accepted_.emplace_back(static_cast<Frame>(header.type & ~kMustUnderstand), header.length);
  }
  bool chance(double probability) { return std::uniform_real_distribution<>(0, 1)(random_) < probability; }
  bool full(FakeLink& link) { return link.under_way >= options_.capacity || allowed == 0 || chance(options_.refuse); }
  void deliver(FakeLink& mine, const FrameHeader& header, std::vector<std::byte> body) {
    ++mine.under_way;
    note(mine, header);
    if (!mine.remote->dead)
      mine.remote_port->inbox_.push_back({mine.remote, header, std::move(body), {}, nullptr, nullptr, false});
  }
  /// Nothing is sent or delivered on this link any more; the other side learns it behind what is under way.
  void cut(FakeLink& link) {
    if (link.dead) return;
    link.dead = true;
    if (link.remote == nullptr) return;
    std::erase_if(inbox_, [&link](const Delivery& d) { return d.to == &link && !d.loss; });
    std::erase_if(sent_, [&link](const auto& sent) { return sent.first == &link; });
    // References of this link must not be read any more: they are handed over now.
    for (Delivery& d : link.remote_port->inbox_) {
      if (d.from == &link) gather(d);
    }
    if (!link.remote->dead) link.remote_port->inbox_.push_back({link.remote, {}, {}, {}, nullptr, nullptr, true});
  }
  static void gather(Delivery& delivery) {
    for (const iovec& piece : delivery.pieces) {
      const std::byte* from = static_cast<const std::byte*>(piece.iov_base);
      delivery.body.insert(delivery.body.end(), from, from + piece.iov_len);
    }
    delivery.pieces.clear();
    --delivery.from->owner->reading;
    delivery.from = nullptr;
  }
  void hand_over(Delivery& delivery) {
    FakeLink& link = *delivery.to;
    if (delivery.loss) {
      if (link.dead) return;
      std::erase_if(sent_, [&link](const auto& sent) { return sent.first == &link; });
      link.dead = true;
      return sink_.on_lost(link, TW_ERR_PEER_LOST, "the fake connection broke");
    }
    if (delivery.from != nullptr) {
      FakeLink* from = delivery.from;
      gather(delivery);
      if (!from->dead) from->owner->sent_.emplace_back(from, delivery.token);
    }
    if (link.remote->under_way != 0) --link.remote->under_way;
    if (link.dead) return;
    ++link.taken;
    std::byte* destination = nullptr;
    if (options_.land && (options_.features & kLinkByReference) != 0 && delivery.header.length >= 64) {
      destination = sink_.destination(link, delivery.header, delivery.body.data(), std::min<size_t>(delivery.body.size(), 16));
    }
    if (destination != nullptr) {
      std::memcpy(destination, delivery.body.data(), delivery.body.size());
      sink_.on_landed(link, delivery.header);
    } else {
      delivering_data_ = static_cast<Frame>(delivery.header.type & kFrameTypeMask) == Frame::data;
      sink_.on_frame(link, delivery.header, delivery.body.data());
      delivering_data_ = false;
    }
  }
  int64_t copy(const iovec* local, size_t locals, const iovec* remote, size_t remotes, bool read) {
    if (options_.kernel_fails) return TW_ERR_IO;
    ++kernel_copies;
    return copy_pieces(local, locals, remote, remotes, read);
  }

  Sink& sink_;
  FakeOptions options_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<FakeLink>> links_;
  std::deque<Delivery> inbox_;
  std::deque<std::pair<FakeLink*, void*>> sent_;
  bool delivering_data_ = false;
  std::map<uint64_t, Link*> asked_;
  std::map<uint64_t, bool> answered_;
  std::map<std::pair<uint64_t, Device*>, Mapping> on_devices_;
  std::vector<std::pair<Frame, uint32_t>> accepted_;  // type and body length, in order
};

/// Two engines and a connection between them. `a` and `b` stand for the endpoint handles as well.
struct World {
  explicit World(const FakeOptions& options = {}, uint64_t seed = 1, uint64_t budget = 64u << 20, bool multi = false,
                 const PersistentOptions& persistent = {}, uint64_t header_silence_ns = EngineOptions().header_silence_ns)
      : random(seed), registry_a(11), registry_b(22) {
    EngineOptions engine_options;
    engine_options.unexpected_budget = budget;
    engine_options.multi_threaded = multi;
    engine_options.persistent = persistent;
    engine_options.header_silence_ns = header_silence_ns;
    engine_options.registry = &registry_a;
    left = std::make_unique<Engine>(engine_options);
    engine_options.registry = &registry_b;
    right = std::make_unique<Engine>(engine_options);
    auto port_a = std::make_unique<FakePort>(*left, options, seed * 2);
    auto port_b = std::make_unique<FakePort>(*right, options, seed * 2 + 1);
    pa = port_a.get();
    pb = port_b.get();
    left->add_port(std::move(port_a));
    right->add_port(std::move(port_b));
    add();
  }
  void connect() {
    left->attach(a, *la);
    right->attach(b, *lb);
  }
  ~World() { remove(); }
  /// Other peers and another connection between the same engines; connect() comes next.
  void begin_again() {
    remove();
    pa->forget();
    pb->forget();
    for (Peer* peer : {&a, &b}) {
      std::destroy_at(peer);
      std::construct_at(peer);
    }
    add();
  }
  void turn() {
    left->progress();
    right->progress();
  }
  /// Turns until the request is done; false when it does not end.
  bool finish(tw_request request, unsigned turns = 200000) {
    for (unsigned i = 0; i < turns; ++i) {
      if (Engine::test(request) != TW_IN_PROGRESS) return true;
      turn();
    }
    return Engine::test(request) != TW_IN_PROGRESS;
  }
  void settle(unsigned turns = 200) {
    for (unsigned i = 0; i < turns; ++i) turn();
  }

  std::mt19937_64 random;
  Registry registry_a, registry_b;
  Peer a, b;  // a: left's view of right
  std::unique_ptr<Engine> left, right;
  FakePort *pa = nullptr, *pb = nullptr;
  FakeLink *la = nullptr, *lb = nullptr;

 private:
  void add() {
    left->add(a);
    right->add(b);
    a.endpoint = reinterpret_cast<tw_endpoint*>(&a);
    b.endpoint = reinterpret_cast<tw_endpoint*>(&b);
    FakePort::connect(*pa, *pb, &la, &lb);
    la->peer.incarnation = 22;
    lb->peer.incarnation = 11;
  }
  void remove() {
    left->remove(a);
    right->remove(b);
  }
};

}  // namespace thalweg::test
