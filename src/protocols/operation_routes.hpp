// SPDX-License-Identifier: Apache-2.0
// Operations as src/routes sees them: its input, the protocol that it chooses for a send, its tables as text.
#pragma once
#include <string>

#include "memory/remote.hpp"
#include "protocols/peer.hpp"
#include "routes/accesses.hpp"
#include "routes/messages.hpp"

namespace thalweg::impl {

const LinkCosts& costs_of(const Peer& peer);  // of its link, which it must have
/// Of a send or an active message: the input of the routes' table.
Message message_of(const OpDesc& op);
/// As far as the choice of an active message's sender depends on it.
Message active_of(const OpDesc& op);

/// Of a put, get or atomic between host memories. mapped: this CPU reaches the target.
Access access_of(const OpDesc& op, bool mapped);
/// Of a signal, alone or of a put. behind: what it comes behind is not applied for sure.
Access signal_access_of(const OpDesc& op, bool behind);

/// Does the contiguous local side lie in library-allocated memory?
bool in_segment(const OpDesc& op);

/// The protocol for a send of op to its connected peer, as things are now: credit comes and goes.
const Protocol& select_send(const OpDesc& op);
/// The table of candidates for an operation as text: predicted cost or "impossible: REASON", the choice, why the losers
/// lost; the last line is "chosen: NAME". op.peer, verb and length must be set; remote null: a table for each kind of target
/// memory. The address matters for messages from the library's memory.
std::string explain(const OpDesc& op);
/// "send", "am", "bytes", "put", "get", "atomic", "signal" -> Verb; false: none of these.
bool verb_named(const char* name, Verb* verb);

}  // namespace thalweg::impl
