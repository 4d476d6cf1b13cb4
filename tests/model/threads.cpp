// SPDX-License-Identifier: Apache-2.0
#include "model/threads.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "model/world.hpp"
#include "protocols/active.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/operation_routes.hpp"

namespace thalweg::model {

struct Threads::Worker {
  Worker(World& world, unsigned index, uint64_t seed) : random(seed), owns(world, index, seed + 1) {}
  /// Registered memory that is no message's target.
  struct Region {
    Host* host;
    tw_memory* memory;
    std::unique_ptr<std::byte[]> plain;
    KeyBody key{};
  };
  Random random;
  Owns owns;
  std::map<tw_request, Status> seen;  // how requests had ended
  std::deque<Region> regions;
  std::deque<std::pair<Host*, tw_signal*>> signals;
  std::thread thread;
};

Threads::Threads(World& world, unsigned count, uint64_t seed) : world_(world) {
  for (unsigned w = 0; w < world.program_.workers; ++w)
    set_handler(*world.workers_[w].engine, kTheirId, Owns::handler, nullptr);
  for (unsigned i = 0; i < count; ++i) workers_.push_back(std::make_unique<Worker>(world, i, seed * 31 + i * 7 + 5));
}

void Threads::start() {
  joined_ = false;
  turn_.lock();
  for (auto& one : workers_) one->thread = std::thread([this, &one] { live(*one); });
  while (ready_ != workers_.size()) std::this_thread::yield();
}

Threads::~Threads() { join(); }

void Threads::wrong(const char* what) {
  const std::lock_guard lock(failing_);
  if (failure_.empty()) failure_ = what;
  failed_ = true;
}

std::string Threads::failure() {
  const std::lock_guard lock(failing_);
  return failure_;
}

// ------------------------------------------------------------------------------------------------ the turn

void Threads::breathe() {
  if (joined_ || wanted_ == 0) return;
  turn_.unlock();
  for (unsigned i = 0; i < 20 && wanted_ != 0; ++i) std::this_thread::yield();
  turn_.lock();
}

std::unique_lock<std::shared_mutex> Threads::pause() {
  paused_ = true;
  std::unique_lock lock(acting_);
  paused_ = false;
  for (auto& one : workers_) one->owns.release_stream();
  return lock;
}

void Threads::show(tw_request request) {
  if (request != TW_REQUEST_NONE) shown_[next_shown_.fetch_add(1) % kShown].store(request, std::memory_order_relaxed);
}

void Threads::join() {
  if (joined_) return;
  stop_ = true;
  joined_ = true;
  turn_.unlock();
  for (auto& one : workers_) one->thread.join();
}

// ------------------------------------------------------------------------------------------------ one of them

void Threads::live(Worker& mine) {
  beside.is = true;
  beside.random = Random(mine.random.next());
  ++ready_;
  while (!stop_ && !failed()) {
    while (paused_ && !stop_) std::this_thread::yield();
    const std::shared_lock lock(acting_);
    act(mine);
    if (!mine.owns.failure.empty()) wrong(mine.owns.failure.c_str());
  }
}

void Threads::act(Worker& mine) {
  const unsigned what = mine.random.below(100);
  if (what < 18) {
    mine.owns.begin();
  } else if (what < 58) {
    mine.owns.look();
  } else if (what < 70) {
    for (unsigned i = 1 + mine.random.below(4); i != 0; --i) use_registry(mine);
  } else if (what < 75) {
    use_signals(mine);
  } else if (what < 87) {
    test_a_request(mine);
  } else if (what < 90) {
    explain_something(mine);
  } else if (what < 94) {
    arm_or_wake(mine);
  } else {
    progress(mine);
  }
}

void Threads::progress(Worker& mine) {
  ++wanted_;
  bool has = false;
  for (unsigned i = 0; i < 50 && !has && !stop_; ++i) {
    has = turn_.try_lock();
    if (!has) std::this_thread::yield();
  }
  --wanted_;
  if (!has) return;
  beside.is = false;
  World::Worker& worker = world_.workers_[mine.random.below(world_.program_.workers)];
  const bool may = !worker.port->dead && world_.failure_.empty() && !stop_;
  for (unsigned i = mine.random.below(4); may && i != 0 && !worker.port->dead; --i) world_.progress(worker);
  beside.is = true;
  turn_.unlock();
}

/// Any number, alive or not. What has ended stays so, and is dead when it was released.
void Threads::test_a_request(Worker& mine) {
  const tw_request request = shown_[mine.random.below(kShown)].load(std::memory_order_relaxed);
  if (request == TW_REQUEST_NONE) return;
  const Status status = Engine::test(request);
  const auto [known, fresh] = mine.seen.try_emplace(request, status);
  const Status before = std::exchange(known->second, status);
  if (fresh || before == TW_IN_PROGRESS || before == status || status == TW_ERR_HANDLE) return;
  wrong(
      (std::string("a request had ended with \"") + status_text(before) + "\", and is told as \"" + status_text(status) + "\"")
          .c_str());
}

void Threads::explain_something(Worker& mine) {
  const unsigned from = mine.random.below(world_.program_.workers), others = world_.program_.workers - 1u;
  const unsigned to = (from + 1 + mine.random.below(others)) % world_.program_.workers;
  if (world_.dead(from)) return;
  Engine& engine = *world_.workers_[from].engine;
  const Engine::Guard guard(engine);
  OpDesc op;
  op.verb = mine.random.of({Verb::send, Verb::put, Verb::get, Verb::am, Verb::atomic});
  op.peer = &world_.end(from, to).peer;
  op.length = 8;
  op.word = 8;
  if (explain(op).empty()) wrong("nothing is explained");
  if (engine.runs().alive() > RunPool::kChunk * RunPool::kChunks) wrong("there are more requests than may be");
}

void Threads::arm_or_wake(Worker& mine) {
  World::Worker& worker = world_.workers_[mine.random.below(world_.program_.workers)];
  if (worker.port->dead) return;
  if (mine.random.percent(50)) {
    worker.port->wake();
  } else if (worker.engine->arm() == TW_OK) {
    worker.port->wake();  // a poster beside an armed worker has to progress; this one leaves that to others
  }
}

// ------------------------------------------------------------------------------------------------ registries

void Threads::use_registry(Worker& mine) {
  Host& host = *world_.workers_[mine.random.below(world_.program_.workers)].host;
  Registry& registry = host.registry;
  uint64_t segment = 0, offset = 0;
  // What operations of the program look up, too.
  const tw_memory& buffers = host.buffers();
  const size_t at = mine.random.below(1u << 20);
  if (!registry.find_segment(buffers.address + at, 100, &segment, &offset) || segment != buffers.segment_id || offset != at)
    return wrong("memory of the library is not found by its address");
  if (mine.regions.size() < 4 && mine.random.percent(60)) {
    Worker::Region region{&host, nullptr, nullptr};
    const size_t length = mine.random.of({64u, 4096u, 20000u});
    Status status = TW_OK;
    if (mine.random.percent(50)) {
      status = registry.allocate(length, 0, false, &region.memory);
    } else {
      region.plain.reset(new std::byte[length]);
      status = registry.register_memory(region.plain.get(), length, 0, &region.memory);
    }
    if (status == TW_OK) status = registry.export_range(region.memory, 0, length, 0, &region.key);
    if (status != TW_OK) return wrong(last_error());
    mine.regions.push_back(std::move(region));
    return;
  }
  if (mine.regions.empty()) return;
  Worker::Region& oldest = mine.regions.front();
  Registry& its = oldest.host->registry;
  const auto resolve = [&] {
    const Registry::Reading reading(its);
    Target target;
    return its.resolve(reading, oldest.key.rkey, 8, 16, TW_MEMORY_WRITE, &target);
  };
  if (resolve() != TW_OK) return wrong("a key that is alive is not resolved");
  if (oldest.plain == nullptr) {
    size_t length = 0;
    int fd = -1;
    if (!its.find_segment(oldest.memory->address, 64, &segment, &offset) || segment != oldest.key.segment)
      return wrong("allocated memory is not found by its address");
    if (its.segment_fd(segment, &fd, &length) != TW_OK) return wrong("a segment that is alive has no descriptor");
    ::close(fd);
  }
  if (mine.random.percent(30) && its.revoke(oldest.key.rkey) == TW_OK && resolve() != TW_ERR_STALE)
    return wrong("a revoked key is resolved");
  if (its.release(oldest.memory) != TW_OK) return wrong("memory that nobody uses cannot be released");
  if (resolve() != TW_ERR_STALE) return wrong("a key of released memory is resolved");
  mine.regions.pop_front();
}

void Threads::use_signals(Worker& mine) {
  if (mine.signals.size() < 4 && mine.random.percent(60)) {
    Host& host = *world_.workers_[mine.random.below(world_.program_.workers)].host;
    tw_signal* signal = nullptr;
    KeyBody key{};
    if (host.signals().create(TW_SIGNAL_SET, 7, &signal) != TW_OK || host.signals().export_signal(signal, &key) != TW_OK)
      return wrong("a signal cannot be made");
    mine.signals.emplace_back(&host, signal);
  } else if (!mine.signals.empty()) {
    const auto [host, signal] = mine.signals.front();
    if (signal_read(*signal) != 7) return wrong("a signal that nobody knows has another value");
    if (host->signals().destroy(signal) != TW_OK) return wrong("a signal cannot be destroyed");
    mine.signals.pop_front();
  }
}

// ------------------------------------------------------------------------------------------------ the end

bool Threads::finish() {
  bool any = false;
  for (auto& one : workers_) any |= one->owns.finish();
  return any;
}

void Threads::check() {
  for (auto& one : workers_) {
    one->owns.check();
    if (!one->owns.failure.empty()) return world_.wrong(one->owns.failure);
  }
}

void Threads::give_back() {
  join();
  for (auto& one : workers_) {
    one->owns.give_back();
    for (Worker::Region& region : one->regions) region.host->registry.release(region.memory);
    for (const auto& [host, signal] : one->signals) host->signals().destroy(signal);
    one->regions.clear();
    one->signals.clear();
  }
}

}  // namespace thalweg::model
