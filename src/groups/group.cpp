// SPDX-License-Identifier: Apache-2.0
#include "groups/group.hpp"

#include <algorithm>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/interrupt.hpp"
#include "core/c_checks.hpp"
#include "groups/mailbox.hpp"
#include "routes/costs.hpp"

using namespace thalweg::impl;

RankPlace thalweg::impl::place_of(const tw_worker& worker) {
  const tw_context& context = worker.context;
  const bool shared = std::ranges::any_of(context.transports,
                                          [](const TransportSlot& one) { return one.name == "shm" && one.why_not.empty(); });
  const LinkCosts &near = shared ? context.costs.shm : context.costs.tcp, &far = context.costs.tcp;
  RankPlace place;
  place.host = worker.address.host;
  place.message_ns = near.frame;
  place.byte_ns = near.copy;
  place.serial_byte_ns = near.serial_copy;
  place.read_ns = near.kernel_fixed;
  place.read_byte_ns = near.kernel;
  place.host_message_ns = far.frame;
  place.host_byte_ns = far.copy;
  return place;
}

World::~World() {
  if (worker != nullptr) tw_worker_destroy(worker);
  if (context != nullptr) tw_context_destroy(context);
}

/// Beginnings and ends of groups are when memory of earlier ones is looked at that other ranks had not let go of.
tw_group::tw_group(tw_worker& worker, uint32_t rank, uint32_t size, uint64_t timeout_ns)
    : worker(worker), rank(rank), size(size), timeout_ns(timeout_ns) {
  worker.context.registry->release_left();
}

void tw_group::set_id(uint64_t to) {
  id = to;
  Mailbox::of(worker).expect(worker, id);
}

tw_group::~tw_group() {
  if (id != 0) Mailbox::of(worker).forget(worker, id);
  worker.context.registry->release_left();
}

Status tw_group::endpoint(uint32_t to, tw_endpoint** out) {
  const Status status = peers->endpoint(member(to), out);
  if (!is_error(status)) return status;
  const std::string why = last_error();
  return fail(status, "rank %u: %s", to, why.c_str());
}

Status tw_group::check_may_connect(uint32_t to) const {
  if (worker.engine->may_progress()) return TW_OK;
  return fail(TW_ERR_BUSY,
              "rank %u is not connected yet, and callbacks and handlers, which run inside progress, cannot wait for that: ask "
              "before them, or again when they have returned",
              to);
}

Status tw_group::await_endpoint(uint32_t to, tw_endpoint** out, uint64_t limit_ns) {
  const Deadline deadline(limit_ns);
  Status status = endpoint(to, out);
  if (status != TW_IN_PROGRESS) return status;
  if (Status s = check_may_connect(to); is_error(s)) {
    *out = nullptr;
    return s;
  }
  for (;; status = endpoint(to, out)) {
    if (status != TW_IN_PROGRESS) return status;
    if (Status s = interrupted(); is_error(s)) return s;
    if (deadline.passed()) return fail(TW_ERR_TIMED_OUT, "rank %u is not connected", to);
    if (worker.progress() == 0) std::this_thread::yield();
    worker.progressed();
  }
}

uint32_t tw_group::ranks_per_host() const {
  const auto end_of_first = std::ranges::find_if(hosts, [&](uint64_t one) { return one != hosts[0]; });
  const auto each = static_cast<uint32_t>(end_of_first - hosts.begin());
  if (each == 0 || size % each != 0) return 0;
  std::unordered_set<uint64_t> seen;
  for (uint32_t rank = 0; rank < size; ++rank) {
    if (rank % each == 0 ? !seen.insert(hosts[rank]).second : hosts[rank] != hosts[rank - 1]) return 0;
  }
  return each;
}

bool tw_group::is_lost(uint32_t of) const {
  tw_endpoint* endpoint = peers->made(member(of));
  return endpoint != nullptr && is_error(tw_endpoint_state(endpoint));
}
