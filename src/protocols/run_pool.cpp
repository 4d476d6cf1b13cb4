// SPDX-License-Identifier: Apache-2.0
// Pools of runs, the table of all pools, and look-ups by request number from any thread.
#include "protocols/run_pool.hpp"

#include <sys/random.h>

#include <cstdlib>
#include <mutex>
#include <new>

#include "base/platform/process.hpp"
#include "protocols/staging.hpp"

namespace thalweg::impl {

std::atomic<RunPool*> RunPool::pools_[RunPool::kPools];

namespace {
std::mutex pools_mutex;
}  // namespace

RunPool* RunPool::take(Engine* engine) {
  std::lock_guard lock(pools_mutex);
  for (unsigned i = 0; i < kPools; ++i) {
    RunPool* pool = pools_[i].load(std::memory_order_relaxed);
    if (pool == nullptr) {
      pool = new (std::nothrow) RunPool();
      if (pool == nullptr) {
        fail(TW_ERR_NO_MEMORY, "no memory for a worker's requests");
        return nullptr;
      }
      pool->base_ = uint64_t{i} << (kSlotBits + kGenerationBits);
      pool->engine_.store(engine, std::memory_order_release);
      pools_[i].store(pool, std::memory_order_release);  // release: its fields are visible to find_any
      return pool;
    }
    if (pool->engine() == nullptr) {
      pool->born_ = BornHere();
      pool->engine_.store(engine, std::memory_order_release);
      return pool;
    }
  }
  fail(TW_ERR_LIMIT, "more than %u workers are alive in this process: destroy some", kPools);
  return nullptr;
}

void RunPool::give_back() {
  for (uint32_t i = 0; i < chunk_count_ * kChunk; ++i) {
    OpRun* run = slot(i);
    if ((run->generation.load(std::memory_order_relaxed) & 1) != 0) free(*run);
  }
  std::lock_guard lock(pools_mutex);
  engine_.store(nullptr, std::memory_order_release);
}

void RunPool::start_at(uint32_t generation) {
  first_generation_ = generation;
  for (OpRun* run = free_; run != nullptr; run = run->link.next) {
    run->generation.store(generation, std::memory_order_release);
    run->wire_op = 0;  // of a life that may have this generation
  }
}

OpRun* RunPool::grow() {
  if (chunk_count_ == kChunks) {
    fail(TW_ERR_LIMIT, "%u requests are alive on one worker: release completed ones", kChunk * kChunks);
    return nullptr;
  }
  OpRun* chunk = new (std::nothrow) OpRun[kChunk];
  if (chunk == nullptr) {
    fail(TW_ERR_NO_MEMORY, "no memory for more requests");
    return nullptr;
  }
  for (uint32_t i = 0; i < kChunk; ++i) {
    chunk[i].slot = chunk_count_ * kChunk + i;
    chunk[i].generation.store(first_generation_, std::memory_order_relaxed);
    chunk[i].link.next = i + 1 < kChunk ? &chunk[i + 1] : nullptr;
  }
  chunks_[chunk_count_++].store(chunk, std::memory_order_release);  // release: slots are initialised before they are found
  return chunk;
}

void RunPool::draw_secrets() {
  // Up to 256 bytes come whole, or there is no getrandom here.
  const bool drawn = getrandom(secrets_, sizeof secrets_, 0) == static_cast<ssize_t>(sizeof secrets_);
  for (uint64_t& one : secrets_) {
    if (!drawn) one = random_id();
    one = one >> (64 - kSecretBits) != 0 ? one >> (64 - kSecretBits) : 1;
  }
  secrets_left_ = kSecrets;
}

void RunPool::free_extras(OpRun& run) {
  if (run.owns_header) delete[] run.own.header;
  if (run.own.layout != nullptr) impl::release(run.own.layout);
  if (run.own.remote_layout != nullptr) impl::release(run.own.remote_layout);
  if ((run.own.flags & kOpLate) != 0) impl::release(run.own.after);
  delete run.staging;
  run.staging = nullptr;
  std::free(run.bounce_buffer);
  run.bounce_buffer = nullptr;
  delete run.text;
  run.text = nullptr;
  delete run.loan;
  run.loan = nullptr;
  run.owns_header = run.extras = run.traced = false;
}

OpRun* RunPool::find_any(uint64_t number, RunPool** pool) {
  RunPool* found = of(number);
  if (found == nullptr || found->engine() == nullptr) return nullptr;
  *pool = found;
  return found->find_here(number);
}

bool RunPool::calls_back() {
  // Relaxed: what this thread has stored. Pools have no gaps.
  for (const std::atomic<RunPool*>& one : pools_) {
    const RunPool* const pool = one.load(std::memory_order_acquire);
    if (pool == nullptr) return false;
    if (pool->caller.load(std::memory_order_relaxed) == pthread_self()) return true;
  }
  return false;
}

Status RunPool::test(uint64_t number) {
  RunPool* pool = of(number);
  OpRun* run = pool == nullptr ? nullptr : pool->find_here(number);
  if (run != nullptr) {
    Status status = run->status.load(std::memory_order_acquire);  // acquire: what was received is visible
    if (same_life(*run, number)) {
      // A child's copy of its parent's request would stay in progress for ever.
      if (status == TW_IN_PROGRESS && is_error(pool->born_.check("request"))) return TW_ERR_FORKED;
      return status;
    }
  }
  return fail(TW_ERR_HANDLE, "this request is not alive: it was released, or its worker is gone");
}

}  // namespace thalweg::impl
