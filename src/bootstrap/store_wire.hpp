// SPDX-License-Identifier: Apache-2.0
// The messages of the TCP store, in the SetupChannel that the handshake opens. Little endian. One request at a time per
// connection, one answer to each; an answer to wait is sent once the key exists. A client that times out closes its
// connection.
#pragma once
#include <cstddef>
#include <cstdint>

#include "bootstrap/store.hpp"

namespace thalweg::impl::store_wire {

/// A message's type.
enum class Op : uint16_t { put = 1, get = 2, wait = 3, erase = 4, answer = 5 };

/// put, get, wait, erase: this, the key, and for put the value up to the message's end.
struct RequestHead {
  uint32_t key_length;  // 1 to Store::kMaxKey
};
static_assert(sizeof(RequestHead) == 4);

/// answer: this and the value, empty except for get and wait.
struct AnswerHead {
  int32_t status;  // TW_OK, TW_ERR_NO_MATCH, TW_ERR_LIMIT
};
static_assert(sizeof(AnswerHead) == 4);

constexpr size_t kMaxMessage = sizeof(RequestHead) + Store::kMaxKey + Store::kMaxValue;

}  // namespace thalweg::impl::store_wire
