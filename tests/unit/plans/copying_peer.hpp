// SPDX-License-Identifier: Apache-2.0
// A peer that is stopped while it copies.
#pragma once
#include <atomic>

#include "memory/registry_state.hpp"

namespace thalweg::tests {

/// A peer in the middle of a copy, as the registry learns of it.
struct CopyingPeer final : impl::SegmentListener {
  explicit CopyingPeer(impl::Registry& of) : registry(of) { registry.add_listener(this); }
  ~CopyingPeer() override { registry.remove_listener(this); }
  void on_segment_released(uint64_t) override {}
  bool on_keys_revoked(bool waits) override {
    asked = true;
    if (waits) waited = true;
    return !stopped;
  }
  bool await_dropped(uint64_t, bool) override { return true; }
  impl::Registry& registry;
  std::atomic<bool> stopped{true}, asked{false}, waited{false};
};

}  // namespace thalweg::tests
