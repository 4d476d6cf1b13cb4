// SPDX-License-Identifier: Apache-2.0
// Every frame, versioned: what the 24-byte header (transport.hpp) and the body of each frame type mean.
//
// Little endian. Lengths and offsets are 64 bits. Unknown type with kMustUnderstand: the link is closed with an error frame;
// without: skipped. An "op" names one run of the requester at random (RunPool::wire_op): echoed, looked up, and taken only
// from the peer it was sent to, in the phase that waits. The handshake (security/handshake.hpp) agrees on a version in
// [kWireMin, kWireMax] and on feature bits first.
#pragma once
#include <cstdint>

#include "transports/transport.hpp"

namespace thalweg::impl {

inline constexpr uint16_t kWireMin = 1, kWireMax = 1;

enum class Frame : uint8_t {
  // messages. tagged_*: a = tag, b = immediate
  tagged = 1,        // body: payload. kFrameSync: the last 8 bytes of the body are the sender's op, answered by `matched`
  tagged_first = 2,  // body: FirstBody, then the first payload bytes; the rest follows as `data` to op = FirstBody.op
  tagged_rts = 3,    // body: RtsBody. id: 0, or 1 + the entry of the receive that it has claimed (offers.hpp)
  am = 4,            // id = handler, a = header bytes; body: header, payload
  am_first = 5,      // id, a as am, at most kShortHeader; body: FirstBody, header, first payload bytes
  am_rts = 6,        // id, a as am_first; body: RtsBody, header
  bytes = 7,         // a = position in the stream; body: stream bytes
  am_ask = 8,        // a = sender's op, b = bytes of the header that comes next, beyond credit. Answered by fin: it may, or not
  matched = 9,       // a = sender's op: a synchronous send was matched
  cts = 10,          // a = sender's op, body: CtsBody: send (part of) the payload
  data = 11,         // a = receiving op, b = offset in the packed payload, id = rail; body: payload
  fin = 12,          // a = the other side's op, b = status: this transfer is over here, the buffer is free. kFrameLast, to a
                     // receiver: its message has failed at the sender, and nothing more of it comes. kFrameMore: so has the
                     // message with FirstBody.op = a
  credit = 13,       // a = bytes, b = RTS messages returned to the sender. id 0: messages, 1: the byte stream
  bounce = 14,  // a = segment; body: BounceBody: memory in which this side names pieces (bounce.hpp). kFrameAck: the other side
                // has mapped the one that was named to it
  data_at = 15,  // as data, body: PieceBody: where the payload lies. Answered by `taken`
  taken = 16,    // a = the op in PieceBody: the oldest of its named pieces is not used any more
  // active messages with a header of more than kShortHeader bytes: it comes first, in as many frames as it takes
  am_long = 17,      // id, a as am; body: FirstBody (length: header and payload), first bytes of them; the rest as am_first
  am_long_rts = 18,  // id, a as am; body: FirstBody (length: header), RtsBody, first header bytes; the rest as am_first
  // one-sided. a = rkey of the target (memory/registry.hpp)
  put = 20,           // b = offset; body: payload (contiguous target)
  put_layout = 21,    // b = offset of the layout's zero; body: PutLayoutBody, encoded layout, payload. Each stands alone
  get = 22,           // b = offset; body: GetBody, optional encoded layout: answered by data frames to op, or fin with an error
  atomic = 23,        // b = offset; body: AtomicBody; answered by atomic_reply when fetching
  atomic_reply = 24,  // a = op, b = old value
  signal = 25,        // b = value, id = signal op: applied after all earlier frames of the link, unless what it covers failed
  flush = 26,         // a = op: answered by fin when all earlier one-sided frames of the link are applied
  put_blocks = 27,    // a = pieces; body: BlockName of each, then their bytes. kFrameFirst, kFrameAck as put
  get_blocks = 28,    // a = op, b = packed offset at the requester; body: BlockNames: answered by one `blocks` or fin
  blocks = 29,        // a = op, b = packed offset; body: the bytes of what was named
  notify = 30,        // id = handler or 0xffff, body: up to 64 bytes; an eager message. kFrameCovers as signal
  notice = 32,        // as signal, a = 0 and b = 0 without one; id as of notify; body: NoticeBody; an eager message of 8 bytes
  put_at = 31,        // as put, body: PieceBody: where the payload lies. Stands alone, and is answered by fin
  // life
  goodbye = 40,  // graceful close: nothing follows
  error = 41,    // a = status; body: text. The link is closed afterwards
};
inline constexpr size_t kMostSaid = 200;          // bytes of an error's text
inline constexpr uint8_t kMustUnderstand = 0x40;  // in FrameHeader.type; all frames above carry it
inline constexpr uint8_t kFrameTypeMask = 0x3f;

enum FrameFlag : uint8_t {
  kFrameSync = 1,        // answer with `matched`
  kFrameAck = 2,         // one-sided: answer with fin to the op in the first 8 body bytes
  kFrameLast = 4,        // cts: the sender's part ends with what this asks for; no fin follows. fin: above
  kFrameMore = 8,        // data: continues what has FirstBody.op = a (an op of the sender of the frame). fin: above
  kFrameFirst = 16,      // put, put_layout: a new put begins
  kFrameCovers = 32,     // signal: not applied when the put before it failed
  kFrameCoversAll = 64,  // signal: not applied when any put since the last flush failed
  kFrameGroup = 64,      // tagged, tagged_first, tagged_rts: of a group's collective; matches apart from users' messages
  kFrameDevice = 128,    // where there is an RtsBody: a DeviceBody follows it. cts: push into a device, whose UUID follows
};

struct FirstBody {
  uint64_t op;      // sender's op: names the data frames that follow
  uint64_t length;  // of what comes in these frames: the whole payload, and a long header
};
struct RtsBody {
  uint64_t op;       // sender's op
  uint64_t length;   // payload bytes
  uint64_t address;  // sender's virtual address of contiguous payload; 0 when strided or not reachable
  uint64_t segment;  // library-allocated memory holding it, 0: none
  uint64_t segment_offset;
};
/// Where the payload of an RTS lies, when a device may reach it.
struct DeviceBody {
  uint8_t uuid[16];
  uint8_t kind;     // MemoryKind: pinned, or memory of that device; RtsBody.segment names the latter for import
  uint8_t late;     // not to be touched yet: the sender moves it when it is asked to
  uint8_t asked;    // receiver: it requested a push
  uint8_t way;      // receiver: the Way that it takes
  uint8_t bounced;  // receiver: it requested a push into a bounce buffer
  uint8_t second;   // receiver: it was posted when the RTS was there
  uint8_t reserved[2];
};
/// An RTS as it is stored.
struct ReceivedRts {
  RtsBody rts{};
  DeviceBody device{};
  bool near_device = false;  // device is filled in
};
struct CtsBody {
  uint64_t op;      // receiver's op: address of data frames
  uint64_t offset;  // of the part wanted
  uint64_t length;
  uint64_t address;         // receiver's virtual address of that part for a push, 0: send data frames
  uint64_t segment;         // library-allocated memory holding it, 0: none
  uint64_t segment_offset;  // of data frames (neither address nor segment): PieceForm bits
};
/// How a receiver takes pieces of data frames that the sender stages.
enum PieceForm : uint64_t {
  kPiecesInHost = 1,    // named in host memory that was named to it and that it has mapped
  kPiecesInDevice = 2,  // named in memory of the sender's device, which its device reaches
  kTellOfHost = 4,      // ... once that is named to it: these pieces not yet
  kTellOfDevice = 8,    // the same of device memory
  kLongPieces = 16,     // a device takes them: long ones delay no other transfer
};
struct BounceBody {
  uint64_t offset, length;  // in the segment
  uint8_t uuid[16];         // of the device that fills it
  uint8_t on_device;        // memory of that device; else host memory
  uint8_t reserved[7];
};
struct PieceBody {
  uint64_t segment, offset, length;
  uint64_t op;  // the sender's: `taken`, or fin of a put, answers
};
struct PutLayoutBody {
  uint64_t skip;
};  // packed offset of the payload in the layout
struct GetBody {
  uint64_t op, length;
  uint64_t at;    // packed offset at the requester: where the answer belongs
  uint64_t skip;  // packed offset in the layout, if there is one
};
struct BlockName {
  uint64_t rkey, offset, length;
};
inline constexpr uint32_t kNoSignal = UINT32_MAX;
struct NoticeBody {
  uint64_t immediate;
  uint32_t signal_op;  // kNoSignal: none
  uint8_t pad[4];
};
struct AtomicBody {
  uint64_t op, operand, compare;
  uint8_t code, size, fetch, pad[5];
};

}  // namespace thalweg::impl
