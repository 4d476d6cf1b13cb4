// SPDX-License-Identifier: Apache-2.0
#include "model/own.hpp"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "model/world.hpp"
#include "protocols/active.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::model {
namespace {

constexpr std::byte kFresh{0xa5}, kOver{0xdb};
constexpr size_t kGuard = 16;  // behind each buffer
constexpr size_t kOpen = 12;   // at once, of a thread

bool is_all(const std::byte* at, size_t length, std::byte value) {
  return std::all_of(at, at + length, [value](std::byte b) { return b == value; });
}

/// The header of an active message.
struct Header {
  Own* own;
  uint64_t id;
};

bool is_loss(Status status) { return status == TW_ERR_PEER_LOST || status == TW_ERR_CLOSED; }

}  // namespace

// ------------------------------------------------------------------------------------------------ a half

Completion Half::completion(bool by_callback) {
  by_callback_ = by_callback;
  if (!by_callback) return {&request};
  Completion completion = calls(called, this);
  completion.request = &request;
  return completion;
}

void Half::called(void* arg, tw_request, tw_status status, const tw_recv_info* info) {
  Half& half = *static_cast<Half*>(arg);
  half.told_ = status;
  half.told_info_ = *info;
  half.calls_.fetch_add(1, std::memory_order_release);
}

void Half::started(Status how) {
  posted = true;
  if (how == TW_IN_PROGRESS) return;
  ended = true;
  status = how;
}

void Half::wait(Engine& engine, std::byte* to, size_t length, uint64_t tag) {
  waited_ = std::make_unique<WaitedReceive>();
  waited_->address = to;
  waited_->length = length;
  waited_->tag = tag;
  waited_->mask = ~uint64_t{0};
  engine_ = &engine;
  posted = true;
  post_wait(engine, *waited_);
}

const char* Half::poll() {
  const unsigned calls = calls_.load(std::memory_order_acquire);
  if (calls > 1) return "its callback was called twice";
  if (calls == 1 && !by_callback_) return "a callback that it does not have was called";
  if (!open()) return calls == 1 && status != told_ ? "its callback came, though it had ended at once" : nullptr;
  if (waited_ != nullptr) {
    if (!waited_->done()) return nullptr;
    status = end_wait(*engine_, *waited_);
    info = waited_->info;
    ended = true;
    return nullptr;
  }
  if (by_callback_) {
    if (calls == 0) return nullptr;
    status = told_;
    info = told_info_;
    ended = true;
    return nullptr;
  }
  status = Engine::test(request);
  if (status == TW_IN_PROGRESS) return nullptr;
  ended = true;
  if (Engine::info(request, &info) != TW_OK) return "it has ended, and has no info";
  if (*Engine::message(request) == 0) return "it has ended, and says nothing of it";
  if (Engine::release(request) != TW_OK) return "its request could not be released";
  return Engine::test(request) != TW_ERR_HANDLE ? "its request is alive behind its release" : nullptr;
}

bool Half::cancel(Engine& engine) {
  if (!open() || by_callback_ || waited_ != nullptr) return false;
  canceled = engine.cancel(request) == TW_OK;
  return canceled;
}

// ------------------------------------------------------------------------------------------------ all of a thread

Owns::Owns(World& world, unsigned index, uint64_t seed) : world_(world), index_(index), random_(seed) {}

Owns::~Owns() = default;

bool Owns::dead(unsigned worker) const { return world_.dead(worker); }
Engine& Owns::engine(unsigned worker) const { return *world_.workers_[worker].engine; }
Peer& Owns::peer(unsigned from, unsigned to) const { return world_.ends_[from][to]->peer; }

void Owns::wrong(const Own& own, const std::string& what) {
  if (!failure.empty()) return;
  constexpr const char* kKinds[] = {"message", "active message", "put", "get", "add", "signal"};
  failure = "beside it, thread " + std::to_string(index_) + ", " + kKinds[static_cast<size_t>(own.kind)] + " " +
            std::to_string(own.id) + " (" + std::to_string(own.length) + " bytes, " + std::to_string(own.from) + " to " +
            std::to_string(own.to) + "): " + what;
}

