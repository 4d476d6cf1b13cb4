// SPDX-License-Identifier: Apache-2.0
#include "plans/proxied.hpp"

namespace thalweg::impl {

bool Proxied::look() {
  const auto asked = [this] {  // acquire: what the executor did before it asked is done
    return __atomic_load_n(ring, __ATOMIC_ACQUIRE) != seen.load(std::memory_order_relaxed);
  };
  if (running.load(std::memory_order_relaxed) || !asked()) return false;
  if (running.exchange(true, std::memory_order_acquire)) return false;  // another thread has begun it
  if (!asked()) {
    running.store(false, std::memory_order_release);
    return false;
  }
  seen.store(seen.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);  // only by who holds `running`
  request = TW_REQUEST_NONE;
  Completion completion = calls(on_complete, this);
  completion.request = &request;
  if (const Status status = post(completion); status != TW_IN_PROGRESS) finish(status, last_error());
  return true;
}

void Proxied::on_complete(void* arg, tw_request request, tw_status status, const tw_recv_info* info) {
  auto& self = *static_cast<Proxied*>(arg);
  if (info != nullptr) __atomic_store_n(self.received, info->length, __ATOMIC_RELAXED);
  const bool came = info != nullptr && (status == TW_OK || status == TW_ERR_TRUNCATED);
  if (came && info->length != self.expected.value_or(info->length)) {
    const std::string why = "the peer sent " + std::to_string(info->length) + " bytes where " + std::to_string(*self.expected) +
                            " were expected: its counts are others than this rank's";
    return self.finish(TW_ERR_TRUNCATED, why.c_str());
  }
  self.finish(status, is_error(status) ? tw_request_message(request) : "");
}

void Proxied::finish(Status status, const char* why) {
  if (is_error(status)) {
    failed(status, why);
  } else {
    __atomic_store_n(done, seen.load(std::memory_order_relaxed), __ATOMIC_RELEASE);  // the data is here, or may be written over
  }
  running.store(false, std::memory_order_release);
}

}  // namespace thalweg::impl
