// SPDX-License-Identifier: Apache-2.0
// A whole engine with live runs in every phase, and a peer that lies. Each byte of the input decides what happens next: a
// post of this side, a look at a request, a cancel, a piece of a body that is landing, or a frame whose names are those of
// runs that the peer was sent, keys that are alive, or anything else.
//
// What must hold: no byte outside of a buffer that an operation has now (their memory is poisoned otherwise), each request
// ends once, what is held stays within the grant, and what waits for another, silent peer is not touched.
#include "engine_fuzz_port.hpp"
#include "memory/registry.hpp"
#include "protocols/active.hpp"
#include "protocols/blocks.hpp"
#include "protocols/bounce.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::fuzz {
namespace {

constexpr size_t kRequests = 20, kBlock = 40;

/// The memory that this side exports: that of the process, renewed where the last input released it.
struct Exports {
  Registry registry{22};
  void renew() {
    for (size_t i = 0; i < 3; ++i) {
      if (memory[i] != nullptr) continue;
      bytes[i].resize(i == 2 ? 8 : 512);
      const uint32_t access = i == 1 ? TW_MEMORY_READ : TW_MEMORY_ALL;
      require(registry.register_memory(bytes[i].data(), bytes[i].size(), access, &memory[i]) == TW_OK);
      KeyBody key{};
      require(registry.export_range(memory[i], 0, bytes[i].size(), access, &key) == TW_OK);
      rkeys[i] = key.rkey;
    }
  }
  void release(size_t i) {
    if (memory[i] == nullptr) return;
    require(registry.release(memory[i]) == TW_OK);
    memory[i] = nullptr;
    bytes[i] = {};  // an access from here on shows
  }
  std::vector<std::byte> bytes[3];
  tw_memory* memory[3] = {};
  uint64_t rkeys[3] = {};
};

Exports& exports_of_process() {
  static auto& made = *new Exports;
  made.renew();
  return made;
}

class World {
 public:
  World(Input& input) : input_(input), exports_(exports_of_process()) {
    EngineOptions options;
    options.registry = &exports_.registry;
    options.incarnation = 22;
    options.unexpected_budget = 8u << 20;
    engine_ = std::make_unique<Engine>(options);
    const uint8_t kind = input.byte();
    auto port = std::make_unique<Wire>(*engine_, input, kind & (kLinkMaps | kLinkSingleCopy | kLinkByReference));
    wire_ = port.get();
    wire_->refusing = (kind & 0x80) != 0 ? 3 : 0;
    engine_->add_port(std::move(port));
    for (Peer* peer : {&peer_, &silent_}) {
      engine_->add(*peer);
      WireLink& link = wire_->make_link();
      (peer == &peer_ ? link_ : other_) = &link;
      engine_->attach(*peer, link);
    }
    engine_->progress();
    for (uint16_t id = 1; id < 3; ++id) set_handler(*engine_, id, handler, this);
    import();
    start_silent();
  }
  ~World() {
    for (tw_am_data* data : kept_) impl::active_release(data);
    for (tw_message* message : messages_) receive(message, false);
    engine_->fail(peer_, TW_ERR_CLOSED, "the end of the input");
    engine_->progress();
    for (size_t i = 0; i < kRequests; ++i) {
      if (!used(i)) continue;
      // A receive from anybody goes on waiting.
      if (pending(i)) require(requests_[i].wild && engine_->cancel(requests_[i].request) == TW_OK);
      engine_->progress();
      look(i);
      require(!used(i));
    }
    for (tw_request request : silent_requests_) require(Engine::test(request) == TW_IN_PROGRESS);
    engine_->fail(silent_, TW_ERR_CLOSED, "the end of the input");
    for (tw_request request : silent_requests_) Engine::release(request);
    engine_->remove(peer_);
    engine_->remove(silent_);
    blocks_.reset();
    for (RemoteRegion* region : regions_) release_region(region);
    engine_.reset();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  bool alive() const { return peer_.state == TW_OK; }
  void step() {
    const uint8_t what = input_.byte();
    if (what < 64) {
      post(what % 16);
    } else if (what < 88) {
      manage(what % 8);
    } else {
      frame();
    }
    if (what % 4 != 3) engine_->progress();
    require(peer_.held_bytes <= peer_.granted_bytes || peer_.doomed || !alive());
    require(engine_->headers == 0 || engine_->granted <= engine_->options().unexpected_budget);
    require(engine_->left <= engine_->granted);
    for (size_t i = 0; i < kRequests; ++i) {
      if (used(i)) look(i);
    }
  }

 private:
  struct Request {
    tw_request request = 0;
    size_t buffer = Buffers::kCount;
    bool callback = false, called = false, wild = false;
    World* world = nullptr;
    uint64_t result = 0;
  };

  // ---- requests
  bool used(size_t i) const { return requests_[i].world != nullptr; }
  bool pending(size_t i) const {
    return requests_[i].callback ? !requests_[i].called : Engine::test(requests_[i].request) == TW_IN_PROGRESS;
  }
  void end(Request& request) {
    if (request.buffer != Buffers::kCount) buffers_.take_back(request.buffer);
    request = Request{};
  }
  void look(size_t i) {
    if (pending(i)) return;
    if (!requests_[i].callback) Engine::release(requests_[i].request);
    end(requests_[i]);
  }
  static void called(void* arg, tw_request, tw_status, const tw_recv_info*) {
    auto& request = *static_cast<Request*>(arg);
    require(request.world != nullptr && !request.called);
    request.called = true;
  }
  Request* free_request() {
    for (Request& one : requests_) {
      if (one.world == nullptr) return &one;
    }
    return nullptr;
  }
  size_t lend(bool large) {
    for (size_t i = 0; i < Buffers::kCount; ++i) {
      if (buffers_.lent(i) || (Buffers::size(i) == Buffers::kLarge) != large) continue;
      buffers_.lend(i);
      return i;
    }
    return Buffers::kCount;
  }
  /// Posts by `start`, with a buffer and a request or a callback.
  template <class Start>
  void post_with(bool large, bool wild, const Start& start) {
    Request* request = free_request();
    const size_t buffer = request != nullptr ? lend(large) : Buffers::kCount;
    if (buffer == Buffers::kCount) return;
    *request = {0, buffer, input_.byte() % 2 == 0, false, wild, this, 0};
    Completion completion = request->callback ? calls(called, request) : Completion{};
    completion.request = &request->request;
    OpDesc op;
    op.peer = &peer_;
    op.address = buffers_.at(buffer);
    op.length = std::min<uint64_t>(input_.number() * (large ? 64 : 1), Buffers::size(buffer));
    op.tag = input_.below(4);
    op.mask = ~uint64_t{0};
    Layout* layout = nullptr;
    if (input_.byte() % 4 == 0 && op.length >= 64) {
      const uint64_t count = op.length / 64;
      const int64_t stride = 64;
      require(make_strided(1, 24, &count, &stride, &layout) == TW_OK);
      op.layout = layout;
      op.length = count * 24;
    }
    const Status status = start(op, completion, *request);
    release(layout);
    if (status != TW_IN_PROGRESS) end(*request);
  }

  // ---- posts
  void post(unsigned what) {
    const bool large = input_.byte() % 3 == 0;
    const auto start = [this](const OpDesc& op, const Completion& completion, Request&) {
      return engine_->start(op, completion);
    };
    if (what <= 2) {
      const bool wild = what != 0;
      return post_with(large, wild, [&](OpDesc& op, const Completion& completion, Request&) {
        op.verb = Verb::recv;
        if (wild) op.peer = nullptr;
        if (what == 2) op.mask = input_.byte();
        return engine_->post_receive(op, completion);
      });
    }
    post_with(large, false, [&](OpDesc& op, const Completion& completion, Request& request) {
      if (!alive()) return Status{TW_ERR_PEER_LOST};
      fill(what, op, request);
      if (op.verb == Verb::put_blocks || op.verb == Verb::get_blocks) return post_blocks(op, completion);
      return start(op, completion, request);
    });
  }
  void fill(unsigned what, OpDesc& op, Request& request) {
    const uint8_t flags = input_.byte();
    if ((flags & 1) != 0) op.flags |= TW_OP_REMOTE;
    if ((flags & 2) != 0) op.flags |= TW_OP_AFTER_ALL;
    static constexpr Verb kVerbs[] = {Verb::send,       Verb::send,       Verb::am,     Verb::bytes_send, Verb::bytes_recv,
                                      Verb::put,        Verb::get,        Verb::atomic, Verb::signal,     Verb::flush,
                                      Verb::put_blocks, Verb::get_blocks, Verb::put};
    op.verb = kVerbs[what - 3];
    if (what == 4) op.flags |= TW_OP_SYNC;
    if (op.verb == Verb::am) {
      op.tag = 1;
      op.header = header_;
      op.header_length = (flags & 4) != 0 ? flags * 20u : flags % 64u;
    }
    if (op.verb == Verb::bytes_recv) op.layout = nullptr;
    if (op.verb == Verb::bytes_recv && (flags & 4) != 0) op.flags |= TW_OP_WAIT_ALL;
    op.remote = regions_[flags % 2];
    if (op.verb == Verb::atomic) {
      op.word = 8;
      op.remote_offset = 8;
      op.result = (flags & 8) != 0 ? &request.result : nullptr;
    }
    if (op.verb == Verb::signal || (op.verb == Verb::put && (flags & 16) != 0)) {
      op.signal = regions_[2];
      op.signal_op = TW_SIGNAL_ADD;
      op.signal_value = 1;
    }
  }
  Status post_blocks(OpDesc& op, const Completion& completion) {
    op.layout = nullptr;
    auto here = std::make_shared<BlockSpace>();
    here->length = kBlock;
    BlockRange range;
    range.begin = reinterpret_cast<uintptr_t>(op.address);
    range.stride = kBlock;
    range.count = Buffers::kSmall / kBlock;
    require(here->add(range, 0, Buffers::kSmall) == TW_OK);
    auto* transfer = new BlockTransfer();
    transfer->here = here;
    transfer->there = blocks_;
    const unsigned n = 1 + input_.below(8);
    transfer->pairs = std::make_unique<BlockChoice[]>(n);
    for (unsigned i = 0; i < n; ++i) transfer->pairs[i] = {i, input_.below(8)};
    if (op.verb == Verb::put_blocks && input_.byte() % 2 == 0) {
      for (unsigned i = 0; i < n; ++i) transfer->pairs[i].there = i;
    }
    op.length = uint64_t{n} * kBlock;
    op.remote = nullptr;
    op.blocks = transfer;
    const Status status = engine_->start(op, completion);
    release(transfer);
    return status;
  }
  void manage(unsigned what) {
    const size_t i = input_.below(kRequests);
    switch (what) {
      case 0:
        if (used(i) && pending(i)) engine_->cancel(requests_[i].request);
        return;
      case 1:
        return wire_->sent(*link_);
      case 2:
        return wire_->land(*link_, 1 + input_.byte() * 16u);
      case 3:
        if (alive()) fence_one_sided(*engine_, peer_);
        return;
      case 4:
        if (!kept_.empty()) take_active();
        return;
      case 5:
        return probe();
      case 6:
        return exports_.release(i % 3);
      default:
        if (input_.byte() % 16 == 0) wire_->lose(*link_);
    }
  }
  void probe() {
    tw_recv_info info;
    tw_message* message = nullptr;
    if (impl::probe(*engine_, input_.below(4), ~uint64_t{0}, nullptr, &info, &message) == TW_OK) messages_.push_back(message);
    if (messages_.size() < 3) return;
    receive(messages_.front(), true);
    messages_.erase(messages_.begin());
  }
  void receive(tw_message* message, bool buffer) {
    bool taken = false;
    if (buffer) {
      post_with(false, false, [&](OpDesc& op, const Completion& completion, Request&) {
        op.verb = Verb::recv;
        op.peer = nullptr;
        taken = true;
        return impl::receive_message(message, op, completion);
      });
    }
    if (taken) return;
    OpDesc op;
    op.verb = Verb::recv;
    impl::receive_message(message, op, Completion{});
  }
  void take_active() {
    tw_am_data* data = kept_.back();
    kept_.pop_back();
    bool taken = false;
    if (input_.byte() % 2 == 0) {
      post_with(input_.byte() % 2 == 0, false, [&](OpDesc& op, const Completion& completion, Request&) {
        op.verb = Verb::am_recv;
        op.peer = nullptr;
        taken = true;
        return impl::active_receive(data, op, completion);
      });
    }
    if (!taken) impl::active_release(data);
  }
  static tw_status handler(void* arg, const tw_am_message* message) {
    World& world = *static_cast<World*>(arg);
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < message->header_length; ++i) sum = sum + static_cast<const uint8_t*>(message->header)[i];
    if (message->data != nullptr) {
      for (size_t i = 0; i < message->length; ++i) sum = sum + static_cast<const uint8_t*>(message->data)[i];
    }
    if (message->id != 1 || world.kept_.size() >= 6) return TW_OK;
    world.kept_.push_back(message->descriptor);
    return TW_IN_PROGRESS;
  }

