// SPDX-License-Identifier: Apache-2.0
#include "groups/group.hpp"

#include <thread>

#include "base/interrupt.hpp"
#include "core/c_checks.hpp"
#include "groups/given_peers.hpp"

using namespace thalweg::impl;

Status tw_group::endpoint(uint32_t to, tw_endpoint** out) {
  const uint32_t there = members.empty() ? to : members[to];
  const Status status = peers->endpoint(there, out);
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
