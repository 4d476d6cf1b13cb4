// SPDX-License-Identifier: Apache-2.0
#include "routes/traffic.hpp"

#include <algorithm>

namespace thalweg::impl {

void EndpointCounts::read(const EndpointTally& from) {
  moved = {};
  from.moved.add_to(moved);
  received = from.received.get();
  received_bytes = from.received_bytes.get();
  fetched = from.fetched.get();
  fetched_bytes = from.fetched_bytes.get();
  announced = from.announced.get();
  announced_bytes = from.announced_bytes.get();
  stream_sends = from.stream_sends.get();
  stream_sent = from.stream_sent.get();
  stream_received = from.stream_received.get();
  retries = from.retries.get();
}

EndpointCounts& EndpointCounts::operator+=(const EndpointCounts& other) {
  for (size_t i = 0; i < kWays; ++i) moved[i] += other.moved[i];
  received += other.received;
  received_bytes += other.received_bytes;
  fetched += other.fetched;
  fetched_bytes += other.fetched_bytes;
  announced += other.announced;
  announced_bytes += other.announced_bytes;
  stream_sends += other.stream_sends;
  stream_sent += other.stream_sent;
  stream_received += other.stream_received;
  retries += other.retries;
  return *this;
}

/// The counters are read one after the other while they go on: what is behind another one must not come out below it.
Moved::Count EndpointCounts::accesses() const {
  Moved::Count sum;
  for (const Way way : {Way::frames, Way::mapped, Way::kernel, Way::push, Way::pull, Way::staging}) sum += moved[size_t(way)];
  const auto less = [](uint64_t a, uint64_t b) { return a > b ? a - b : 0; };
  return {less(sum.operations, fetched + stream_sends), less(sum.bytes, fetched_bytes + stream_sent)};
}

void Traffic::add(const Moved& of) {
  const std::lock_guard lock(mutex_);
  alive_.push_back(&of);
}

/// Under the lock.
void Traffic::keep(const Moved& of) {
  of.add_to(ended_);
  ended_named_ += of.named();
}

void Traffic::remove(const Moved& of) {
  const std::lock_guard lock(mutex_);
  if (std::erase(alive_, &of) != 0) keep(of);
}

void Traffic::add(const EndpointTally& of, uint64_t worker) {
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = endpoints_.try_emplace(&of);
  if (!fresh) return;
  at->second.id = next_id_++;
  at->second.worker = worker;
}

void Traffic::connected(const EndpointTally& of, const char* transport, const PeerIdentity& peer) {
  const std::lock_guard lock(mutex_);
  const auto at = endpoints_.find(&of);
  if (at == endpoints_.end()) return;
  at->second.transport = transport;
  at->second.peer = peer;
  at->second.state = TW_OK;
}

void Traffic::lost(const EndpointTally& of, Status why) {
  const std::lock_guard lock(mutex_);
  if (const auto at = endpoints_.find(&of); at != endpoints_.end()) at->second.state = why;
}

void Traffic::remove(const EndpointTally& of) {
  const std::lock_guard lock(mutex_);
  const auto at = endpoints_.find(&of);
  if (at == endpoints_.end()) return;
  at->second.read(of);
  gone_[at->second.worker] += at->second;
  endpoints_.erase(at);
  keep(of.moved);
}

void Traffic::forget(uint64_t worker) {
  const std::lock_guard lock(mutex_);
  gone_.erase(worker);
}

uint64_t Traffic::named() const {
  const std::lock_guard lock(mutex_);
  uint64_t sum = ended_named_;
  for (const Moved* of : alive_) sum += of->named();
  for (const auto& [tally, what] : endpoints_) sum += tally->moved.named();
  return sum;
}

Moved::Counts Traffic::sum() const {
  const std::lock_guard lock(mutex_);
  Moved::Counts sum = ended_;
  for (const Moved* of : alive_) of->add_to(sum);
  for (const auto& [tally, what] : endpoints_) tally->moved.add_to(sum);
  return sum;
}

std::vector<EndpointCounts> Traffic::endpoints(std::map<uint64_t, EndpointCounts>* gone) const {
  std::vector<EndpointCounts> all;
  {
    const std::lock_guard lock(mutex_);
    *gone = gone_;
    all.reserve(endpoints_.size());
    for (const auto& [tally, what] : endpoints_) all.emplace_back(what).read(*tally);
  }
  std::sort(all.begin(), all.end(), [](const EndpointCounts& a, const EndpointCounts& b) { return a.id < b.id; });
  return all;
}

}  // namespace thalweg::impl
