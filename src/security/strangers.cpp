// SPDX-License-Identifier: Apache-2.0
// Unauthenticated connections of a listening socket, by age and by source.
#include "security/strangers.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace thalweg::impl {
namespace {

constexpr size_t kV4Bytes = 4, kNetworkBytes = 8;

}  // namespace

void Strangers::enter(uint64_t id, std::string source) {
  leave(id);
  ++sources_[source];
  queue_.push_back({id, std::move(source)});
  by_id_[id] = std::prev(queue_.end());
}

void Strangers::leave(uint64_t id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  const auto source = sources_.find(found->second->source);
  if (--source->second == 0) sources_.erase(source);
  queue_.erase(found->second);
  by_id_.erase(found);
}

bool Strangers::excess(uint64_t* id) const {
  if (queue_.size() < places_ || queue_.empty()) return false;
  size_t most = 0;
  for (const auto& [source, count] : sources_) most = std::max(most, count);
  const auto oldest =
      std::find_if(queue_.begin(), queue_.end(), [&](const One& one) { return sources_.at(one.source) == most; });
  *id = oldest->id;
  return true;
}

std::string Strangers::source_of(const SocketAddress& peer, int32_t pid) {
  std::string_view host = peer.host_bytes();
  if (host.empty()) return "pid " + std::to_string(pid);
  constexpr std::string_view kMapped("\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);  // IPv4 at an IPv6 socket
  if (host.size() > kV4Bytes && host.starts_with(kMapped)) host.remove_prefix(kMapped.size());
  return std::string(host.substr(0, host.size() == kV4Bytes ? kV4Bytes : kNetworkBytes));
}

}  // namespace thalweg::impl
