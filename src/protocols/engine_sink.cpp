// SPDX-License-Identifier: Apache-2.0
// What ports call: frames, destinations, losses. A lost link ends its peer's runs at the end of this progress, because a
// port may notice the loss inside a call of ours.
#include "protocols/bounce.hpp"
#include "protocols/bytes.hpp"
#include "protocols/dispatch.hpp"
#include "protocols/eager.hpp"
#include "protocols/flow.hpp"
#include "protocols/offers.hpp"
#include "protocols/pipeline.hpp"

namespace thalweg::impl {

void Engine::on_frame(Link& link, const FrameHeader& header, const std::byte* body) {
  Peer* peer = static_cast<Peer*>(link.user);
  if (peer == nullptr || peer->doomed || peer->link != &link) [[unlikely]]
    return;
  FrameHandler handler = frame_handler(header.type);
  if (handler != nullptr) [[likely]] {
    handler(*this, *peer, header, PeerBytes(body, header.length));
  } else if ((header.type & kMustUnderstand) != 0) {
    violation(*peer, "a frame of an unknown type that must be understood");
  }
}

std::byte* Engine::destination(Link& link, const FrameHeader& header, const std::byte*, size_t) {
  Peer* peer = static_cast<Peer*>(link.user);
  if (peer == nullptr || peer->doomed || peer->link != &link) return nullptr;
  switch (static_cast<Frame>(header.type & kFrameTypeMask)) {
    case Frame::tagged:
      return tagged_destination(*this, *peer, header);
    case Frame::data:
      return data_destination(*this, *peer, header);
    case Frame::bytes:
      return bytes_destination(*this, *peer, header);
    default:
      return nullptr;
  }
}

void Engine::on_landed(Link& link, const FrameHeader& header) {
  Peer* peer = static_cast<Peer*>(link.user);
  if (peer == nullptr || peer->doomed || peer->link != &link) return;
  switch (static_cast<Frame>(header.type & kFrameTypeMask)) {
    case Frame::tagged:
      return tagged_landed(*this, *peer, header);
    case Frame::data:
      return data_landed(*this, *peer, header);
    case Frame::bytes:
      return bytes_landed(*this, *peer, header);
    default:
      return;
  }
}

void Engine::on_sent(Link& link, void* token, Status status) {
  Peer* peer = static_cast<Peer*>(link.user);
  if (peer == nullptr || peer->link != &link) return;  // closed by us: its runs were ended with it
  if (OpRun* run = runs_->find(reinterpret_cast<uint64_t>(token)); run != nullptr) piece_sent(*this, *run, status);
}

void Engine::on_lost(Link& link, Status status, const char* why) {
  Peer* peer = static_cast<Peer*>(link.user);
  if (peer != nullptr && peer->link == &link) {
    close_credit(*this, *peer);
    peer->link = nullptr;
    end_offers(*this, *peer);
    if (!peer->doomed) {
      peer->doomed = true;
      peer->why = why;
      doomed_.emplace_back(peer, status);
      end_calm();
    }
  }
  link.port->close(link, false);  // it belongs to no peer
}

/// One-sided operations wait for it in their ordered queue, messages of device memory in `importing`. Another message that
/// would use it goes by frames until the mapping is there.
void Engine::on_import(Link& link, uint64_t) {
  Peer* peer = static_cast<Peer*>(link.user);
  if (peer == nullptr || peer->link != &link) return;
  if (!peer->one_sided.queue.empty()) pusher_.wants(*peer);
  settle_bounces(*this, *peer);
  RunList asking;  // what waits for another import joins the list again
  while (OpRun* run = peer->importing.pop_front()) asking.push_back(run);
  while (OpRun* run = asking.pop_front()) {
    if (goes_on(*run)) run->then(*this, *run, TW_OK);
  }
}

// ------------------------------------------------------------------------------------------------ within calls that post

namespace {

/// Frames that run nothing of a user's but a layout's functions, so a call that posts may handle them.
bool quiet(const FrameHeader& header, const void*) {
  switch (static_cast<Frame>(header.type & kFrameTypeMask)) {
    case Frame::tagged:
    case Frame::tagged_first:
    case Frame::tagged_rts:
    case Frame::matched:
    case Frame::cts:
    case Frame::fin:
    case Frame::credit:
      return true;
    case Frame::data:
      return (header.flags & kFrameMore) == 0;  // of active messages, perhaps
    default:
      return false;
  }
}

}  // namespace

void Engine::take_frames() {
  if (progressing_) return;
  progressing_ = true;
  constexpr unsigned kMost = 64;  // frames
  for (auto& port : ports_) {
    if (!port->quiet) port->take(kMost, quiet);
  }
  end_calm();
  progressing_ = false;
}

}  // namespace thalweg::impl
