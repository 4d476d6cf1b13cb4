// SPDX-License-Identifier: Apache-2.0
// Active messages: a header and a payload, passed to a handler inside progress. The handler may keep the payload (copied if
// it had arrived, otherwise still at the sender) and fetch it later. The header is valid during the handler; long ones:
// active_header.hpp.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "protocols/engine.hpp"

/// A payload on its way to a handler, or kept by it. C handle.
struct tw_am_data {
  enum class Kind : uint8_t { borrowed, here, arriving, rts, lost, ended };
  Kind kind = Kind::ended;
  bool in_handler = false;
  bool has_rts = false;  // arriving: rts says where the payload is
  bool asked = false;    // arriving: its header's memory is that of peer->header
  uint16_t id = 0;
  thalweg::impl::Engine* engine = nullptr;
  thalweg::impl::Peer* peer = nullptr;
  const std::byte* data = nullptr;  // borrowed: the frame's body. here, arriving: in `memory`
  std::byte* memory = nullptr;      // malloc: payload, behind a short header
  std::byte* header = nullptr;      // malloc: a long one, until the handler has run
  size_t header_length = 0;
  uint64_t length = 0, cost = 0;
  uint64_t header_cost = 0, header_grant = 0;  // of a long one, as long as the message is: who keeps that has a copy of it
  thalweg::impl::ReceivedRts rts;
  tw_am_data *next = nullptr, *previous = nullptr;
};

namespace thalweg::impl {

/// What a peer has queued for tw_worker_next_notification (blocks_notify.cpp); it keeps its credit until it is taken.
struct Notification {
  Peer* peer = nullptr;  // null: closed meanwhile
  uint32_t length = 0;
  std::byte data[TW_NOTIFICATION_MAX];
};

class ActiveTable {
 public:
  static constexpr uint16_t kHandlers = 4096;
  ActiveTable() = default;
  ~ActiveTable();  // frees what was kept
  ActiveTable(const ActiveTable&) = delete;
  ActiveTable& operator=(const ActiveTable&) = delete;

  struct Entry {
    tw_am_handler handler = nullptr;
    void* arg = nullptr;
  };
  Status set(uint16_t id, tw_am_handler handler, void* arg);
  const Entry* find(uint16_t id) const {
    if (id >= kHandlers)
      return id < kHandlers + kInternals && internal_[id - kHandlers].handler != nullptr ? &internal_[id - kHandlers] : nullptr;
    return id < table_.size() && table_[id].handler != nullptr ? &table_[id] : nullptr;
  }
  /// Beyond users' ids: messages of the library itself, of core/hello.cpp and of groups/mailbox.cpp.
  enum Internal : uint16_t { kHello = kHandlers, kGroups, kInternalEnd };
  static constexpr uint16_t kInternals = kInternalEnd - kHandlers;
  void set_internal(Internal id, tw_am_handler handler, void* arg) { internal_[id - kHandlers] = {handler, arg}; }

  tw_am_data* take();  // a fresh descriptor; listed
  void give_back(tw_am_data* data);
  void lose(const Peer& peer);  // what has not arrived never will
  void orphan(const Peer& peer);
  std::deque<Notification> notifications;
  uint64_t dropped = 0;  // messages without a handler

 private:
  std::vector<Entry> table_;
  Entry internal_[kInternals];
  tw_am_data* kept_ = nullptr;  // in a handler or kept by one
  tw_am_data* spare_ = nullptr;
};

// --- for core: these take the engine's lock
Status set_handler(Engine& engine, uint16_t id, tw_am_handler handler, void* arg);
Status active_receive(tw_am_data* data, const OpDesc& op, const Completion& completion);  // ends the descriptor
Status active_release(tw_am_data* data);

Status start_am(Engine& engine, const OpDesc& op, const Completion& completion);
void on_am(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_am_first(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_am_rts(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_am_long(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
/// n bytes of a message in several frames, from byte `at` on.
void am_part(tw_am_data& data, uint64_t at, const std::byte* body, size_t n);
/// All of a message in several frames is here. The peer may ask for memory for the next header.
void am_arrived(Engine& engine, Peer& peer, tw_am_data& data);
/// The rest of it does not come: no handler learns of it.
void am_cut_short(Engine& engine, tw_am_data& data);

}  // namespace thalweg::impl
