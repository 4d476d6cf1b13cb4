// SPDX-License-Identifier: Apache-2.0
// Registered and allocated memory, and keys of peers' memory.
#pragma once
#include <thalweg/thalweg.h>

#include <cstdint>

#include "ucx.hpp"
#include "worker.hpp"

struct ucp_mem {
  tw_memory* memory = nullptr;  // NULL: of length 0
  void* address = nullptr;      // as the user knows it: where FIXED asked for it, another view of the library's
  size_t length = 0;
  bool fixed = false;
  bool hidden = false;  // no access for peers was asked for: its key opens nothing
  ucs_memory_type_t type = UCS_MEMORY_TYPE_HOST;
};

struct ucp_rkey {
  ucp_worker* worker = nullptr;
  tw_endpoint* endpoint = nullptr;
  thalweg::ucx::Peer* peer = nullptr;  // it may be gone, or another one at the same place: see peer_id
  uint64_t peer_id = 0;
  tw_remote_memory* memory = nullptr;  // NULL: of length 0
  uint64_t address = 0;                // at the peer
  uint64_t length = 0;
};

namespace thalweg::ucx {

/// The type of memory at an address; NULL, or memory that no device knows: the host's.
ucs_memory_type_t type_at(const void* address);
/// A device's, which this CPU cannot load.
bool is_device_memory(const void* address);

/// In front of Thalweg's key.
struct KeyHeader {
  char magic[4];
  uint32_t length;  // of the key behind it; 0: nothing is registered
  uint64_t address;
  uint64_t bytes;
};
inline constexpr uint32_t kMaxKey = 512;  // more is none of Thalweg's
inline constexpr char kKeyMagic[4] = {'T', 'W', 'K', '1'};

}  // namespace thalweg::ucx
