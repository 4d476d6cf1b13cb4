// SPDX-License-Identifier: Apache-2.0
// Staging; see staging.hpp. A chunk goes free -> copying -> ready -> free (out), or free -> filling -> copying -> free (in).
#include "protocols/staging.hpp"

#include <algorithm>
#include <utility>

#include "base/platform/string_copy.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl {

Staging::Staging(Engine& engine, OpRun& run, Device& device, const CopySide& side, Direction direction, uint64_t begin,
                 uint64_t end, DeviceUserLists users)
    : engine_(engine),
      run_(run),
      device_(&device),
      direction_(direction),
      users_(std::move(users)),
      side_(side),
      begin_(begin),
      end_(end),
      next_(begin) {
  for (Chunk& chunk : chunks_) chunk.owner = this;
}

Staging::Staging(Engine& engine, OpRun& run, uint64_t begin, uint64_t end)
    : engine_(engine),
      run_(run),
      device_(nullptr),
      direction_(Direction::out),
      side_{0, nullptr},
      begin_(begin),
      end_(end),
      next_(begin) {
  for (Chunk& chunk : chunks_) chunk.owner = this;
}

Staging::~Staging() {
  for (Chunk& chunk : chunks_) give_memory(chunk);
}

void Staging::give_memory(Chunk& chunk) {
  if (chunk.bytes == nullptr) return;
  if (bounce_ != nullptr) {
    bounce_->give(chunk.bytes);
  } else {
    engine_.devices().give_chunk(*device_, chunk.bytes);
  }
  chunk.bytes = nullptr;
}

bool Staging::use(std::shared_ptr<Bounce> bounce, uint64_t longest) {
  chunks_[0].bytes = bounce->take();
  if (chunks_[0].bytes == nullptr && end_ - begin_ <= bounce->chunk()) return false;
  bounce_ = std::move(bounce);
  longest_ = longest;
  return true;
}

std::byte* Staging::whole(std::shared_ptr<Bounce> bounce) {
  Chunk& chunk = chunks_[0];
  chunk.bytes = bounce->take();
  if (chunk.bytes == nullptr) return nullptr;
  bounce_ = std::move(bounce);
  chunk.state = Chunk::State::filling;
  chunk.begin = begin_;
  chunk.end = next_ = end_;
  return chunk.bytes;
}

void Staging::wait_for_chunk() { bounce_->wait(run_); }

void Staging::end() {
  if (bounce_ == nullptr) return;
  over_ = true;
  for (Chunk& chunk : chunks_) {
    if (chunk.state != Chunk::State::copying) give_memory(chunk);
  }
}

Staging::Chunk* Staging::chunk_at(uint64_t position) {
  for (Chunk& chunk : chunks_) {
    if (chunk.state != Chunk::State::free && position >= chunk.begin && position < chunk.end) return &chunk;
  }
  return nullptr;
}

/// Of the process's own the first is always to be had; more of them only while few are out.
bool Staging::get_memory(Chunk& chunk) {
  constexpr unsigned kChunksOut = 64;
  if (chunk.bytes != nullptr) return true;
  if (bounce_ != nullptr) {
    chunk.bytes = bounce_->take();
    return chunk.bytes != nullptr;
  }
  if (&chunk != chunks_.data() && engine_.devices().chunks_out() >= kChunksOut) return false;
  chunk.bytes = engine_.devices().take_chunk(*device_);
  if (chunk.bytes == nullptr && &chunk == chunks_.data()) status_ = TW_ERR_NO_MEMORY;
  return chunk.bytes != nullptr;
}

Staging::Chunk* Staging::free_chunk() {
  for (Chunk& chunk : chunks_) {
    if (chunk.state == Chunk::State::free) return get_memory(chunk) ? &chunk : nullptr;
  }
  return nullptr;
}

namespace {

/// Between devices a further piece costs as much as a MiB takes (2.5 us), and the last piece is what its receiver waits for:
/// least where both are equal, at the root.
uint64_t piece_between_devices(uint64_t length) {
  constexpr uint64_t kUnit = 1u << 20;
  uint64_t part = kUnit;
  while (part < kUnit << 10 && part * (part / kUnit) < length) part *= 2;
  return part;
}

}  // namespace

