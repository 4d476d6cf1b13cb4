// SPDX-License-Identifier: Apache-2.0
// The messages that proxies exchange about the channels between them. Each is one active message; it comes from a peer that
// knows the job key, and is checked all the same.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "devices/device.hpp"
#include "memory/layout.hpp"

namespace thalweg::impl {

/// One direction of a channel. The tokens name the two ends of the user's endpoint (hello): of the sender and of the receiver.
struct ChannelName {
  uint64_t sender = 0, receiver = 0, tag = 0;
  uint64_t group = 0;  // 0: the user numbers it; else the id of the group whose collectives do
  auto operator<=>(const ChannelName&) const = default;
};
/// "channel 7", for texts.
std::string text_of(const ChannelName& name);

enum class Control : uint8_t {
  open = 1,               // an end exists: its executor and where its words are
  result = 2,             // can it reach the other end's words (the sender: and its first receive buffers)?
  recv_buffer = 3,        // receiver: a buffer to send to
  recv_buffer_known = 4,  // sender: answer
  drop = 5,               // receiver: takes a receive buffer back
  dropped = 6,            // sender: it is released
  prepared = 7,           // receiver: so many plans were prepared here, and the sender has reached their buffers
  failed = 8,             // the end's epoch is over, and its users have failed; another may follow
  refused = 9,            // the same, and the two ends are incompatible: waiting is no use
  again = 10,             // of an open pair: no plan is left here, and a new one would do better with another way
  stay = 11,              // answer to both: it stays as it is
  same = 12,              // of an open pair: no plan is left here, and a new one will do with it, unless its partner will not
  count_
};

/// All messages in one struct; the comments list the types that use a field.
struct ControlMessage {
  Control type = Control::open;
  ChannelName name;
  bool from_sender = false;
  uint32_t epoch = 0;     // of the sending end (channel.hpp); refused: 0: there is none, the proxy had no room for `open`
  uint32_t partner = 0;   // of the other end: which of its epochs this is meant for; 0: none in particular
  uint8_t on_device = 0;  // open
  Uuid uuid{};            // open, on a device
  uint64_t number = 0;    // open, sender: tag of its messages when the host carries them; again: plans that relied on the pair
  std::vector<std::byte> key;  // open: of the block that holds its words; receive buffer: of the buffer's span
  uint64_t offset = 0;  // open: of the words; receive buffer: of the buffer's first byte (signed, relative to the key's range)
  // receive buffer, recv_buffer_known, drop, dropped: its number; open: 1: a kernel runs it, for which nothing can be carried;
  // again: 1: the asking plan does not wait, 2: no plan comes there any more; stay: 1: to `again`, 0: to `same`
  uint16_t index = 0;
  uint64_t capacity = 0;          // receive buffer: bytes; prepared: how many; again, same: messages that the host carried here
  std::vector<std::byte> layout;  // receive buffer: as memory/layout.hpp encodes; empty: contiguous
  int32_t status = 0;             // result, recv_buffer_known, failed, refused
  std::string text;               // of the same: why
};

inline constexpr size_t kControlMax = 80u << 10;
std::vector<std::byte> write_control(const ControlMessage& message);
/// TW_ERR_PROTOCOL for anything that write_control would not have written.
Status parse_control(const std::byte* bytes, size_t length, ControlMessage* out);  // fuzzed

}  // namespace thalweg::impl
