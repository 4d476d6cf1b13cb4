// SPDX-License-Identifier: Apache-2.0
// Making and ending a window.
#include <cstring>

#include "base/interrupt.hpp"
#include "base/told_status.hpp"
#include "core/remote_map.hpp"
#include "plans/reach.hpp"
#include "plans/window.hpp"

using namespace thalweg::impl;

namespace {

constexpr uint64_t kMagic = 0x7468616c776e6431;  // of this form of the two messages

/// How long an exchange goes on after a loss that it may have nothing to do with.
constexpr uint64_t kLastWords = 500 * kMillisecond;

/// First exchange: what each rank gives.
struct Contribution {
  uint64_t magic;
  uint32_t rank, size;
  uint64_t length;
  int32_t status;  // why this rank cannot take part
  uint32_t key_length;
  unsigned char key[kKeySize];
};
static_assert(sizeof(Contribution) == 32 + kKeySize);

/// Second: could it import everybody's?
struct Outcome {
  uint64_t magic;
  int32_t status;
  uint32_t reserved;
};

Status refuse_rank(uint32_t rank, int32_t told) {
  const Status status = told_status(told);
  return fail(status, "rank %u cannot take part in the window (%s): its own error text says why", rank, tw_status_name(status));
}

/// Everybody reads the same, so everybody comes to the same end.
Status check_contributions(const std::vector<Contribution>& all) {
  const auto size = static_cast<uint32_t>(all.size());
  for (uint32_t i = 0; i < size; ++i) {
    const Contribution& one = all[i];
    if (one.magic != kMagic || one.key_length > sizeof one.key)
      return fail(TW_ERR_INVALID,
                  "the exchange gave something else than what rank %u sent; all ranks must create windows in the "
                  "same order, with the same version of the library",
                  i);
    if (one.status != TW_OK) return refuse_rank(i, one.status);
    if (one.size != size || one.rank != i)
      return fail(TW_ERR_INVALID, "in place %u the exchange gave rank %u of %u, instead of rank %u of %u", i, one.rank,
                  one.size, i, size);
    if (one.length != all[0].length)
      return fail(TW_ERR_INVALID, "rank %u gives %llu bytes to the window and rank 0 %llu: all must give the same", i,
                  static_cast<unsigned long long>(one.length), static_cast<unsigned long long>(all[0].length));
  }
  return TW_OK;
}

}  // namespace

Status thalweg::impl::check_endpoints(const char* what, const tw_worker& worker, tw_endpoint* const* endpoints, uint32_t rank,
                                      uint32_t size) {
  if (size > 1 && endpoints == nullptr) return fail(TW_ERR_INVALID, "a %s of %u ranks needs their endpoints", what, size);
  for (uint32_t i = 0; i < size && size > 1; ++i) {
    if (i == rank && endpoints[i] != nullptr) return fail(TW_ERR_INVALID, "the own entry of endpoints must be NULL");
    if (i == rank) continue;
    if (endpoints[i] == nullptr) return fail(TW_ERR_INVALID, "there is no endpoint for rank %u", i);
    if (tw_endpoint_worker(endpoints[i]) != &worker)
      return fail(TW_ERR_INVALID, "the endpoint for rank %u is not (or no more) one of this worker", i);
    for (uint32_t other = 0; other < i; ++other) {
      if (endpoints[other] == endpoints[i])
        return fail(TW_ERR_INVALID, "ranks %u and %u have the same endpoint: each rank is a worker of its own", other, i);
    }
  }
  return TW_OK;
}

tw_window::tw_window(tw_worker& owner, tw_memory* own, const tw_window_options& options)
    : worker(owner), memory(own), timeout_ns(options.timeout_ns != 0 ? options.timeout_ns : 30 * kSecond) {}

/// What the exchange waits for may never come, since a peer died. One that ended in good order has given its part before: the
/// others' are there, too, and come at once.
Status tw_window::look_for_losses() {
  if (worker.engine->may_progress()) worker.progress();  // tcp reports losses there
  const Status status = board->check();
  if (!is_error(status)) return TW_OK;
  const uint64_t now = monotonic_ns();
  if (lost_at_ == 0) lost_at_ = now;
  return now - lost_at_ < kLastWords ? Status{TW_OK} : status;
}