void Owns::begin() {
  if (open_.size() >= kOpen) return;
  const unsigned workers = world_.program_.workers;
  const unsigned from = random_.below(workers), to = (from + 1 + random_.below(workers - 1)) % workers;
  if (dead(from) || dead(to)) return;
  Own& own = all_.emplace_back();
  own.id = (index_ + 1) * 100'000 + static_cast<uint32_t>(all_.size());
  own.tag = kTheirs | own.id;
  own.from = from;
  own.to = to;
  own.kind = random_.of({Own::Kind::message, Own::Kind::message, Own::Kind::message, Own::Kind::active, Own::Kind::put,
                         Own::Kind::get, Own::Kind::add, Own::Kind::signal});
  own.length = random_.of({0u, 1u, 8u, 100u, 700u, 3000u, 5000u});
  open_.push_back(&own);
  if (own.kind == Own::Kind::message) {
    if (random_.percent(20)) own.length = 20'000 + random_.below(40'000);
    begin_message(own);
  } else if (own.kind == Own::Kind::active) {
    begin_active(own);
  } else {
    begin_one_sided(own);
  }
  if (own.over) open_.pop_back();
}

void Owns::look() {
  if (random_.percent(15)) release_stream();
  if (open_.empty() || !failure.empty()) return;
  const size_t at = random_.below(static_cast<uint32_t>(open_.size()));
  step(*open_[at], false);
  if (open_[at]->over) open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(at));
  if (random_.percent(10) && !alive_.empty()) {
    const size_t which = random_.below(static_cast<uint32_t>(alive_.size()));
    if (release(*alive_[which], false)) alive_.erase(alive_.begin() + static_cast<std::ptrdiff_t>(which));
  }
}

void Owns::retire(std::vector<std::byte>& bytes, bool& over) {
  over = true;
  std::fill(bytes.begin(), bytes.end(), kOver);
}

/// It has ended: its memory is the thread's again.
void Owns::end(Own& own, Half& half) {
  const bool sends = &half == &own.send;
  if (half.canceled && half.status != TW_ERR_CANCELED) return wrong(own, "it was canceled, and did not end so");
  const bool refused = half.status == TW_AGAIN;
  const bool fine = half.status == TW_OK || is_loss(half.status) || (half.canceled && half.status == TW_ERR_CANCELED);
  if (!fine && !(sends && refused)) return wrong(own, std::string("it ended with: ") + status_text(half.status));
  if (own.piece != nullptr) {
    check_one_sided(own);
  } else if (!sends) {
    check_received(own);
  }
  if (sends && own.kind != Own::Kind::get) retire(own.source, own.source_over);
  if (!sends || own.kind == Own::Kind::get) retire(own.sink, own.sink_over);
}

/// last: nothing of it is to be canceled or waited for any more.
void Owns::step(Own& own, bool last) {
  if (own.over) return;
  if (dead(own.from) || dead(own.to)) {  // at one of them its outcome is not observed
    if (own.piece != nullptr) own.piece->abandoned = true;
    own.over = true;
    return;
  }
  if (own.kind == Own::Kind::message) {
    if (!own.receive.posted && (last || random_.percent(60))) {
      if (!last && random_.percent(40)) {
        take(own);
      } else {
        post_receive(own);
      }
    } else if (!own.send.posted) {
      if (last || random_.percent(15)) {
        own.receive.cancel(engine(own.to));
        if (own.receive.canceled || last) own.send.started(TW_AGAIN);
      } else {
        post_send(own);
      }
    } else if (!last && random_.percent(4)) {
      own.send.cancel(engine(own.from));
    } else if (!last && random_.percent(4) && own.send.canceled) {
      own.receive.cancel(engine(own.to));
    }
  } else if (own.kind == Own::Kind::active) {
    fetch(own, last);
  }
  for (Half* half : {&own.send, &own.receive}) {
    if (const char* what = half->poll(); what != nullptr) return wrong(own, what);
    if (half->ended && !std::exchange(half->seen, true)) end(own, *half);
  }
  own.over = is_over(own);
}

/// Nothing more is to be done for it.
bool Owns::is_over(Own& own) {
  if (!own.send.ended) return false;
  if (own.kind == Own::Kind::message) {
    if (own.send.status != TW_OK && !own.receive.ended) own.receive.cancel(engine(own.to));  // nothing comes, most likely
    return own.send.status != TW_OK || own.receive.ended;
  }
  if (own.kind != Own::Kind::active || own.send.status != TW_OK) return true;
  return own.arrivals != 0 && (!own.keeps || own.fetched) && !own.receive.open();
}

