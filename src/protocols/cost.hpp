// SPDX-License-Identifier: Apache-2.0
// What moving bytes costs on a link, and which protocol that makes the cheapest. Thresholds are computed once per peer
// (Limits); the hot path only compares with them.
#pragma once
#include <string>

#include "memory/remote.hpp"
#include "protocols/peer.hpp"

namespace thalweg::impl {

/// Costs of a link, in nanoseconds and nanoseconds per byte.
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

/// Costs of copies by a device, in nanoseconds and nanoseconds per byte: idle, until the host knows. Two H200 over NVLink.
struct DeviceCosts {
  double write = 6700, read = 10300;  // an engine's, to another device and from it
  double link = 0.0026;               // per byte between devices
  double pinned = 0.019;              // per byte to or from pinned memory
  double resident = 3100;             // by the resident kernel of one block
  double resident_block = 600;        // for each further one, which reads the commands across the bus, too
  double resident_byte = 0.0229;      // by one block; four take twice that
};
constexpr DeviceCosts kDeviceCosts;
/// The most bytes that a resident kernel of so many blocks copies at no more than an engine's cost.
uint64_t resident_most(const DeviceCosts& costs, unsigned blocks);
double resident_ns(const DeviceCosts& costs, unsigned blocks, uint64_t bytes);

/// The costs in force in a context: what `thalweg tune` measured on this machine (cost_file.hpp), else these defaults, measured
/// on one machine (two cores of a Zen 5, 2026-11).
struct CostTable {
  //             name    frame copy   serial reference mapped kernel-fixed kernel
  LinkCosts self{"self", 20, 0.02, 0.03, 0.02, 0.012, 0, 0};
  LinkCosts shm{"shm", 90, 0.028, 0.033, 0.028, 0.025, 1500, 0.08};
  LinkCosts tcp{"tcp", 4000, 0.11, 0.11, 0.085, 0, 0, 0};
  std::string source = "defaults";  // or the file they are from
  std::string why;                  // not measured ones: what is the matter with the file
  std::string file;                 // where measured ones are looked for and kept; empty: nowhere
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

const LinkCosts& costs_of(const Peer& peer);  // of its link, which it must have
Limits limits_of(const Link& link, const LinkCosts& costs);
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
