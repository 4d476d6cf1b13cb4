// SPDX-License-Identifier: Apache-2.0
// What one frame looks like on a tcp stream: an 8-byte prefix, the 24-byte FrameHeader, the body. Little endian.
#pragma once
#include <bit>
#include <cstring>

#include "transports/transport.hpp"

namespace thalweg::impl::tcp {

static_assert(std::endian::native == std::endian::little, "the wire is little endian");

inline constexpr uint8_t kFrameVersion = 1;

struct FramePrefix {
  uint32_t sequence;  // counts the frames of this direction from 0
  uint8_t rail;       // which socket of the link; 0 today
  uint8_t version;    // kFrameVersion
  uint16_t reserved;  // 0
};
static_assert(sizeof(FramePrefix) == 8);

inline constexpr size_t kFrameHead = sizeof(FramePrefix) + sizeof(FrameHeader);

inline void write_head(std::byte* to, uint32_t sequence, const FrameHeader& header) {
  const FramePrefix prefix{sequence, 0, kFrameVersion, 0};
  std::memcpy(to, &prefix, sizeof(prefix));
  std::memcpy(to + sizeof(prefix), &header, sizeof(header));
}

}  // namespace thalweg::impl::tcp
