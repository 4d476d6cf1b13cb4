// SPDX-License-Identifier: Apache-2.0
#include "model/port.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fixtures/copy_pieces.hpp"

namespace thalweg::model {
namespace {

constexpr size_t kGuard = 64;  // behind what was reserved
constexpr std::byte kGuarded{0xa5};

uint32_t features_of(Way way) {
  switch (way) {
    case Way::references:
      return kLinkByReference;
    case Way::kernel:
      return kLinkSingleCopy;
    case Way::mapped:
      return kLinkMaps;
    case Way::shared:
      return kLinkMaps | kLinkSingleCopy;
    case Way::process:
      return kLinkSameProcess;
    default:
      return 0;
  }
}

}  // namespace

ModelPort::ModelPort(Net& net, Engine& engine, Host& host, unsigned worker)
    : net_(net), engine_(engine), host_(host), worker_(worker) {
  net_.add(*this);
}

/// What the engine names must be alive.
ModelLink& ModelPort::own(Link& link, const char* call) {
  auto& mine = static_cast<ModelLink&>(link);
  const auto lock = net_.locked();
  if (mine.ended && !dead) net_.watcher.fail((std::string("the engine named a link that has ended: ") + call).c_str());
  net_.tick();
  return mine;
}

// ------------------------------------------------------------------------------------------------ sending

bool ModelPort::full(ModelLink& link) {
  const bool refused = link.out.size() >= 64 || net_.dice().percent(net_.refuse);
  if (refused) link.refused = true;
  return refused;
}

void ModelPort::take(ModelLink& link, Carried&& frame) {
  link.frames.push_back(frame.header);
  link.out.push_back(std::move(frame));
}

Status ModelPort::send(Link& base, const FrameHeader& header, const void* body) {
  ModelLink& link = own(base, "send");
  const auto lock = net_.locked();
  if (link.broken) return TW_ERR_PEER_LOST;
  if (header.length > link.copy_max) net_.watcher.fail("the engine sent more than copy_max bytes");
  if (full(link)) return TW_AGAIN;
  const auto* bytes = static_cast<const std::byte*>(body);
  take(link, {header, {bytes, bytes + header.length}, {}, nullptr});
  return TW_OK;
}

std::byte* ModelPort::reserve(Link& base, size_t n) {
  ModelLink& link = own(base, "reserve");
  const auto lock = net_.locked();
  if (n > link.copy_max) net_.watcher.fail("the engine reserved more than copy_max bytes");
  if (link.broken || full(link)) return nullptr;
  link.reserved.assign(n + kGuard, kGuarded);
  return link.reserved.data();
}

void ModelPort::commit(Link& base, const FrameHeader& header) {
  auto& link = static_cast<ModelLink&>(base);
  const auto end = link.reserved.begin() + header.length;
  if (header.length + kGuard != link.reserved.size() ||
      !std::all_of(end, link.reserved.end(), [](std::byte b) { return b == kGuarded; })) {
    return net_.watcher.fail("the engine wrote past what it had reserved");
  }
  link.reserved.resize(header.length);
  const auto lock = net_.locked();
  if (!link.broken) take(link, {header, std::move(link.reserved), {}, nullptr});
}

Status ModelPort::send_reference(Link& base, const FrameHeader& header, const iovec* pieces, size_t count, void* token) {
  ModelLink& link = own(base, "send_reference");
  const auto lock = net_.locked();
  if (link.broken) return TW_ERR_PEER_LOST;
  if (header.length > link.reference_max) net_.watcher.fail("the engine sent more than reference_max bytes");
  if (full(link)) return TW_AGAIN;
  Carried frame{header, {}, {pieces, pieces + count}, token};
  const bool at_once = net_.dice().percent(40);
  if (at_once) {
    frame.token = nullptr;
    net_.depart(link, frame);
  }
  take(link, std::move(frame));
  return at_once ? TW_OK : TW_IN_PROGRESS;
}

size_t ModelPort::queued(const Link& base) const {
  const auto lock = net_.locked();
  return static_cast<const ModelLink&>(base).out.size();
}

// ------------------------------------------------------------------------------------------------ the peer's memory

Status ModelPort::import(Link& base, uint64_t segment, Mapping** mapping) {
  return import(own(base, "import"), segment, nullptr, mapping);
}
Status ModelPort::import_device(Link& base, uint64_t segment, Device& device, Mapping** mapping) {
  ModelLink& link = own(base, "import_device");
  if ((link.features & kLinkMaps) == 0) return impl::fail(TW_ERR_UNSUPPORTED, "this link imports nothing");
  return import(link, segment, &device, mapping);
}

Status ModelPort::import(ModelLink& link, uint64_t segment, Device* device, Mapping** mapping) {
  const auto lock = net_.locked();
  if (link.broken) return TW_ERR_PEER_LOST;
  for (Import& one : imports_) {
    if (one.link != &link || one.segment != segment || one.device != device || one.mapping.revoked) continue;
    if (one.state == Import::refused) {
      one.mapping.revoke(TW_ERR_STALE);  // told once
      return impl::fail(TW_ERR_STALE, "the peer has released this memory");
    }
    if (one.state != Import::mapped) return TW_IN_PROGRESS;
    *mapping = &one.mapping;
    return TW_OK;
  }
  Import& one = imports_.emplace_back();
  one.link = &link;
  one.segment = segment;
  one.device = device;
  return TW_IN_PROGRESS;
}

/// What the owner's service thread has answered.
void ModelPort::finish_import(Import& one) {
  Host& owner = one.link->other->owner->host_;
  Mapping& mapping = one.mapping;
  if (one.device == nullptr) {
    mapping.address = owner.view(one.segment, &mapping.length);
  } else if (std::vector<ExportedMemory> pieces;
             owner.registry.export_device_segment(one.segment, &pieces) == TW_OK && !pieces.empty()) {
    mapping.device = one.device;  // the same one: its own addresses do
    mapping.device_address = pieces.front().handle.base;
    for (const ExportedMemory& piece : pieces) mapping.length += piece.handle.length;
  }
  const auto lock = net_.locked();
  one.state = mapping.address != nullptr || mapping.device != nullptr ? Import::mapped : Import::refused;
}

void ModelPort::forget_imports(ModelLink& link, Status why) {
  for (Import& one : imports_) {
    if (one.link == &link) one.mapping.revoke(why);
  }
}

bool ModelPort::enter_peer(Link& base) {
  ModelLink& link = own(base, "enter_peer");
  const auto lock = net_.locked();
  return !link.broken && !link.other->broken && !link.other->ended;
}

void ModelPort::ring(Link& base) { own(base, "ring").other->owner->rouse(); }

int64_t ModelPort::read_peer(Link& link, const iovec* local, size_t locals, const iovec* remote, size_t remotes) {
  return copy(link, local, locals, remote, remotes, true);
}
int64_t ModelPort::write_peer(Link& link, const iovec* local, size_t locals, const iovec* remote, size_t remotes) {
  return copy(link, local, locals, remote, remotes, false);
}

int64_t ModelPort::copy(Link& base, const iovec* local, size_t locals, const iovec* remote, size_t remotes, bool read) {
  ModelLink& link = own(base, "a copy by the kernel");
  if (const auto lock = net_.locked(); link.broken || link.other->ended) return TW_ERR_PEER_LOST;
  if (read && remotes == 1 && locals == 1 && remote->iov_len == 8 && reinterpret_cast<uintptr_t>(remote->iov_base) % 8 == 0) {
    // A check word may be another key's by now; between processes nobody minds how it is read.
    const uint64_t word = __atomic_load_n(static_cast<const uint64_t*>(remote->iov_base), __ATOMIC_ACQUIRE);
    std::memcpy(local->iov_base, &word, sizeof word);
    return sizeof word;
  }
  return test::copy_pieces(local, locals, remote, remotes, read);
}

// ------------------------------------------------------------------------------------------------ progress

void ModelPort::withdraw(Link& base, std::byte* destination) {
  auto& link = static_cast<ModelLink&>(base);
  if (link.destination != nullptr && destination <= link.destination) link.discard = true;
}

/// More of the body that is being read to its destination. True: all of it is there.
bool ModelPort::land(ModelLink& link, const Carried& frame) {
  const size_t left = frame.body.size() - link.landed;
  const size_t n = net_.random.percent(60) ? left : net_.random.below(static_cast<uint32_t>(left + 1));
  if (!link.discard && n != 0) std::memcpy(link.destination + link.landed, frame.body.data() + link.landed, n);
  link.landed += n;
  return link.landed == frame.body.size();
}

Carried ModelPort::take_first(ModelLink& link) {
  const auto lock = net_.locked();
  Carried first = std::move(link.in.front());
  link.in.pop_front();
  ++link.taken;
  return first;
}

/// The first of what arrived. False: it is not all here.
bool ModelPort::hand_over(ModelLink& link) {
  Carried& frame = link.in.front();
  if (link.destination == nullptr && !link.discard && (link.features & kLinkByReference) != 0 && frame.header.length >= 64 &&
      net_.random.percent(75)) {
    link.destination = engine_.destination(link, frame.header, frame.body.data(), std::min<size_t>(frame.body.size(), 16));
    link.landed = 0;
    if (link.destination != nullptr) net_.watcher.on_arrival(link.to, link.from, frame.header, frame.body.data());
  }
  if (link.destination != nullptr || link.discard) {
    if (!land(link, frame)) return false;
    const Carried done = take_first(link);
    const bool tell = !std::exchange(link.discard, false);
    link.destination = nullptr;
    if (tell) engine_.on_landed(link, done.header);
    return true;
  }
  const Carried done = take_first(link);
  // Exactly as long as it says, so that reads past it show under the address sanitizer.
  net_.watcher.on_arrival(link.to, link.from, done.header, done.body.data());
  engine_.on_frame(link, done.header, done.body.data());
  return true;
}

OfferTables ModelPort::offers(Link& base) {
  const ModelLink& link = own(base, "offers");
  return {&(*link.tables)[link.side], &(*link.tables)[1 - link.side]};
}

uint64_t ModelPort::taken(const Link& base) {
  const auto lock = net_.locked();
  return static_cast<const ModelLink&>(base).taken;
}

bool ModelPort::any_behind(const Link& base, uint64_t taken, FrameTest test, const void* what) {
  const auto lock = net_.locked();
  const auto& frames = static_cast<const ModelLink&>(base).frames;
  return taken > frames.size() || std::any_of(frames.begin() + static_cast<std::ptrdiff_t>(taken), frames.end(),
                                              [&](const FrameHeader& header) { return test(header, what); });
}

/// Threads beside the schedule leave to it what arrives.
unsigned ModelPort::take(unsigned budget, FrameTest test) {
  unsigned events = 0;
  for (size_t i = 0; i < links_.size() && !beside.is; ++i) {
    ModelLink& link = *links_[i];
    while (events < budget && !link.ended && link.user != nullptr && link.destination == nullptr && !link.discard &&
           !link.in.empty() && test(link.in.front().header, nullptr)) {
      const Carried done = take_first(link);
      net_.watcher.on_arrival(link.to, link.from, done.header, done.body.data());
      engine_.on_frame(link, done.header, done.body.data());
      ++events;
    }
  }
  return events;
}

unsigned ModelPort::progress(unsigned budget) {
  armed = readable = false;
  __atomic_store_n(&sleeping_, 0, __ATOMIC_RELAXED);
  net_.tick();
  unsigned events = 0;
  for (Import& one : imports_) {
    if (const auto lock = net_.locked(); one.state != Import::answered || one.mapping.revoked) continue;
    finish_import(one);
    ++events;
    engine_.on_import(*one.link, one.segment);
  }
  for (size_t i = 0; i < links_.size(); ++i) {
    ModelLink& link = *links_[(i + budget) % links_.size()];
    while (!link.ended && !link.sent.empty()) {
      const auto [token, status] = link.sent.front();
      {
        const auto lock = net_.locked();
        link.sent.pop_front();
      }
      engine_.on_sent(link, token, status);
      ++events;
      if (link.broken) break;  // the others later: by then their runs may have ended, and be other operations'
    }
  }
  const auto count = static_cast<uint32_t>(links_.size());
  const uint32_t first = count != 0 ? net_.random.below(count) : 0;
  for (uint32_t i = 0; i < count; ++i) {
    ModelLink& link = *links_[(first + i) % count];
    unsigned most = net_.random.percent(50) ? budget : 1 + net_.random.below(3);
    while (most-- != 0 && !link.ended && link.user != nullptr && !link.in.empty()) {
      if (!hand_over(link)) break;
      ++events;
      net_.tick();
    }
    if (!link.ended && link.user != nullptr && link.loss_comes && link.in.empty() && link.sent.empty() && !net_.lends(link)) {
      {
        const auto lock = net_.locked();
        link.ended = link.broken = link.told = true;
        link.sleeping = nullptr;
        forget_imports(link, link.why);
      }
      ++events;
      engine_.on_lost(link, link.why, "the model broke the connection");
    }
  }
  return events;
}

Status ModelPort::arm() {
  const auto lock = net_.locked();
  for (const Import& one : imports_) {
    if (one.state == Import::answered && !one.mapping.revoked) return TW_ERR_BUSY;
  }
  for (const ModelLink* link : links_) {
    if (link->ended || link->user == nullptr) continue;
    if (!link->sent.empty() || !link->in.empty() || link->loss_comes) return TW_ERR_BUSY;
  }
  armed = true;
  __atomic_store_n(&sleeping_, 1, __ATOMIC_RELAXED);
  return TW_OK;
}

void ModelPort::close(Link& base, bool graceful) {
  const auto lock = net_.locked();
  auto& link = static_cast<ModelLink&>(base);
  link.closed = true;
  if (link.ended) return;
  link.ended = true;
  link.sleeping = nullptr;
  forget_imports(link, TW_ERR_CLOSED);
  if (std::exchange(link.broken, true)) return;
  if (graceful) {
    for (Carried& frame : link.out) net_.depart(link, frame);
    net_.arrive(link, link.out.size());
  }
  link.sent.clear();
  net_.break_off(link, graceful ? TW_ERR_CLOSED : TW_ERR_PEER_LOST);
}

// ------------------------------------------------------------------------------------------------ the schedule

void Net::connect(ModelPort& a, ModelPort& b, Way way, uint32_t copy_max, uint32_t fragment, ModelLink** to_b,
                  ModelLink** to_a) {
  ModelLink* made[2];
  for (unsigned i = 0; i < 2; ++i) {
    ModelPort& owner = i == 0 ? a : b;
    ModelPort& far = i == 0 ? b : a;
    links_.push_back(std::make_unique<ModelLink>());
    ModelLink& link = *(made[i] = links_.back().get());
    link.port = link.owner = &owner;
    link.from = owner.worker_;
    link.to = far.worker_;
    link.features = features_of(way);
    link.copy_max = copy_max;
    link.fragment = fragment;
    link.reference_max = 1u << 16;
    link.peer.worker = far.worker_ + 1;
    link.peer.incarnation = far.host_.registry.incarnation();
    link.sleeping = &far.sleeping_;
    owner.links_.push_back(&link);
  }
  made[0]->tables = made[1]->tables = std::make_shared<std::array<OfferTable, 2>>();
  made[1]->side = 1;
  made[0]->other = made[1];
  made[1]->other = made[0];
  *to_b = made[0];
  *to_a = made[1];
}

/// The bytes leave the sender's memory.
void Net::depart(ModelLink& link, Carried& frame) {
  for (const iovec& piece : frame.pieces) {
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    frame.body.insert(frame.body.end(), from, from + piece.iov_len);
  }
  frame.pieces.clear();
  if (void* token = std::exchange(frame.token, nullptr); token != nullptr && !link.ended) {
    link.sent.emplace_back(token, TW_OK);
    link.owner->rouse();
  }
}

void Net::arrive(ModelLink& link, size_t frames) {
  for (; frames != 0 && !link.out.empty(); --frames) {
    depart(link, link.out.front());
    if (!link.other->ended) link.other->in.push_back(std::move(link.out.front()));
    link.out.pop_front();
    link.other->owner->rouse();
  }
}

bool Net::carry() {
  const auto lock = locked();
  const auto count = static_cast<uint32_t>(links_.size());
  if (count == 0) return false;
  const uint32_t first = random.below(count);
  for (uint32_t i = 0; i < count; ++i) {
    ModelLink& link = *links_[(first + i) % count];
    if (link.out.empty()) continue;
    if (random.percent(20)) {  // the bytes leave before the frame arrives
      for (size_t k = 0, n = 1 + random.below(3); k < n && k < link.out.size(); ++k) depart(link, link.out[k]);
      return true;
    }
    arrive(link, random.percent(60) ? link.out.size() : 1 + random.below(3));
    return true;
  }
  return false;
}

bool Net::answer_import() {
  const auto lock = locked();
  for (ModelPort* port : ports_) {
    for (ModelPort::Import& one : port->imports_) {
      if (one.state != ModelPort::Import::asked || one.mapping.revoked || random.percent(20)) continue;
      one.state = ModelPort::Import::answered;
      port->rouse();
      return true;
    }
  }
  return false;
}

void Net::segment_released(Host& host, uint64_t segment) {
  const auto lock = locked();
  for (ModelPort* port : ports_) {
    if (&port->host_ != &host) releases_.push_back({port, segment});
  }
}

bool Net::drop(uint64_t segment) {
  const auto lock = locked();
  for (ModelPort* port : ports_) {
    for (ModelPort::Import& one : port->imports_) {
      if (one.segment != segment || one.device == nullptr) continue;
      if (one.mapping.users != 0) return false;
      one.mapping.revoke(TW_ERR_STALE);
    }
  }
  return true;
}

bool Net::lends(const ModelLink& link) {
  const auto lock = locked();
  const ModelPort& importer = *link.other->owner;
  if (importer.dead) return false;
  for (const ModelPort::Import& one : importer.imports_) {
    if (one.link == link.other && one.device != nullptr && one.mapping.users != 0) return true;
  }
  return false;
}

bool Net::tell_release() {
  const auto lock = locked();
  if (releases_.empty()) return false;
  const Release release = releases_.front();
  releases_.pop_front();
  for (ModelPort::Import& one : release.port->imports_) {
    if (one.segment == release.segment && one.state != ModelPort::Import::asked) one.mapping.revoke(TW_ERR_STALE);
  }
  release.port->rouse();
  return true;
}

bool Net::make_room() {
  const auto lock = locked();
  bool any = false;
  for (auto& link : links_) {
    if (!link->refused || link->ended) continue;
    link->refused = false;
    link->owner->rouse();
    any = true;
  }
  return any;
}

bool Net::still() {
  const auto lock = locked();
  for (const auto& link : links_) {
    if (!link->out.empty() || (link->refused && !link->ended)) return false;
  }
  for (const ModelPort* port : ports_) {
    if (port->dead) continue;
    for (const ModelPort::Import& one : port->imports_) {
      if (one.state == ModelPort::Import::asked && !one.mapping.revoked) return false;
    }
  }
  return releases_.empty();
}

/// This end of the link is gone. The other one gets some of what is on its way, and learns it behind that.
/// What is not sent never will be: the sender's memory is not read any more.
void Net::drop_unsent(ModelLink& link) {
  for (const Carried& frame : link.out) {
    if (frame.token != nullptr && !link.ended) link.sent.emplace_back(frame.token, TW_ERR_PEER_LOST);
  }
  link.out.clear();
}

bool Net::keeps_lost_links() const {
  for (const auto& link : links_) {
    if (link->told && !link->closed && !link->owner->dead) return true;
  }
  return false;
}

void Net::break_off(ModelLink& link, Status there) {
  ModelLink& other = *link.other;
  if (!link.out.empty()) {
    // Behind what still arrives the sender's memory is not read.
    arrive(link, random.below(static_cast<uint32_t>(link.out.size() + 1)));
    drop_unsent(link);
  }
  link.broken = true;
  if (other.ended || other.loss_comes) return;
  other.loss_comes = true;
  other.why = there;
  other.broken = true;
  drop_unsent(other);
  other.owner->rouse();
}

void Net::cut(ModelLink& link, Status here, Status there) {
  const auto lock = locked();
  if (link.broken) return;
  link.loss_comes = true;
  link.why = here;
  if (!link.other->out.empty()) arrive(*link.other, random.below(static_cast<uint32_t>(link.other->out.size() + 1)));
  break_off(link, there);
  link.owner->rouse();
}

void Net::kill(ModelPort& port) {
  if (port.dead) return;
  port.dead = true;
  while (device().step(0)) {  // its device work ends with it: nothing of it comes later
  }
  const auto lock = locked();
  for (ModelLink* link : port.links_) {
    if (link->ended) continue;
    link->ended = true;
    break_off(*link, TW_ERR_PEER_LOST);
    link->in.clear();
    link->sent.clear();
  }
}

void Net::cut_later(ModelLink& link, uint32_t calls) {
  to_cut_ = &link;
  to_kill_ = nullptr;
  fuse_ = calls;
}
void Net::kill_later(ModelPort& port, uint32_t calls) {
  to_kill_ = &port;
  to_cut_ = nullptr;
  fuse_ = calls;
}

void Net::tick() {
  if (beside.is || fuse_ == 0 || --fuse_ != 0) return;
  if (to_cut_ != nullptr) cut(*to_cut_);
  if (to_kill_ != nullptr) kill(*to_kill_);
}

}  // namespace thalweg::model
