// SPDX-License-Identifier: Apache-2.0
// The connections of one listening socket that have not proven the job key yet: bounded, and shared between their sources,
// so that a source that floods it displaces its own connections first. One thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>

#include "base/socket_address.hpp"

namespace thalweg::impl {

class Strangers {
 public:
  static constexpr size_t kPlaces = 128;

  explicit Strangers(size_t places = kPlaces) : places_(places) {}
  void enter(uint64_t id, std::string source);
  void leave(uint64_t id);  // also of one that is not there
  /// One must go before another may enter: the oldest of the source that has most. False: there is a place.
  bool excess(uint64_t* id) const;
  size_t count() const { return queue_.size(); }

  /// What counts as one source: an IPv4 address, an IPv6 network of 64 bits (one machine has all of it), a process of this
  /// machine (`pid`, of a unix socket).
  static std::string source_of(const SocketAddress& peer, int32_t pid);

 private:
  struct One {
    uint64_t id;
    std::string source;
  };
  size_t places_;
  std::list<One> queue_;  // oldest first
  std::unordered_map<uint64_t, std::list<One>::iterator> by_id_;
  std::unordered_map<std::string, size_t> sources_;
};

}  // namespace thalweg::impl