/// Several of a payload that is not short, so that one is copied while the next one comes. Each copy of managed memory costs
/// more.
uint64_t Staging::chunk_of(uint64_t) const {
  constexpr uint64_t kLeast = 128u << 10, kUnit = 64u << 10;
  if (run_.op->kind == MemoryKind::managed) return longest_;
  if (bounce_ != nullptr && bounce_->on_device()) return std::min(piece_between_devices(end_ - begin_), longest_);
  const uint64_t part = ((end_ - begin_) / kDepth + kUnit - 1) / kUnit * kUnit;
  return std::clamp(part, std::min(kLeast, longest_), longest_);
}

Status Staging::copy(std::byte* chunk, uint64_t begin, uint64_t end, DeviceQueues::Done done, void* token) {
  const CopySide here{reinterpret_cast<uintptr_t>(chunk) - begin, nullptr};  // its packed offset 0
  const bool out = direction_ == Direction::out;
  std::vector<Copy> copies;
  const Status status = plan_copies(out ? here : side_, out ? side_ : here, run_.op->length, begin, end, &copies);
  return status == TW_OK ? submit_copies(engine_.devices(), *device_, copies, {side_.kernels}, done, token, users_) : status;
}

/// The device copy of [begin, end), from or to `bytes`.
Status Staging::start(Chunk& chunk, std::byte* bytes, uint64_t begin, uint64_t end) {
  chunk.begin = begin;
  chunk.end = end;
  if (device_ == nullptr) {
    pack_from_host(bytes, begin, end);
    chunk.state = Chunk::State::ready;
    return TW_OK;
  }
  const Status status = copy(bytes, begin, end, copied, &chunk);
  if (is_error(status)) {
    status_ = status;
    chunk.state = Chunk::State::free;
    return status;
  }
  if (begin != begin_ || end != end_) engine_.devices().cut(*device_);
  chunk.state = Chunk::State::copying;
  ++run_.work;
  return TW_OK;
}

/// A peer's piece has been read. The run may have ended meanwhile, and its peer be gone.
void Staging::give_back(Engine& engine, Chunk& chunk) {
  Peer* const sender = std::exchange(chunk.sender, nullptr);
  if (chunk.mapping != nullptr) --std::exchange(chunk.mapping, nullptr)->users;
  const std::vector<Peer*>& peers = engine.peers();
  if (sender == nullptr || std::find(peers.begin(), peers.end(), sender) == peers.end()) return;
  if (sender->link != nullptr && !sender->doomed) send_taken(engine, *sender, chunk.named);
}

void Staging::copied(Engine& engine, void* token, Status status) {
  Chunk& chunk = *static_cast<Chunk*>(token);
  Staging& self = *chunk.owner;
  OpRun& run = self.run_;
  if (is_error(status)) self.status_ = status;
  const bool out = self.direction_ == Direction::out;
  chunk.state = out && !is_error(status) ? Chunk::State::ready : Chunk::State::free;
  give_back(engine, chunk);
  if (self.over_) self.give_memory(chunk);
  if (!engine.work_over(run)) return;
  if (out) {
    if (run.peer != nullptr) engine.pusher().wants(*run.peer);
  } else if (run.work == 0 && self.then_ != nullptr) {
    self.then_(engine, run, self.status_);
  }
}

void Staging::pack_from_host(std::byte* chunk, uint64_t begin, uint64_t end) {
  if (run_.pipeline.contiguous) {
    streaming_copy(chunk, run_.op->address + begin, end - begin);  // not read again here
  } else {
    pack(run_.cursor, chunk, end - begin);
  }
}

/// False: there is no chunk for more, or nothing more.
bool Staging::read_next() {
  if (next_ == end_ || is_error(status_)) return false;
  Chunk* const chunk = free_chunk();
  if (chunk == nullptr) return false;
  const uint64_t n = std::min(end_ - next_, chunk_of(next_));
  if (is_error(start(*chunk, chunk->bytes, next_, next_ + n))) return false;
  next_ += n;
  return true;
}

void Staging::read_ahead() {
  while (read_next()) continue;
}