  // ---- this side's view of the peer's memory
  void import() {
    for (unsigned i = 0; i < 3; ++i) {
      KeyBody key{};
      key.access = i == 2 ? kAccessSignal : uint32_t{TW_MEMORY_ALL};
      key.device = i == 2 ? TW_SIGNAL_ADD : 0;
      key.incarnation = 11;
      key.rkey = 100 + i;
      key.length = i == 2 ? 8 : 1u << 20;
      key.segment = i == 1 ? 2 : 0;  // not importable: frames
      RemoteRegion* region = nullptr;
      require(import_region(peer_, key, &region) == TW_OK);
      regions_.push_back(region);
    }
    KeyBody key = regions_[0]->key;
    RemoteRegion* region = nullptr;
    require(import_region(peer_, key, &region) == TW_OK);
    blocks_ = std::make_shared<RemoteBlocks>();
    blocks_->space.length = kBlock;
    blocks_->regions.push_back(region);
    BlockRange range;
    range.stride = kBlock;
    range.count = 64;
    require(blocks_->space.add(range, 0, 1u << 20) == TW_OK);
  }
  /// The other peer says nothing: what waits for it must wait until the end.
  void start_silent() {
    OpDesc op;
    op.peer = &silent_;
    op.address = silent_bytes_;
    op.length = sizeof silent_bytes_;
    op.tag = 1;
    op.mask = ~uint64_t{0};
    op.verb = Verb::recv;
    engine_->post_receive(op, {&silent_requests_[0]});
    op.verb = Verb::send;
    op.flags = TW_OP_SYNC;
    engine_->start(op, {&silent_requests_[1]});
    op.flags = 0;
    op.address = large_;
    op.length = sizeof large_;  // rendezvous
    engine_->start(op, {&silent_requests_[2]});
    for (int i = 0; i < 20; ++i) engine_->progress();
    for (tw_request request : silent_requests_) require(Engine::test(request) == TW_IN_PROGRESS);
  }