// ------------------------------------------------------------------------------------------------ messages

void Owns::begin_message(Own& own) {
  own.source.assign(own.length + kGuard, kFresh);
  own.sink.assign(own.length + kGuard, kFresh);
  fill_pattern(own.source.data(), own.id, 0, own.length);
  if (random_.percent(50)) {
    post_receive(own);
  } else {
    post_send(own);
  }
}

void Owns::post_send(Own& own) {
  Engine& from = engine(own.from);
  OpDesc desc;
  desc.verb = Verb::send;
  desc.peer = &peer(own.from, own.to);
  desc.tag = own.tag;
  desc.immediate = own.id;
  desc.address = own.source.data();
  desc.length = own.length;
  desc.flags = random_.of({0u, 0u, 0u, uint32_t{TW_OP_SYNC}, uint32_t{TW_OP_NO_WAIT}, uint32_t{TW_OP_RENDEZVOUS}});
  if (desc.flags == 0 && random_.percent(40) &&
      from.try_send(*desc.peer, own.source.data(), own.length, own.tag, own.id) == TW_OK) {
    return own.send.started(TW_OK);
  }
  const bool late = own.length != 0 && (desc.flags & TW_OP_NO_WAIT) == 0 && random_.percent(20);
  own.send.started(late ? start_late(own, desc) : from.start(desc, own.send.completion(random_.percent(30))));
  world_.show(own.send.request);
}

/// Behind the thread's stream, which brings its bytes.
Status Owns::start_late(Own& own, OpDesc& desc) {
  if (held_stream_ == nullptr) held_stream_ = std::make_unique<HeldStream>();
  if (late_.empty()) held_stream_->close();
  std::fill(own.source.begin(), own.source.end(), kFresh);
  late_.push_back(&own);
  if (make_ordering(device(), held_stream_->stream(), TW_AFTER_STREAM, &desc.after) != TW_OK || desc.after == nullptr) {
    wrong(own, "a stream that waits cannot be waited for");
    return TW_ERR_INVALID;
  }
  desc.flags |= kOpLate;
  const Status status = engine(own.from).start(desc, own.send.completion(random_.percent(30)));
  if (random_.percent(50)) {
    release_stream();
    for (unsigned i = random_.below(100); i != 0; --i)
      std::this_thread::yield();  // the progressing thread may return the point first
  }
  impl::release(desc.after);
  return status;
}

void Owns::release_stream() {
  if (late_.empty()) return;
  for (Own* own : late_) {
    if (!own->send.ended) fill_pattern(own->source.data(), own->id, 0, own->length);
  }
  late_.clear();
  held_stream_->open();
}

void Owns::post_receive(Own& own) {
  Engine& to = engine(own.to);
  const unsigned how = random_.below(10);
  if (how < 3) {
    own.receive.started(
        post_short(to, own.sink.data(), own.length, own.tag, ~uint64_t{0}, own.receive.completion(false).request));
  } else if (how < 5) {
    own.receive.wait(to, own.sink.data(), own.length, own.tag);
  } else {
    OpDesc desc;
    desc.verb = Verb::recv;
    if (random_.percent(40)) desc.peer = &peer(own.to, own.from);
    desc.tag = own.tag;
    desc.mask = ~uint64_t{0};
    desc.address = own.sink.data();
    desc.length = own.length;
    own.receive.started(to.post_receive(desc, own.receive.completion(random_.percent(40))));
  }
  world_.show(own.receive.request);
}

/// Receives it when it is there.
void Owns::take(Own& own) {
  tw_recv_info info{};
  tw_message* message = nullptr;
  Engine& to = engine(own.to);
  if (probe(to, own.tag, ~uint64_t{0}, nullptr, &info, &message) != TW_OK) return;
  if (info.tag != own.tag || info.immediate != own.id || info.length != own.length)
    return wrong(own, "a probe finds another message");
  OpDesc desc;
  desc.verb = Verb::recv;
  desc.address = own.sink.data();
  desc.length = own.length;
  own.receive.started(receive_message(message, desc, own.receive.completion(random_.percent(40))));
}

