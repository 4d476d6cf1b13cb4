// SPDX-License-Identifier: Apache-2.0
// What moving bytes costs on a link, and which protocol that makes the cheapest. Thresholds are computed once per peer
// (Limits); the hot path only compares with them.
#pragma once
#include <string>

#include "memory/remote.hpp"
#include "protocols/peer.hpp"

namespace thalweg::impl {

/// Costs of a link, in nanoseconds and nanoseconds per byte: constants of one machine (select.cpp) until each measures its own.
struct LinkCosts {
  const char* name;
  double frame;         // a small frame, one way
  double copy;          // per byte through the link with copy in and copy out overlapped (a stream of fragments)
  double serial_copy;   // per byte when both copies follow each other (one frame)
  double reference;     // per byte by reference
  double mapped;        // per byte, copied directly from mapped memory by one end
  double kernel_fixed;  // one read_peer / write_peer
  double kernel;        // per byte of those
};

/// Between two memories: what the link can do and what the memories are.
struct Path {
  uint32_t features = 0;  // LinkFeature
  LinkCosts costs{};
  Limits limits;
  MemoryKind local = MemoryKind::host, remote = MemoryKind::host;
  bool contiguous = true;  // the local side is one piece
  bool segment = false;    // ... and lies in library-allocated memory
};

LinkCosts costs_of(const Link& link);
Limits limits_of(const Link& link);
Path path_of(const OpDesc& op);  // from op.peer, its address and its layout

/// Does the contiguous local side lie in library-allocated memory?
bool in_segment(const OpDesc& op);

/// The protocol for a send of op (length, layout, flags) to its peer: two compares.
const Protocol& select_send(const OpDesc& op);
/// The table of candidates for an operation as text: predicted cost or "impossible: REASON", the choice, why the losers lost;
/// the last line is "chosen: NAME". op.peer, verb and length must be set; remote null: a table for each kind of target memory. The address
/// matters for messages from the library's memory.
std::string explain(const OpDesc& op);
/// "send", "am", "bytes", "put", "get", "atomic", "signal" -> Verb; false: none of these.
bool verb_named(const char* name, Verb* verb);

}  // namespace thalweg::impl
