// SPDX-License-Identifier: Apache-2.0
// Giving copies to a resident kernel and finding them done.
#include "protocols/resident_line.hpp"

namespace thalweg::impl {

ResidentLine::~ResidentLine() {
  for (UnderWay& one : pending_) resident_->forget(one.ticket);
}

bool ResidentLine::submit(const Copy& copy, DeviceLane::Done done, void* token) {
  constexpr size_t kDepth = 4;
  if (copy.rows != 1 || copy.slices != 1 || copy.width > most_ || pending_.size() >= kDepth || is_error(broken_)) return false;
  UnderWay& one = pending_.emplace_back();
  one.copy = copy;
  one.done = done;
  one.token = token;
  if (resident_->copy(copy.to, copy.from, copy.width, &one.ticket) == TW_OK) return true;
  pending_.pop_back();
  return false;
}

bool ResidentLine::next(Ended* out) {
  if (pending_.empty()) return false;
  UnderWay& one = pending_.front();
  Status status = is_error(broken_) ? broken_ : resident_->look(one.ticket);
  if (status == TW_IN_PROGRESS) {
    if (watch_.due()) broken_ = resident_->ask();
    return false;
  }
  watch_.moved();
  *out = {one.copy, one.done, one.token, status};
  pending_.pop_front();
  return true;
}

}  // namespace thalweg::impl