void Owns::check_received(Own& own) {
  if (own.receive.status != TW_OK) return;
  const bool message = own.kind == Own::Kind::message;
  const tw_recv_info& info = own.receive.info;
  if (info.length != own.length || (message && (info.tag != own.tag || info.immediate != own.id)))
    return wrong(own, "what was received has the info of something else");
  if (!shows_pattern(own.sink.data(), own.id, 0, own.length)) return wrong(own, "what was received are not its bytes");
  if (!is_all(own.sink.data() + own.length, kGuard, kFresh)) wrong(own, "memory behind what was received was written to");
}

// ------------------------------------------------------------------------------------------------ active messages

void Owns::begin_active(Own& own) {
  own.source.assign(own.length + kGuard, kFresh);
  own.sink.assign(own.length + kGuard, kFresh);
  fill_pattern(own.source.data(), own.id, 0, own.length);
  own.keeps = random_.percent(40);
  const Header header{&own, own.id};
  OpDesc desc;
  desc.verb = Verb::am;
  desc.peer = &peer(own.from, own.to);
  desc.tag = kTheirId;
  desc.header = reinterpret_cast<const std::byte*>(&header);
  desc.header_length = sizeof header;
  desc.address = own.source.data();
  desc.length = own.length;
  if (random_.percent(25)) desc.flags = TW_OP_RENDEZVOUS;
  own.send.started(engine(own.from).start(desc, own.send.completion(random_.percent(40))));
  world_.show(own.send.request);
}

tw_status Owns::handler(void*, const tw_am_message* message) {
  if (message->header_length != sizeof(Header)) std::abort();
  Header header{};
  std::memcpy(&header, message->header, sizeof header);
  Own& own = *header.own;
  if (header.id != own.id || message->length != own.length || message->id != kTheirId) {
    own.wrong = "another length or id came to the handler";
    return TW_OK;
  }
  const auto* data = static_cast<const std::byte*>(message->data);
  if (data != nullptr && !shows_pattern(data, own.id, 0, own.length)) own.wrong = "other bytes came to the handler";
  own.arrivals.fetch_add(1);
  if (!own.keeps) return TW_OK;
  own.kept.store(message->descriptor, std::memory_order_release);
  return TW_IN_PROGRESS;
}

/// What the handler has kept is received or given back.
void Owns::fetch(Own& own, bool last) {
  if (const char* what = own.wrong; what != nullptr) return wrong(own, what);
  if (own.arrivals > 1) return wrong(own, "it came twice");
  if (own.kept.load(std::memory_order_acquire) == nullptr || (!last && random_.percent(40))) return;
  tw_am_data* const data = own.kept.exchange(nullptr);
  own.fetched = true;
  if (random_.percent(40)) {
    if (active_release(data) != TW_OK) wrong(own, "a kept payload cannot be released");
    return;
  }
  OpDesc desc;
  desc.verb = Verb::am_recv;
  desc.address = own.sink.data();
  desc.length = own.length;
  own.receive.started(active_receive(data, desc, own.receive.completion(random_.percent(40))));
}

// ------------------------------------------------------------------------------------------------ one-sided operations

Piece* Owns::piece_at(unsigned worker) {
  for (Piece* one : alive_) {
    if (one->worker == worker && !one->lost && random_.percent(75)) return one;
  }
  if (alive_.size() >= 3) return nullptr;
  Piece& piece = pieces_.emplace_back();
  piece.worker = worker;
  piece.host = world_.workers_[worker].host;
  Registry& registry = piece.host->registry;
  Status status = TW_OK;
  if (random_.percent(50)) {
    status = registry.allocate(Piece::kLength, 0, false, &piece.memory);
    if (status == TW_OK) piece.bytes = piece.memory->address;
  } else {
    piece.plain.reset(new std::byte[Piece::kLength]);
    piece.bytes = piece.plain.get();
    status = registry.register_memory(piece.bytes, Piece::kLength, 0, &piece.memory);
  }
  if (status != TW_OK) return nullptr;
  std::memset(piece.bytes, 0, Piece::kLength);
  if (registry.export_range(piece.memory, 0, Piece::kLength, 0, &piece.key) != TW_OK ||
      piece.host->signals().create(TW_SIGNAL_ADD, 0, &piece.signal) != TW_OK ||
      piece.host->signals().export_signal(piece.signal, &piece.signal_key) != TW_OK) {
    return nullptr;
  }
  alive_.push_back(&piece);
  return &piece;
}

