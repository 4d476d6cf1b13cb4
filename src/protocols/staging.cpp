// SPDX-License-Identifier: Apache-2.0
// Staging; see staging.hpp. A chunk goes free -> copying -> ready -> free (out), or free -> filling -> copying -> free (in).
#include "protocols/staging.hpp"

#include <algorithm>
#include <utility>

namespace thalweg::impl {

Staging::Staging(Engine& engine, OpRun& run, Device& device, const Side& side, Direction direction, uint64_t begin,
                 uint64_t end, GuestLists hosts)
    : engine_(engine),
      run_(run),
      device_(device),
      direction_(direction),
      hosts_(std::move(hosts)),
      side_(side),
      end_(end),
      next_(begin) {
  for (Chunk& chunk : chunks_) chunk.owner = this;
}

Staging::~Staging() {
  for (Chunk& chunk : chunks_) {
    if (chunk.bytes != nullptr) engine_.devices().give_chunk(device_, chunk.bytes);
  }
}

Staging::Chunk* Staging::chunk_at(uint64_t position) {
  for (Chunk& chunk : chunks_) {
    if (chunk.state != Chunk::State::free && position >= chunk.begin && position < chunk.end) return &chunk;
  }
  return nullptr;
}

/// The first chunk is always to be had; more of them only while few are out.
Staging::Chunk* Staging::free_chunk() {
  constexpr unsigned kChunksOut = 64;
  for (Chunk& chunk : chunks_) {
    if (chunk.state != Chunk::State::free) continue;
    if (chunk.bytes == nullptr) {
      if (&chunk != chunks_.data() && engine_.devices().chunks_out() >= kChunksOut) return nullptr;
      chunk.bytes = engine_.devices().take_chunk(device_);
      if (chunk.bytes == nullptr) {
        if (&chunk == chunks_.data()) status_ = TW_ERR_NO_MEMORY;
        return nullptr;
      }
    }
    return &chunk;
  }
  return nullptr;
}

uint64_t Staging::chunk_of(uint64_t) const { return DeviceLane::kChunk; }

Status Staging::copy(std::byte* chunk, uint64_t begin, uint64_t end, DeviceLane::Done done, void* token) {
  const Side here{reinterpret_cast<uintptr_t>(chunk) - begin, nullptr};  // its packed offset 0
  const bool out = direction_ == Direction::out;
  std::vector<Copy> copies;
  const Status status = plan_copies(out ? here : side_, out ? side_ : here, run_.op->length, begin, end, &copies);
  return status == TW_OK ? submit_copies(engine_.devices(), device_, copies, side_.kernels, done, token, hosts_) : status;
}

/// The device copy of [begin, end), from or to the chunk.
Status Staging::start(Chunk& chunk, uint64_t begin, uint64_t end) {
  chunk.begin = begin;
  chunk.end = end;
  const Status status = copy(chunk.bytes, begin, end, copied, &chunk);
  if (is_error(status)) {
    status_ = status;
    chunk.state = Chunk::State::free;
    return status;
  }
  chunk.state = Chunk::State::copying;
  ++run_.work;
  return TW_OK;
}

void Staging::copied(Engine& engine, void* token, Status status) {
  Chunk& chunk = *static_cast<Chunk*>(token);
  Staging& self = *chunk.owner;
  OpRun& run = self.run_;
  if (is_error(status)) self.status_ = status;
  const bool out = self.direction_ == Direction::out;
  chunk.state = out && !is_error(status) ? Chunk::State::ready : Chunk::State::free;
  if (!engine.work_over(run)) return;
  if (out) {
    if (run.peer != nullptr) engine.wants_push(*run.peer);
  } else if (run.work == 0 && self.then_ != nullptr) {
    self.then_(engine, run, self.status_);
  }
}

void Staging::read_ahead() {
  while (next_ < end_ && status_ == TW_OK) {
    Chunk* chunk = free_chunk();
    if (chunk == nullptr) return;
    const uint64_t n = std::min(end_ - next_, chunk_of(next_));
    if (is_error(start(*chunk, next_, next_ + n))) return;
    next_ += n;
  }
}

const std::byte* Staging::look(uint64_t position, size_t* n, Status* status) {
  read_ahead();
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
  read_ahead();
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

/// Waits for the oldest copy of its own. Others' are left to progress: what they go on with must not run in the middle of this run.
void Staging::free_oldest() {
  Chunk* oldest = nullptr;
  for (Chunk& chunk : chunks_) {
    const bool copying = chunk.state == Chunk::State::copying;
    if (copying && (oldest == nullptr || chunk.begin < oldest->begin)) oldest = &chunk;
  }
  if (oldest != nullptr) engine_.devices().finish(device_, oldest);
  const bool freed = oldest != nullptr && oldest->state != Chunk::State::copying;
  if (!freed && !is_error(status_)) status_ = oldest == nullptr ? TW_ERR_NO_MEMORY : TW_ERR_DEVICE;
}

void Staging::drain() {
  then_ = nullptr;
  for (Chunk& chunk : chunks_) {
    if (chunk.state == Chunk::State::copying) engine_.devices().finish(device_, &chunk);
  }
}

bool Staging::full(uint64_t position) { return chunk_at(position) == nullptr && free_chunk() == nullptr && !is_error(status_); }

void Staging::filled(uint64_t position, Then then) {
  if (position == end_) then_ = then;
  for (Chunk& chunk : chunks_) {
    if (chunk.state == Chunk::State::filling && chunk.end <= position) start(chunk, chunk.begin, chunk.end);
  }
  if (then_ != nullptr && run_.work == 0) then_(engine_, run_, status_);  // nothing is under way: refused by the device
}

void stage(Engine& engine, OpRun& run, Staging::Direction direction, uint64_t begin, uint64_t end) {
  if (run.staging != nullptr) run.staging->drain();  // an earlier phase failed with copies under way
  delete run.staging;
  const Side local = side_of(reinterpret_cast<uintptr_t>(run.op->address), run.op->layout);
  run.staging = new Staging(engine, run, *run.op->device, local, direction, begin, end);
  run.extras = true;
}

}  // namespace thalweg::impl
