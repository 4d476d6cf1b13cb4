// SPDX-License-Identifier: Apache-2.0
// Active messages. A message of UCX id n is Thalweg's of id 2n, or 2n + 1 where the sender asks for replies; ids beyond that table, and
// what else the receiver must know, travel in front of the header.
#pragma once
#include <thalweg/thalweg.h>

#include "ucx.hpp"
#include "worker.hpp"

namespace thalweg::ucx {

inline constexpr uint16_t kDirectIds = 2040;   // UCX ids below have ids of their own
inline constexpr uint16_t kIndirectId = 4095;  // others: Indirect, then the header
inline constexpr uint16_t kStreamId = 4094;    // bytes of streams
inline constexpr size_t kMaxHeader = 8192;     // told as max_am_header: MPICH wants at most 16 KiB. Any length travels

enum : uint32_t {
  kWithReply = 1u,  // the handler gets a reply endpoint
  kWhole = 2u       // the handler gets the payload: it was sent with UCP_AM_SEND_FLAG_EAGER, and is longer than Thalweg's
};
struct Indirect {
  uint32_t id;
  uint32_t flags;
};

/// Messages of other than direct ids.
ucs_status_t open_am_handlers(ucp_worker& worker);
/// Without a function: messages of its id are dropped.
ucs_status_t set_handler(ucp_worker& worker, const AmHandler& given, const char* function);

/// A payload that the user has: it lies right before the address that names it to the user.
struct AmData {
  void* block;             // what is freed
  tw_am_data* descriptor;  // not fetched yet; NULL: the bytes are at the address
  size_t length;
  bool in_handler;
  bool taken;  // in the handler: fetched or released
};
/// Room for length bytes, aligned. NULL: no memory.
AmData* make_data(size_t length, size_t alignment);
inline void* address_of(AmData& data) { return &data + 1; }
inline AmData& data_of(void* address) { return *(static_cast<AmData*>(address) - 1); }
void free_data(AmData& data);
/// The user is done with it. In its handler it is freed once that returns.
void end_data(AmData& data);

}  // namespace thalweg::ucx