RemoteRegion* Owns::region(Piece& piece, unsigned from, bool signal) {
  RemoteRegion*& region = signal ? piece.signals[from] : piece.regions[from];
  if (region == nullptr) {
    const Engine::Guard guard(engine(from));
    if (import_region(peer(from, piece.worker), signal ? piece.signal_key : piece.key, &region) != TW_OK) region = nullptr;
  }
  return region;
}

void Owns::begin_one_sided(Own& own) {
  Piece* const piece = piece_at(own.to);
  own.over = true;
  if (piece == nullptr) return;
  RemoteRegion* const memory = region(*piece, own.from, false);
  RemoteRegion* const signal = region(*piece, own.from, true);
  const bool moves = own.kind == Own::Kind::put || own.kind == Own::Kind::get;
  own.slot = random_.below(Piece::kSlots);
  if (memory == nullptr || signal == nullptr || (moves && piece->taken[own.slot])) return;
  own.over = false;
  own.piece = piece;
  ++piece->busy;
  OpDesc desc;
  desc.peer = &peer(own.from, own.to);
  desc.flags = TW_OP_REMOTE;
  if (moves) {
    piece->taken[own.slot] = true;
    std::vector<std::byte>& mine = own.kind == Own::Kind::put ? own.source : own.sink;
    mine.assign(own.length + kGuard, kFresh);
    fill_pattern(own.kind == Own::Kind::put ? mine.data() : piece->bytes + own.slot * Piece::kSlot, own.id, 0, own.length);
    desc.verb = own.kind == Own::Kind::put ? Verb::put : Verb::get;
    if (own.kind == Own::Kind::get) desc.flags = 0;
    desc.address = mine.data();
    desc.length = own.length;
    desc.remote = memory;
    desc.remote_offset = own.slot * Piece::kSlot;
    own.signals = own.kind == Own::Kind::put && random_.percent(40);
  } else if (own.kind == Own::Kind::add) {
    own.added_before = piece->added++;
    own.sure_before = piece->sure;
    desc.verb = Verb::atomic;
    desc.atomic_op = TW_ATOMIC_ADD;
    desc.word = 8;
    desc.length = 8;
    desc.operand = 1;
    desc.remote = memory;
    desc.remote_offset = Piece::kSlot * Piece::kSlots;
    desc.result = &own.result;
  } else {
    desc.verb = Verb::signal;
    own.signals = true;
  }
  if (own.signals) {
    ++piece->signalled;
    desc.signal = signal;
    desc.signal_op = TW_SIGNAL_ADD;
    desc.signal_value = 1;
  }
  own.send.started(engine(own.from).start(desc, own.send.completion(random_.percent(30))));
  world_.show(own.send.request);
}

void Owns::check_one_sided(Own& own) {
  Piece& piece = *own.piece;
  --piece.busy;
  const bool moves = own.kind == Own::Kind::put || own.kind == Own::Kind::get;
  if (own.send.status != TW_OK) piece.lost = true;
  if (moves) piece.taken[own.slot] = false;
  if (piece.lost) return;
  if (own.kind == Own::Kind::put && !shows_pattern(piece.bytes + own.slot * Piece::kSlot, own.id, 0, own.length))
    return wrong(own, "its bytes are not at the target");
  if (own.kind == Own::Kind::get &&
      (!shows_pattern(own.sink.data(), own.id, 0, own.length) || !is_all(own.sink.data() + own.length, kGuard, kFresh))) {
    return wrong(own, "it brings other bytes");
  }
  if (own.kind == Own::Kind::add) {
    ++piece.sure;
    if (own.result < own.sure_before || own.result >= piece.added)
      return wrong(own, "it found " + std::to_string(own.result) + " of " + std::to_string(piece.added));
  }
  if (!own.signals) return;
  // What acknowledges a put's data does not acknowledge its signal.
  if (own.kind == Own::Kind::signal) ++piece.signals_sure;
  const uint64_t value = signal_read(*piece.signal);
  if (value < piece.signals_sure || value > piece.signalled) {
    wrong(own, "the signal's word is " + std::to_string(value) + ", of " + std::to_string(piece.signals_sure) + " to " +
                   std::to_string(piece.signalled));
  }
}

