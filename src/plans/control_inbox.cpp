// SPDX-License-Identifier: Apache-2.0
#include "plans/control_inbox.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/status.hpp"
#include "plans/control_wire.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kFetchMax = 4 * kControlMax;  // bytes of one peer's messages that are fetched and not taken

}  // namespace

tw_status ControlInbox::on_message(void* arg, const tw_am_message* message) {
  auto& inbox = *static_cast<ControlInbox*>(arg);
  if (message->length == 0 || message->length > kControlMax) return TW_OK;  // no proxy sends that
  const std::lock_guard lock(inbox.mutex_);
  inbox.all_.push_back({message->endpoint, message->length, message->descriptor});
  return TW_IN_PROGRESS;
}

unsigned ControlInbox::fetch() {
  std::vector<Arrivals::iterator> next;
  {
    std::map<const tw_endpoint*, size_t> under_way;
    const std::lock_guard lock(mutex_);
    for (auto one = all_.begin(); one != all_.end(); ++one) {
      size_t& bytes = under_way[one->endpoint];
      bytes += one->length;  // messages after one that has to wait, wait too
      if (one->kept != nullptr && bytes <= kFetchMax) next.push_back(one);
    }
  }
  for (const auto& one : next) fetch(one);
  return static_cast<unsigned>(next.size());
}

void ControlInbox::fetch(Arrivals::iterator place) {
  struct Fetch {
    ControlInbox* inbox;
    Arrivals::iterator place;
  };
  std::vector<std::byte>& bytes = place->bytes;
  tw_am_data* kept = nullptr;
  {
    const std::lock_guard lock(mutex_);  // held() looks at all of them
    kept = std::exchange(place->kept, nullptr);
    bytes.resize(place->length);
  }
  auto* fetch = new Fetch{this, place};
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.arg = fetch;
  options.callback = [](void* of, tw_request, tw_status status, const tw_recv_info*) {
    const std::unique_ptr<Fetch> done(static_cast<Fetch*>(of));
    const std::lock_guard lock(done->inbox->mutex_);
    if (is_error(status)) done->place->bytes.clear();
    done->place->here = true;
  };
  const Status status = tw_am_recv(kept, bytes.data(), bytes.size(), &options, nullptr);
  if (status == TW_IN_PROGRESS) return;
  if (is_error(status)) (void)tw_am_release(kept);  // it could not be asked for
  options.callback(fetch, TW_REQUEST_NONE, status, nullptr);
}

size_t ControlInbox::held() {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const Arrival& one : all_) bytes += one.bytes.size();
  return bytes;
}

ControlInbox::Arrivals ControlInbox::take() {
  Arrivals taken;
  std::set<const tw_endpoint*> late;
  const std::lock_guard lock(mutex_);
  for (auto next = all_.begin(); next != all_.end();) {
    const auto one = next++;
    if (!one->here) late.insert(one->endpoint);
    if (!late.contains(one->endpoint)) taken.splice(taken.end(), all_, one);
  }
  return taken;
}

bool ControlInbox::has(const tw_endpoint* endpoint) {
  const std::lock_guard lock(mutex_);
  return std::any_of(all_.begin(), all_.end(), [endpoint](const Arrival& one) { return one.endpoint == endpoint; });
}

}  // namespace thalweg::impl