Status tw_window::exchange(const void* mine, size_t length, void* values) {
  const WaitWatch watch([](void* window) { return static_cast<tw_window*>(window)->look_for_losses(); }, this);
  Status status = TW_OK;
  if (exchange_ == nullptr) {
    status = tw_store_exchange(static_cast<tw_store*>(arg_), mine, length, values);
  } else {
    status = exchange_(arg_, mine, length, values);
    if (status > TW_OK) return fail(TW_ERR_INVALID, "the exchange of the window returned %d instead of a status", status);
  }
  if (!is_error(status)) return status;
  const std::string why = last_error();
  if (Status lost = board->check(); is_error(lost)) return lost;  // a better reason
  return fail(status, "%s", why.c_str());
}

Status tw_window::create(Status so_far, tw_endpoint* const* endpoints, uint32_t own_rank, uint32_t size,
                         tw_exchange exchange_with, void* arg) {
  exchange_ = exchange_with;
  arg_ = arg;
  rank = own_rank;
  ranks.resize(size);
  Contribution mine{kMagic, rank, size, 0, so_far, 0, {}};
  if (mine.status == TW_OK) mine.status = check_endpoints("window", worker, endpoints, rank, size);
  size_t key_length = sizeof mine.key;
  if (mine.status == TW_OK) mine.status = tw_memory_export(memory, mine.key, &key_length);
  const std::string own_text = mine.status == TW_OK ? "" : last_error();
  if (mine.status == TW_OK) {
    mine.length = memory->length;
    mine.key_length = static_cast<uint32_t>(key_length);
  }

  std::vector<Contribution> all(size);
  if (Status s = exchange(&mine, sizeof mine, all.data()); is_error(s)) return s;
  if (mine.status != TW_OK) return fail(mine.status, "%s", own_text.c_str());
  if (Status s = check_contributions(all); is_error(s)) return s;

  Outcome outcome{kMagic, TW_OK, 0};
  find_host_address(rank);
  for (uint32_t i = 0; i < size && outcome.status == TW_OK; ++i) {
    if (i == rank) continue;
    ranks[i].endpoint = endpoints[i];
    outcome.status = join(i, all[i].key, all[i].key_length);
  }
  const std::string import_text = outcome.status == TW_OK ? "" : last_error();
  std::vector<Outcome> outcomes(size);
  const Status agreed = exchange(&outcome, sizeof outcome, outcomes.data());
  if (outcome.status != TW_OK) return fail(outcome.status, "%s", import_text.c_str());
  if (is_error(agreed)) return agreed;
  for (uint32_t i = 0; i < size; ++i) {
    if (outcomes[i].magic != kMagic) return fail(TW_ERR_INVALID, "the exchange gave something else than what rank %u sent", i);
    if (outcomes[i].status != TW_OK) return refuse_rank(i, outcomes[i].status);
  }
  return TW_OK;
}

/// Connects, imports and watches one peer.
Status tw_window::join(uint32_t peer, const void* key, size_t key_length) {
  WindowRank& other = ranks[peer];
  Status status = tw_endpoint_wait(other.endpoint, timeout_ns);
  if (is_error(status)) {
    const std::string why = last_error();
    return fail(status, "rank %u is not connected: %s", peer, why.c_str());
  }
  status = tw_memory_import(other.endpoint, key, key_length, &other.remote);
  if (is_error(status)) return status;
  if (tw_remote_memory_length(other.remote) != memory->length)
    return fail(TW_ERR_PROTOCOL, "the key of rank %u is not of the length that it announced", peer);
  other.watch = std::make_shared<RankWatch>(board, peer);
  {
    const Engine::Guard guard(*worker.engine);
    Peer& at = *other.endpoint->peer;
    if (is_error(at.state)) return fail(at.state, "rank %u: %s", peer, at.why.c_str());
    std::erase_if(other.endpoint->watches, [](const auto& one) { return one.expired(); });  // of windows that have ended
    other.endpoint->watches.push_back(other.watch);
    if (at.link != nullptr) at.link->port->watch_loss(*at.link, other.watch);
  }
  find_host_address(peer);
  return TW_OK;
}

