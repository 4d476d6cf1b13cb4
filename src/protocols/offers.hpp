// SPDX-License-Identifier: Apache-2.0
// Receives into device memory that the sender may fill inside its call, without this side's progress.
//
//   receiver, in its call                         sender, in its call
//   posts; writes an offer (transports/offers.hpp)
//                                                 finds it; claims it; tagged_rts names it; its device writes into the memory
//   tagged_rts: the receive is matched   <------
//                                        <------  fin, when the device is done; from here on as after a requested push
//
// A claim is a match, so both keep the order of matching. The receiver offers a receive only where all earlier ones that
// could take one of its messages are offered to that peer, too; the sender claims the earliest offer that fits, and only
// where no message of its own that the receiver may not have seen fits it. Anything else that takes an offered receive
// (another message, a cancel, the end of the peer) withdraws the offer first. If that fails, the receive is matched, by the
// message whose RTS is still to come.
//
// Whichever side posts second finds the first: the sender sets a flag (SendingRts) before it looks for an offer; the
// receiver writes its offer, waits for the flag to clear and then looks for an RTS.
#pragma once
#include "devices/device.hpp"
#include "protocols/engine.hpp"
#include "transports/offers.hpp"

namespace thalweg::impl {

/// Of one link, at both ends.
struct Offers {
  explicit Offers(const OfferTables& both) : tables(both) {}
  OfferTables tables;
  struct Entry {
    OpRun* run = nullptr;
    uint64_t number = 0;
    bool claimed = false;  // known to be: out of matching, its RTS is still to come
  };
  Entry entries[kOffers];
  uint64_t number = 0;
  size_t posted = 0;  // offered and in matching
};

// --- the receiver
/// The peer that a posted receive is offered to (OpRun::offer is not 0).
inline Peer*& offered_to(OpRun& run) { return *reinterpret_cast<Peer**>(run.state); }
/// A receive that was posted just now. False: it is not offered.
bool make_offer(Engine& engine, OpRun& run);
/// True: it was not claimed, and cannot be any more. False: it is matched, out of matching and bound to that peer.
bool end_offer(Engine& engine, OpRun& run);
[[gnu::cold]] bool withdraw_offers(Engine& engine, Peer& peer, uint64_t tag, OpRun** run);
/// Of a receive that was just taken out of matching for a message of this peer: where it is offered to a peer, it is withdrawn there, or
/// the next one is taken (null: none). False: a violation.
inline bool free_to_match(Engine& engine, Peer& peer, uint64_t tag, OpRun** run) {
  return *run == nullptr || (*run)->offer == 0 || withdraw_offers(engine, peer, tag, run);
}
/// The link is about to end: receives that were claimed end with it, the others stay posted.
void end_offers(Engine& engine, Peer& peer);
/// Takes the receive that this RTS, of a message of `length` bytes, has claimed out of matching. Null: a violation.
OpRun* take_claimed(Engine& engine, Peer& peer, const FrameHeader& header, uint64_t length);
/// Returns when a peer that has not seen the offers so far has sent the RTS it was about to send; or after some
/// microseconds.
void await_rts(Peer& peer);

// --- the sender
struct Claim {
  unsigned entry = 0;
  uint64_t word = 0;  // of the state
  uint64_t tag = 0, mask = 0, capacity = 0, segment = 0, segment_offset = 0, op = 0, taken = 0, order = 0;
  Uuid uuid{};
  Mapping* mapping = nullptr;
};
/// The offer that this message may claim, its memory imported. False: none.
bool find_claim(Engine& engine, Peer& peer, const OpDesc& op, Claim* out);
/// False: the receive was withdrawn meanwhile.
bool take_claim(Peer& peer, const Claim& claim);

/// Lives while a large message of device memory looks for an offer and sends its RTS.
class SendingRts {
 public:
  SendingRts(Peer& peer, const OpDesc& op, bool tagged);
  ~SendingRts();
  SendingRts(const SendingRts&) = delete;
  SendingRts& operator=(const SendingRts&) = delete;

 private:
  uint64_t* word_ = nullptr;
};

}  // namespace thalweg::impl