const std::byte* Staging::look(uint64_t position, size_t* n, Status* status) {
  if (device_ != nullptr) {
    read_ahead();
  } else if (next_ == position) {
    read_next();  // this CPU copies a chunk when its turn has come
  }
  *status = status_;
  const Chunk* chunk = chunk_at(position);
  if (is_error(status_) || chunk == nullptr || chunk->state != Chunk::State::ready) return nullptr;
  *n = chunk->end - position;
  return chunk->bytes + (position - chunk->begin);
}

void Staging::taken(uint64_t position) {
  for (Chunk& chunk : chunks_) {
    if (chunk.state == Chunk::State::ready && chunk.end <= position) chunk.state = Chunk::State::free;
  }
  if (device_ != nullptr) read_ahead();
}

void Staging::taken_oldest() {
  uint64_t first = UINT64_MAX;
  for (const Chunk& chunk : chunks_) {
    if (chunk.state == Chunk::State::ready) first = std::min(first, chunk.end);
  }
  if (first != UINT64_MAX) taken(first);
}

Status Staging::land(uint64_t address, Mapping& mapping, uint64_t begin, uint64_t end, uint64_t op, Then then) {
  const auto is_free = [](const Chunk& one) { return one.state == Chunk::State::free; };
  const auto chunk = std::find_if(chunks_.begin(), chunks_.end(), is_free);
  if (chunk == chunks_.end() || begin != next_) return TW_ERR_PROTOCOL;
  next_ = end;
  if (end == end_) then_ = then;
  chunk->named = op;
  chunk->sender = run_.peer;
  chunk->mapping = &mapping;
  ++mapping.users;
  const Status status = start(*chunk, reinterpret_cast<std::byte*>(address), begin, end);
  if (is_error(status)) give_back(engine_, *chunk);
  return status;
}

std::byte* Staging::room(uint64_t position, size_t* n, Status* status) {
  Chunk* chunk = chunk_at(position);
  while (chunk == nullptr && !is_error(status_)) {
    chunk = free_chunk();
    if (chunk != nullptr) {
      chunk->state = Chunk::State::filling;
      chunk->begin = next_;
      chunk->end = next_ = next_ + std::min(end_ - next_, chunk_of(next_));
    } else if (!is_error(status_)) {
      free_oldest();
    }
  }
  *status = status_;
  if (is_error(status_)) return nullptr;
  *n = chunk->end - position;
  return chunk->bytes + (position - chunk->begin);
}

/// Waits for the oldest copy of its own. Others' are left to progress: what they go on with must not run in the middle of
/// this run.
void Staging::free_oldest() {
  Chunk* oldest = nullptr;
  for (Chunk& chunk : chunks_) {
    const bool copying = chunk.state == Chunk::State::copying;
    if (copying && (oldest == nullptr || chunk.begin < oldest->begin)) oldest = &chunk;
  }
  if (oldest != nullptr) engine_.devices().finish(*device_, oldest);
  const bool freed = oldest != nullptr && oldest->state != Chunk::State::copying;
  if (!freed && !is_error(status_)) status_ = oldest == nullptr ? TW_ERR_NO_MEMORY : TW_ERR_DEVICE;
}

void Staging::drain() {
  then_ = nullptr;
  for (Chunk& chunk : chunks_) {
    if (chunk.state == Chunk::State::copying) engine_.devices().finish(*device_, &chunk);
  }
}

bool Staging::full(uint64_t position) { return chunk_at(position) == nullptr && free_chunk() == nullptr && !is_error(status_); }

void Staging::filled(uint64_t position, Then then) {
  if (position == end_) then_ = then;
  for (Chunk& chunk : chunks_) {
    if (chunk.state == Chunk::State::filling && chunk.end <= position) start(chunk, chunk.bytes, chunk.begin, chunk.end);
  }
  if (then_ != nullptr && run_.work == 0) then_(engine_, run_, status_);  // nothing is under way: refused by the device
}

void stage(Engine& engine, OpRun& run, Staging::Direction direction, uint64_t begin, uint64_t end) {
  if (run.staging != nullptr) run.staging->drain();  // an earlier phase failed with copies under way
  delete run.staging;
  const CopySide local = copy_side(reinterpret_cast<uintptr_t>(run.op->address), run.op->layout);
  run.staging = new Staging(engine, run, *run.op->device, local, direction, begin, end);
  run.extras = true;
}

}  // namespace thalweg::impl
