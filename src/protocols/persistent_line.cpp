// SPDX-License-Identifier: Apache-2.0
// Giving copies to a persistent kernel and finding them done.
#include "protocols/persistent_line.hpp"

#include <utility>

namespace thalweg::impl {

PersistentLine::~PersistentLine() {
  for (UnderWay& one : pending_) {
    if (!one.taken) persistent_->forget(one.ticket);
  }
}

bool PersistentLine::submit(const Copy& copy, DeviceQueues::Done done, void* token, std::shared_ptr<DeviceUse> visit) {
  UnderWay& one = pending_.emplace_back();
  one.copy = copy;
  one.done = done;
  one.token = token;
  one.visit = std::move(visit);
  if (persistent_->copy(copy.to, copy.from, copy.width, &one.ticket) != TW_OK) {
    pending_.pop_back();
    return false;
  }
  if (one.visit != nullptr) one.visit->enqueued(*persistent_, one.ticket);
  return true;
}

Status PersistentLine::look(UnderWay& one) {
  const Status status = is_error(broken_) ? broken_ : persistent_->poll(one.ticket);
  if (status == TW_IN_PROGRESS && watch_.due()) broken_ = persistent_->ask();
  return status;
}

/// Tickets stay where they are, so only the first ones go, and nobody waits by them any more. What the kernel gave back is work that
/// has yet to begin.
void PersistentLine::take(UnderWay& one, Status status, Ended* out) {
  watch_.moved();
  if (one.visit != nullptr) {
    one.visit->leave();
    if (status == TW_AGAIN && !one.visit->enter()) status = TW_ERR_STALE;
  }
  *out = {one.copy, one.done, one.token, status, std::move(one.visit)};
  one.taken = true;
  while (!pending_.empty() && pending_.front().taken) pending_.pop_front();
}

bool PersistentLine::next(Ended* out) {
  if (pending_.empty()) return false;
  const Status status = look(pending_.front());
  if (status == TW_IN_PROGRESS) return false;
  take(pending_.front(), status, out);
  return true;
}

bool PersistentLine::wait(const void* token, Ended* out) {
  for (UnderWay& one : pending_) {
    if (one.token != token || one.taken) continue;
    Status status = look(one);
    while (status == TW_IN_PROGRESS) status = look(one);
    take(one, status, out);
    return true;
  }
  return false;
}

}  // namespace thalweg::impl