  // ---- frames
  uint64_t op_name() {
    const uint8_t how = input_.byte();
    if (how < 160 && !link_->told.empty()) {
      WireLink::Told& told = link_->told[link_->told.size() - 1 - how % link_->told.size()];
      position_ = told.at;
      told.at += payload_;
      return told.op;
    }
    if (how < 180 && !other_->told.empty()) return other_->told[how % other_->told.size()].op;
    for (size_t i = 0; how < 240 && i < kRequests; ++i) {
      const Request& one = requests_[(how + i) % kRequests];
      if (one.world != nullptr) return one.request;  // what it must not be known by
    }
    return how < 250 ? how % 4 : input_.word();
  }
  uint64_t rkey() {
    const uint8_t how = input_.byte();
    return how < 240 ? exports_.rkeys[how % std::size(exports_.rkeys)] : input_.word();
  }
  template <class Body>
  static void put(std::vector<std::byte>& to, const Body& body) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&body);
    to.insert(to.end(), bytes, bytes + sizeof body);
  }
  void put_layout_to(std::vector<std::byte>& to) {
    Layout* layout = nullptr;
    const uint64_t count = 1 + input_.below(6);
    const int64_t stride = static_cast<int8_t>(input_.byte());
    if (make_strided(1, 1 + input_.below(32), &count, &stride, &layout) != TW_OK) return;
    std::byte wire[kWireLayout];
    const size_t n = encode(*layout, wire, sizeof wire);
    to.insert(to.end(), wire, wire + n);
    release(layout);
  }
  RtsBody rts() { return {input_.byte(), input_.number(), input_.number(), input_.below(8), input_.number()}; }
  void frame() {
    static constexpr Frame kTypes[] = {
        Frame::tagged, Frame::tagged_first, Frame::tagged_rts, Frame::am,     Frame::am_first,     Frame::am_rts,
        Frame::bytes,  Frame::matched,      Frame::cts,        Frame::data,   Frame::fin,          Frame::credit,
        Frame::put,    Frame::put_layout,   Frame::get,        Frame::atomic, Frame::atomic_reply, Frame::signal,
        Frame::flush,  Frame::put_blocks,   Frame::get_blocks, Frame::blocks, Frame::notify,       Frame::data,
        Frame::fin,    Frame::data,         Frame::cts,        Frame::bounce, Frame::data_at,      Frame::data_at,
        Frame::put_at, Frame::taken,        Frame::am_long,    Frame::am_ask, Frame::am_long_rts,  Frame::notice};
    const Frame type = kTypes[input_.below(std::size(kTypes))];
    const uint8_t seldom = input_.byte();
    FrameHeader header = make_header(type, 0, 0, 0, seldom >= 200 ? input_.byte() : 0, static_cast<uint16_t>(seldom % 4));
    std::vector<std::byte> body;
    payload_ = wants_payload(type) ? std::min<uint64_t>(input_.number(), 4000) : 0;
    fields(type, header, body);
    body.resize(body.size() + payload_, std::byte{0x3c});
    if (seldom >= 250) body.resize(input_.byte());
    if (body.size() > 4096) body.resize(4096);
    wire_->deliver(*link_, header, body);
  }
  static bool wants_payload(Frame type) {
    return type == Frame::tagged || type == Frame::tagged_first || type == Frame::am || type == Frame::am_first ||
           type == Frame::bytes || type == Frame::data || type == Frame::put || type == Frame::put_layout ||
           type == Frame::put_blocks || type == Frame::blocks || type == Frame::notify || type == Frame::notice ||
           type == Frame::am_long || type == Frame::am_long_rts;
  }
  void fields(Frame type, FrameHeader& header, std::vector<std::byte>& body) {
    switch (type) {
      case Frame::tagged:
      case Frame::tagged_first:
      case Frame::tagged_rts:
        header.a = input_.below(4);
        break;
      case Frame::am:
      case Frame::am_first:
      case Frame::am_rts:
        header.a = input_.below(16);
        if (type == Frame::am) payload_ += header.a;
        break;
      case Frame::am_ask:
        header.a = input_.byte();
        header.b = asked_ = input_.number() * (input_.byte() % 8 == 0 ? 4096 : 1);
        break;
      case Frame::am_long:
      case Frame::am_long_rts:
        header.a = input_.byte() % 2 == 0 ? asked_ : kShortHeader + input_.below(64);
        break;
      case Frame::bounce:
        header.a = 1 + input_.below(8);
        break;
      case Frame::put:
      case Frame::put_at:
      case Frame::put_layout:
      case Frame::get:
      case Frame::atomic:
      case Frame::signal:
      case Frame::notice:
        header.a = rkey();
        header.b = input_.number();
        break;
      case Frame::put_blocks:
        header.a = input_.below(8);
        break;
      case Frame::get_blocks:
      case Frame::flush:
      case Frame::credit:
        header.a = input_.number();
        header.b = input_.number();
        break;
      case Frame::data:
        if (input_.byte() % 2 == 0) header.flags |= kFrameMore;
        [[fallthrough]];
      default:
        if ((header.flags & kFrameMore) != 0) {  // of the message in several parts
          header.a = first_;
          header.b = first_at_;
          first_at_ += payload_;
        } else {
          header.a = op_name();
          header.b = position_;
        }
        if (input_.byte() % 8 == 0) header.a = input_.below(4);
        if (input_.byte() % 8 == 0) header.b = input_.number();
        break;
    }
    if (type == Frame::fin && input_.byte() % 2 == 0) header.flags |= kFrameLast;
    if (type == Frame::fin) header.b = uint64_t(int64_t{-int(input_.below(30))});
    bodies(type, header, body);
  }
  void bodies(Frame type, FrameHeader& header, std::vector<std::byte>& body) {
    if ((header.flags & kFrameAck) != 0 && type != Frame::tagged) put(body, uint64_t{input_.byte()});
    if (type == Frame::tagged_first || type == Frame::am_first) {
      first_ = input_.below(4);
      first_at_ = payload_;
      put(body, FirstBody{first_, input_.number() + (input_.byte() % 8 != 0 ? payload_ : 0)});
      if (type == Frame::am_first) body.resize(body.size() + header.a);
    } else if (type == Frame::am_long || type == Frame::am_long_rts) {
      first_ = input_.below(4);
      first_at_ = payload_;
      const bool more = type == Frame::am_long || input_.byte() % 8 == 0;
      put(body, FirstBody{first_, header.a + (more ? input_.number() : 0)});
      if (type == Frame::am_long_rts) put(body, rts());
      if (type == Frame::am_long_rts && (header.flags & kFrameDevice) != 0) put(body, DeviceBody{});
    } else if (type == Frame::tagged_rts || type == Frame::am_rts) {
      put(body, rts());
      if ((header.flags & kFrameDevice) != 0) put(body, DeviceBody{});
      if (type == Frame::am_rts) body.resize(body.size() + header.a);
    } else if (type == Frame::cts) {
      put(body, CtsBody{input_.byte(), input_.number(), input_.number(), input_.below(2), input_.below(8), input_.number()});
    } else if (type == Frame::bounce) {
      const bool whole = input_.byte() % 4 != 0;
      BounceBody told{
          whole ? 0 : input_.number(), whole ? wire_->segment.size() : input_.number(), {}, uint8_t(input_.below(9) / 8), {}};
      put(body, told);
    } else if (type == Frame::data_at || type == Frame::put_at) {
      const bool next = input_.byte() % 4 != 0;  // what would be right there
      put(body, PieceBody{1 + input_.below(8), next ? input_.below(64) : input_.number(),
                          next ? input_.below(200) : input_.number(), input_.byte()});
    } else if (type == Frame::put_layout) {
      put(body, PutLayoutBody{input_.number()});
      put_layout_to(body);
    } else if (type == Frame::get) {
      put(body, GetBody{input_.byte(), input_.number(), input_.number(), input_.number()});
      if (input_.byte() % 2 == 0) put_layout_to(body);
    } else if (type == Frame::atomic) {
      put(body, AtomicBody{input_.byte(),
                           input_.word(),
                           input_.number(),
                           uint8_t(input_.below(7)),
                           uint8_t(input_.byte() % 2 == 0 ? 8 : 4),
                           uint8_t(input_.below(2)),
                           {}});
    } else if (type == Frame::put_blocks || type == Frame::get_blocks) {
      const size_t count = type == Frame::put_blocks ? header.a : 1 + input_.below(4);
      for (size_t i = 0; i < count; ++i) put(body, BlockName{rkey(), input_.number(), input_.number()});
    }
  }

  Input& input_;
  Exports& exports_;
  Buffers buffers_;
  std::unique_ptr<Engine> engine_;
  Wire* wire_ = nullptr;
  WireLink *link_ = nullptr, *other_ = nullptr;
  Peer peer_, silent_;
  Request requests_[kRequests];
  tw_request silent_requests_[3] = {};
  static inline std::byte large_[1u << 20] = {};
  std::byte silent_bytes_[64] = {}, header_[255 * 20] = {};
  std::vector<RemoteRegion*> regions_;
  std::shared_ptr<RemoteBlocks> blocks_;
  std::vector<tw_am_data*> kept_;
  std::vector<tw_message*> messages_;
  // Of the frame that is being made, and of the message in several parts: where the next one would belong.
  uint64_t payload_ = 0, position_ = 0, first_ = 0, first_at_ = 0;
  uint64_t asked_ = 0;  // bytes of the header that was asked for
};

}  // namespace
}  // namespace thalweg::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  thalweg::fuzz::Input input(data, size);
  thalweg::fuzz::World world(input);
  for (int steps = 0; !input.empty() && world.alive() && steps < 400; ++steps) world.step();
  return 0;
}