/// Of any rank's part, for code of the host.
void tw_window::find_host_address(uint32_t of) {
  WindowRank& other = ranks[of];
  uint64_t address = 0;
  Prepared part;
  if (is_error(describe(of, nullptr, &part, &address))) {
    other.why_not = last_error();
    return;
  }
  switch (prepared_route(part)) {
    case PreparedRoute::own:
      other.host = reinterpret_cast<std::byte*>(address);
      return;
    case PreparedRoute::mapped:
      return map_host_address(other);
    default:
      other.why_not = why_not_reached(part);
      if (part.place.on_device()) return other.why_not += "; bind the window to a device", void();
      const std::string way = other.remote != nullptr ? tw_endpoint_transport(other.endpoint) : "";
      if (way != "shm") other.why_not = "it is reached by " + way + ": run the ranks on one machine with the transport shm";
  }
}

/// An interrupt, or a peer that does not answer, ends the waits behind this one, too.
void tw_window::map_host_address(WindowRank& other) {
  const RemoteRegion& region = *reinterpret_cast<RemoteRegion*>(other.remote);
  void* address = nullptr;
  if (map_remote(other.remote, timeout_ns, {}, &address) != TW_OK) {
    other.why_not = std::string(last_error()) + "; allocate it with tw_memory_allocate";
    return;
  }
  const Engine::Guard guard(*worker.engine);
  if (region.mapping == nullptr) return;  // lost in between: the board has it
  other.host = static_cast<std::byte*>(address);
  hold(region.mapping);
}

Status tw_window::import_own() {
  unsigned char address[kAddressMax], key[kKeySize];
  size_t length = sizeof address;
  if (Status s = tw_worker_address(&worker, address, &length); is_error(s)) return s;
  if (own_endpoint_ == nullptr) {
    if (Status s = tw_connect(&worker, address, length, nullptr, &own_endpoint_); is_error(s)) return s;
  }
  if (Status s = tw_endpoint_wait(own_endpoint_, timeout_ns); is_error(s)) return s;
  length = sizeof key;
  if (Status s = tw_memory_export(memory, key, &length); is_error(s)) return s;
  return tw_memory_import(own_endpoint_, key, length, &own_remote_);
}

Status tw_window::reach_imported(uint32_t of, tw_endpoint** endpoint, tw_remote_memory** remote) {
  if (of == rank && own_remote_ == nullptr) {
    if (Status s = import_own(); is_error(s)) return s;
  }
  *endpoint = of == rank ? own_endpoint_ : ranks[of].endpoint;
  *remote = of == rank ? own_remote_ : ranks[of].remote;
  return TW_OK;
}

/// Under the engine's lock, before the next progress.
void tw_window::hold(Mapping* mapping) {
  ++mapping->users;
  held_.push_back(mapping);
}

void tw_window::let_go() {
  board->forget_words();
  bindings_.clear();
  pinnings_.clear();
  {
    const Engine::Guard guard(*worker.engine);
    for (Mapping* mapping : held_) --mapping->users;
    held_.clear();
  }
  held_here_.clear();
  for (WindowRank& other : ranks) tw_remote_memory_release(std::exchange(other.remote, nullptr));
  tw_remote_memory_release(std::exchange(own_remote_, nullptr));
  if (own_endpoint_ != nullptr) (void)tw_endpoint_close(std::exchange(own_endpoint_, nullptr), TW_CLOSE_GRACEFUL, nullptr);
}

Status tw_window::end() {
  let_go();
  if (Status s = board->check(); is_error(s)) return s;
  const unsigned char mine = 1;
  std::vector<unsigned char> all(ranks.size());
  return exchange(&mine, 1, all.data());
}

tw_window::~tw_window() {
  if (listed != nullptr) {
    const Engine::Guard guard(*worker.engine);
    listed->remove(*this);
  }
  let_go();
}
