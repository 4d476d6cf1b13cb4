// SPDX-License-Identifier: Apache-2.0
// Long headers of active messages. One beyond kShortHeader that does not fit into one frame with the payload comes first, in
// frames of its own, and the handler runs when all of it is here (and all of a payload without an RTS):
//
//   sender                               receiver
//   am_ask  -------------------------->  only beyond credit: does the worker's budget have room for the header? (flow.cpp)
//           <-- fin ------------------   yes (or TW_ERR_LIMIT: the sender waits for credit, if that can take it, or fails)
//   am_long, data ...  --------------->  assembles header and payload, runs the handler
//   or am_long_rts, data ... --------->  assembles the header, runs the handler; the payload follows an RTS, as with am_rts
//
// The sender's messages wait in their order meanwhile, so nothing overtakes one whose header is under way.
#pragma once
#include "protocols/engine.hpp"

namespace thalweg::impl {

extern const Protocol kAmSegmented, kAmRendezvous;

inline FrameHeader am_header(Frame frame, const OpDesc& op) {
  return make_header(frame, 0, op.header_length, 0, 0, static_cast<uint16_t>(op.tag));
}

/// Sends the first frame (am_long or am_long_rts) and the rest of the header. For step functions: TW_OK: all of it is sent,
/// TW_AGAIN, or an error.
Status send_header(OpRun& run, Frame frame);
/// Before a header that credit does not cover. A payload that comes along is paid for, so that it can follow the answer.
/// TW_AGAIN, or an error; the run goes on with `protocol` once its stage is not 0.
Status ask_for_header(OpRun& run, const Protocol& protocol);

}  // namespace thalweg::impl
