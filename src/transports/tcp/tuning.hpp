// SPDX-License-Identifier: Apache-2.0
// The numbers of the tcp transport, in one place, with their reasons. Sizes are bytes.
#pragma once
#include <cstddef>
#include <cstdint>

namespace thalweg::impl::tcp {

// Bodies up to here travel in one small buffer with their header: one send() instead of a gathered sendmsg().
inline constexpr uint32_t kInline = 512;
// Largest body of send() and reserve().
inline constexpr uint32_t kCopyMax = 64u << 10;
// The fragment of longer messages, and the largest body by reference. Measured on loopback (EPYC, 2026-11-25): 1 MiB in one
// write takes 109 us, in two 141, in eight 197; 16 MiB 2290, 2540, 3620. A small frame waits for at most kMaxReferences of
// these.
inline constexpr uint32_t kFragment = 1u << 20;
inline constexpr uint32_t kReferenceMax = kFragment + 4096;  // and what an operation has before its payload
// Socket buffers stay the kernel's choice (256 KiB to 4 MiB made no difference), MSG_ZEROCOPY is not used (15-20 us instead
// of 10 for 64 KiB, 2.6 GB/s instead of 5-7), bodies are read by one recvmsg into destination and read buffer.
// What establish() accepts from a peer that offers other limits.
inline constexpr uint32_t kSmallestReferenceMax = 4096;
// Bodies by reference queued on one link before TW_AGAIN.
inline constexpr unsigned kMaxReferences = 2;
// Pieces of one body by reference.
inline constexpr size_t kMaxPieces = 1024;

// Frames written at once between two progress() calls; later ones are coalesced, so that a burst of small messages costs
// one system call per kBatch bytes instead of one each, while a request or a few still leave immediately.
inline constexpr unsigned kImmediate = 2;
inline constexpr size_t kBatch = 16u << 10;
// Bytes queued in user space on one link before TW_AGAIN.
inline constexpr size_t kQueued = 64u << 10;

// Port-shared read buffer, and how much of it is offered behind a body that is read in place.
inline constexpr size_t kReadBuffer = 64u << 10;
inline constexpr size_t kReadTail = 4u << 10;
// After a large body the next read takes only this much, so that the next large body is read in place nearly whole.
inline constexpr size_t kReadSmall = 8u << 10;
// Incomplete frames with bodies below this wait in the link's leftover; larger ones ask for a destination, but not before
// kPrefix bytes of the body are here for the engine to read.
inline constexpr uint32_t kDestinationMin = 4096;
inline constexpr uint32_t kPrefix = 64;
// Bytes read from one link before the others get their turn.
inline constexpr size_t kReadTurn = 1u << 20;

// Links polled directly by recv(); all others are found by epoll.
inline constexpr unsigned kHot = 4;
// A hot link that was idle for this many rounds while another one was active is given back to epoll.
inline constexpr unsigned kHotIdle = 64;
// Rounds of polling without arm() after which a hot link leaves the epoll set (a socket without waiters is cheaper).
inline constexpr unsigned kHotAlone = 256;
// The other links are looked at every so many rounds (epoll_wait in every round nearly doubles the latency of 8 bytes).
inline constexpr unsigned kColdRounds = 16;

}  // namespace thalweg::impl::tcp
