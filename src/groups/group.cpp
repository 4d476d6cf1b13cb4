// SPDX-License-Identifier: Apache-2.0
#include "groups/group.hpp"

#include <thread>
#include <utility>

#include "base/interrupt.hpp"
#include "core/c_checks.hpp"
#include "groups/mailbox.hpp"

using namespace thalweg::impl;

World::~World() {
  if (worker != nullptr) tw_worker_destroy(worker);
  if (context != nullptr) tw_context_destroy(context);
}

tw_group::~tw_group() {
  if (id != 0) Mailbox::of(worker).forget(worker, id);
}

Status tw_group::endpoint(uint32_t to, tw_endpoint** out) {
  const Status status = peers->endpoint(member(to), out);
  if (!is_error(status)) return status;
  const std::string why = last_error();
  return fail(status, "rank %u: %s", to, why.c_str());
}

Status tw_group::await_endpoint(uint32_t to, tw_endpoint** out) {
  const Deadline deadline(timeout_ns);
  for (;;) {
    const Status status = endpoint(to, out);
    if (status != TW_IN_PROGRESS) return status;
    if (Status s = interrupted(); is_error(s)) return s;
    if (deadline.passed()) return fail(TW_ERR_TIMED_OUT, "rank %u is not connected", to);
    if (worker.progress() == 0) std::this_thread::yield();
  }
}

bool tw_group::is_lost(uint32_t of) const {
  tw_endpoint* endpoint = peers->made(member(of));
  return endpoint != nullptr && is_error(tw_endpoint_state(endpoint));
}
