// SPDX-License-Identifier: Apache-2.0
#include "exposed.hpp"

#include <algorithm>
#include <vector>

#include "starter.hpp"

namespace perf {
namespace {

/// Exports by `ask` here, and what the other process did.
template <class Ask>
std::vector<unsigned char> their_key(Exposed& both, const Ask& ask) {
  size_t size = 0;
  must(ask(nullptr, &size), "the size of a key");
  std::vector<unsigned char> mine(size);
  must(ask(mine.data(), &size), "exporting");
  uint64_t length = size, their_length = 0;
  both.exchange(&length, &their_length, sizeof length);
  const uint64_t room = std::max(length, their_length);
  mine.resize(room);
  std::vector<unsigned char> theirs(room);
  both.exchange(mine.data(), theirs.data(), room);
  theirs.resize(their_length);
  return theirs;
}

}  // namespace

Exposed::Exposed(Pair& p, const Order& order, size_t count)
    : pair(p), target(p.context, order, count, p.rank), source(p.context, order, count, p.rank) {
  tw_signal_options o = TW_SIGNAL_OPTIONS_INIT;
  if (on_device(order.memory[p.rank]) && order.trigger != static_cast<uint8_t>(Trigger::call)) {
    tw_memory_options at = TW_MEMORY_OPTIONS_INIT;
    const std::string place = plan_place(order, p.rank);
    at.place = place.c_str();
    must(tw_memory_allocate(p.context, sizeof(uint64_t), &at, &word_), "tw_memory_allocate");
    o.memory = word_;
  }
  must(tw_signal_create(p.worker, &o, &signal), "tw_signal_create");
  const auto memory_key =
      their_key(*this, [&](void* key, size_t* size) { return tw_memory_export(target.memory(), key, size); });
  const auto signal_key = their_key(*this, [&](void* key, size_t* size) { return tw_signal_export(signal, key, size); });
  must(tw_memory_import(p.endpoint, memory_key.data(), memory_key.size(), &remote), "tw_memory_import");
  must(tw_signal_import(p.endpoint, signal_key.data(), signal_key.size(), &remote_signal), "tw_signal_import");
  void* mapped = nullptr;
  map = tw_remote_memory_map(remote, &mapped) == TW_OK;
}

Exposed::~Exposed() {
  pair.sync();
  tw_remote_memory_release(remote);
  tw_remote_signal_release(remote_signal);
  (void)tw_signal_destroy(signal);
  if (word_ != nullptr) (void)tw_memory_release(word_);
}

uint64_t Exposed::signal_value() const {
  if (word_ == nullptr) return tw_signal_read(signal);
  uint64_t value = 0;
  must(tw_memory_copy(pair.context, &value, tw_memory_address(word_), sizeof value), "tw_memory_copy");
  return value;
}

void Exposed::exchange(void* mine, void* theirs, size_t n) {
  const tw_request r = pair.post_receive(theirs, n, kControlTag);
  pair.send(mine, n, kControlTag);
  pair.wait(r);
}

void Exposed::reset_signal() {
  pair.sync();
  must(tw_signal_reset(signal, 0), "tw_signal_reset");
  pair.sync();
}

tw_op_options Exposed::options() const {
  tw_op_options o = TW_OP_OPTIONS_INIT;
  o.layout = source.layout();
  o.remote_layout = target.layout();
  return o;
}

}  // namespace perf
