// SPDX-License-Identifier: Apache-2.0
// The frames of the TCP store, after the handshake. Little endian. One request at a time per connection, one answer to each;
// an answer to wait comes when the key is there. A client that has lost patience closes its connection.
#pragma once
#include <cstddef>
#include <cstdint>

namespace thalweg::impl::store_wire {

enum class Op : uint16_t { put = 1, get = 2, wait = 3, erase = 4, answer = 5 };

struct FrameHeader {
  uint32_t key_length;    // behind the header; <= Store::kMaxKey; 0 in answers
  uint32_t value_length;  // behind the key; <= Store::kMaxValue; 0 except in put and answers
  uint16_t op;
  uint16_t reserved;  // 0
  int32_t status;     // answers: TW_OK, TW_ERR_NO_MATCH, TW_ERR_LIMIT
};
static_assert(sizeof(FrameHeader) == 16);

}  // namespace thalweg::impl::store_wire
