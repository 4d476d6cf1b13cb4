// SPDX-License-Identifier: Apache-2.0
// The two tables.
#include "protocols/dispatch.hpp"

#include <algorithm>
#include <string_view>

#include "base/printable.hpp"
#include "protocols/active.hpp"
#include "protocols/blocks.hpp"
#include "protocols/bounce.hpp"
#include "protocols/bytes.hpp"
#include "protocols/eager.hpp"
#include "protocols/flow.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/pipeline.hpp"
#include "protocols/rendezvous.hpp"

namespace thalweg::impl {

namespace {

void on_goodbye(Engine& engine, Peer& peer, const FrameHeader&, PeerBytes) {
  engine.doom(peer, TW_ERR_CLOSED, "the peer closed the endpoint");
}

void on_error(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  const bool limit = static_cast<int64_t>(header.a) == TW_ERR_LIMIT;  // it took no more links
  char said[kMostSaid];
  const size_t n = std::min(body.left(), sizeof said);
  if (!body.take(said, n)) return;
  engine.doom(peer, limit ? TW_ERR_LIMIT : TW_ERR_PROTOCOL, "the peer closed the link: " + printable({said, n}));
}

struct FrameTable {
  FrameHandler handlers[64] = {};
  constexpr FrameHandler& operator[](Frame frame) { return handlers[static_cast<size_t>(frame)]; }
};

constexpr FrameTable make_table() {
  FrameTable table;
  table[Frame::tagged] = on_tagged;
  table[Frame::tagged_first] = on_tagged_first;
  table[Frame::tagged_rts] = on_tagged_rts;
  table[Frame::am] = on_am;
  table[Frame::am_first] = on_am_first;
  table[Frame::am_rts] = on_am_rts;
  table[Frame::am_ask] = on_am_ask;
  table[Frame::am_long] = on_am_long;
  table[Frame::am_long_rts] = on_am_long;
  table[Frame::bytes] = on_bytes;
  table[Frame::matched] = on_matched;
  table[Frame::cts] = on_cts;
  table[Frame::data] = on_data;
  table[Frame::fin] = on_fin;
  table[Frame::credit] = on_credit;
  table[Frame::bounce] = on_bounce;
  table[Frame::data_at] = on_data_at;
  table[Frame::taken] = on_taken;
  table[Frame::put] = on_put;
  table[Frame::put_layout] = on_put_layout;
  table[Frame::get] = on_get;
  table[Frame::atomic] = on_atomic;
  table[Frame::atomic_reply] = on_atomic_reply;
  table[Frame::signal] = on_signal;
  table[Frame::flush] = on_flush;
  table[Frame::put_blocks] = on_put_blocks;
  table[Frame::get_blocks] = on_get_blocks;
  table[Frame::blocks] = on_blocks;
  table[Frame::put_at] = on_put_at;
  table[Frame::notify] = on_notify;
  table[Frame::notice] = on_notice;
  table[Frame::goodbye] = on_goodbye;
  table[Frame::error] = on_error;
  return table;
}
constinit const FrameTable kFrameTable = make_table();

}  // namespace

FrameHandler frame_handler(uint8_t type) { return kFrameTable.handlers[type & kFrameTypeMask]; }

constinit const Starter kStarters[static_cast<size_t>(Verb::count_)] = {
    start_send,       nullptr /* recv: Engine::post_receive */,
    start_am,         nullptr /* am_recv: active_receive */,
    start_bytes_send, start_bytes_receive,
    start_put,        start_get,
    start_atomic,     start_signal,
    start_flush,      start_blocks,
    start_blocks,     nullptr /* copy, wait, reduce: steps of plans */,
    nullptr,          nullptr,
    nullptr /* collective: CollectiveRun */};

const char* name_of(Verb verb) {
  static constexpr const char* kNames[static_cast<size_t>(Verb::count_)] = {
      "send",   "recv",  "am",         "am recv",    "bytes", "bytes recv", "put",    "get",       "atomic",
      "signal", "flush", "put_blocks", "get_blocks", "copy",  "wait",       "reduce", "collective"};
  return kNames[static_cast<size_t>(verb)];
}

}  // namespace thalweg::impl