/// Where nothing of it is under way.
bool Owns::release(Piece& piece, bool last) {
  if (piece.busy != 0 || piece.abandoned) return false;
  if (!last && signal_read(*piece.signal) != piece.signalled) return false;  // one is on its way, and a flush would tell of it
  for (unsigned from = 0; from < world_.program_.workers; ++from) {
    if (piece.regions[from] == nullptr && piece.signals[from] == nullptr) continue;
    const Engine::Guard guard(engine(from));
    for (RemoteRegion** region : {&piece.regions[from], &piece.signals[from]}) {
      if (*region != nullptr) release_region(std::exchange(*region, nullptr));
    }
  }
  if (piece.host->signals().destroy(std::exchange(piece.signal, nullptr)) != TW_OK) failure = "a signal cannot be destroyed";
  if (piece.host->registry.release(std::exchange(piece.memory, nullptr)) != TW_OK)
    failure = std::string("memory of a thread cannot be released: ") + last_error();
  if (piece.plain != nullptr) std::memset(piece.bytes, std::to_integer<int>(kOver), Piece::kLength);
  return true;
}

// ------------------------------------------------------------------------------------------------ the end

bool Owns::finish() {
  release_stream();
  bool any = false;
  const std::vector<Own*> open = open_;
  for (Own* own : open) {
    const bool had = own->receive.posted, kept = own->kept != nullptr;
    if (failure.empty()) step(*own, true);
    any |= own->receive.posted != had || kept;
  }
  return any;
}

void Owns::check_message(Own& own) {
  const bool broken = world_.ends_[own.from][own.to]->broken;
  const bool comes = own.send.status == TW_OK && !broken;
  if (own.kind == Own::Kind::active) {
    if (own.arrivals > 1 || (comes && own.arrivals != 1)) wrong(own, "it came " + std::to_string(own.arrivals) + " times");
    return;
  }
  if (own.receive.posted && !own.receive.ended) {
    if (comes) return wrong(own, "it was sent, and its receive never ends");
    return;
  }
  if (own.receive.status == TW_OK && own.send.status != TW_OK && !broken)
    return wrong(own, "it was not sent, and was received");
  if (probe(engine(own.to), own.tag, ~uint64_t{0}, nullptr, nullptr, nullptr) == TW_OK && own.receive.status == TW_OK)
    wrong(own, "it came twice");
}

void Owns::check() {
  for (Own& own : all_) {
    if (!failure.empty()) return;
    step(own, true);
    if (dead(own.from) || dead(own.to) || !failure.empty()) continue;
    if (own.send.open()) return wrong(own, "it never ends");
    const bool broken = world_.ends_[own.from][own.to]->broken;
    for (const Half* half : {&own.send, &own.receive}) {
      if (half->ended && is_loss(half->status) && !broken) return wrong(own, "it was lost, and nothing was");
    }
    if (own.kind == Own::Kind::message || own.kind == Own::Kind::active) check_message(own);
    const bool touched = (own.source_over && !is_all(own.source.data(), own.source.size(), kOver)) ||
                         (own.sink_over && !is_all(own.sink.data(), own.sink.size(), kOver));
    if (touched) return wrong(own, "its memory was touched after it had ended");
  }
  for (const Piece& piece : pieces_) {
    if (!failure.empty()) return;
    if (piece.memory == nullptr) {
      if (piece.plain != nullptr && !is_all(piece.bytes, Piece::kLength, kOver))
        failure = "memory of a thread was written to after its release";
      continue;
    }
    bool broken = false;  // a signal may be lost behind a put that ended well
    for (unsigned from = 0; from < world_.program_.workers; ++from)
      broken |= from != piece.worker && world_.ends_[from][piece.worker]->broken;
    if (piece.signal == nullptr || broken || dead(piece.worker)) continue;
    const uint64_t word = __atomic_load_n(piece.word(), __ATOMIC_ACQUIRE), given = signal_read(*piece.signal);
    if (word == piece.added && given == piece.signalled) continue;
    failure = "a thread's word is " + std::to_string(word) + " of " + std::to_string(piece.added) + ", its signal " +
              std::to_string(given) + " of " + std::to_string(piece.signalled);
  }
}

void Owns::give_back() {
  release_stream();
  for (Piece* one : alive_) {
    one->busy = 0;
    one->abandoned = false;
    release(*one, true);
  }
  alive_.clear();
}

}  // namespace thalweg::model
