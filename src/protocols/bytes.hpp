// SPDX-License-Identifier: Apache-2.0
// Byte streams: one per endpoint and direction, ordered, without message borders, bounded by credit. What arrives goes
// straight into the posted receive, or is unexpected and stored until one is posted.
#pragma once
#include <deque>
#include <vector>

#include "protocols/engine.hpp"

namespace thalweg::impl {

struct ByteStream {
  struct Chunk {
    std::vector<std::byte> bytes;
    size_t read = 0;
  };
  std::deque<Chunk> chunks;
  uint64_t kept = 0;      // bytes in chunks
  uint64_t position = 0;  // of the next byte to arrive
  RunList receivers;
  OpRun* destination = nullptr;
};

Status start_bytes_send(Engine& engine, const OpDesc& op, const Completion& completion);
Status start_bytes_receive(Engine& engine, const OpDesc& op, const Completion& completion);
void on_bytes(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
std::byte* bytes_destination(Engine& engine, Peer& peer, const FrameHeader& header);
void bytes_landed(Engine& engine, Peer& peer, const FrameHeader& header);

}  // namespace thalweg::impl
