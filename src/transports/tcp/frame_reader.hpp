// SPDX-License-Identifier: Apache-2.0
// The receiving state machine of one link: cuts a byte stream into frames and delivers them. It never touches a socket:
// the caller asks for the places() of the next bytes, fills them, and reports how many were taken().
//
// Complete frames are delivered straight from the port's shared buffer. A large body that is not yet here is read where
// the sink wants it (its destination), or into memory of its own; small incomplete frames are stored as a leftover. An idle
// reader owns at most a few kilobytes.
#pragma once
#include <sys/uio.h>

#include <memory>
#include <vector>

#include "transports/tcp/tuning.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl::tcp {

/// The port's read buffer, shared by its links (one progress owner). New bytes go behind `kHeadroom`, so that a link's
/// leftover can be put in front of them.
class ReadBuffer {
 public:
  static constexpr size_t kHeadroom = kDestinationMin + 128;
  ReadBuffer() : data_(new std::byte[kHeadroom + kReadBuffer]) {}
  std::byte* fresh() { return data_.get() + kHeadroom; }

 private:
  std::unique_ptr<std::byte[]> data_;
};

class FrameReader {
 public:
  /// `link` and `sink` outlive the reader. Bodies longer than `largest` are a protocol error.
  FrameReader(Link& link, Sink& sink, uint32_t largest) : link_(link), sink_(sink), largest_(largest) {}

  /// Where the next bytes of the stream go, in order: 1 or 2 places, at least one byte in all.
  size_t places(iovec out[2], ReadBuffer& shared);
  /// The first n bytes of the places just asked for were filled. Delivers what is complete; adds to *frames. `gone` is read
  /// after each delivery: the sink ended the link, nothing more is delivered. An error (TW_ERR_PROTOCOL,
  /// TW_ERR_NO_MEMORY): why() is a sentence.
  Status taken(size_t n, ReadBuffer& shared, const bool& gone, unsigned* frames);
  /// The rest of the body that is read into `destination` is thrown away.
  void withdraw(const std::byte* destination);
  const char* why() const { return why_; }
  /// The one that is delivered now included.
  uint32_t taken_frames() const { return sequence_; }
  /// Inside a frame: an end of the stream here is not a clean one.
  bool partial() const { return body_ != Body::none || !leftover_.empty(); }

 private:
  enum class Body : uint8_t { none, destination, own, discard };

  Status parse(const std::byte* at, size_t n, const bool& gone, unsigned* frames);
  Status check(const std::byte* head);
  Status begin_body(const std::byte* prefix, size_t n);
  void end_body(unsigned* frames);
  void keep(const std::byte* at, size_t n);
  Status refuse(const char* why);

  Link& link_;
  Sink& sink_;
  const uint32_t largest_;
  uint32_t sequence_ = 0;
  uint32_t left_ = 0;  // body bytes not here yet
  Body body_ = Body::none;
  size_t limit_ = kReadBuffer;  // of the next read into the shared buffer
  FrameHeader header_{};
  std::byte* destination_ = nullptr;  // start of the body
  std::unique_ptr<std::byte[]> own_;
  std::vector<std::byte> leftover_;
  const char* why_ = "";
};

}  // namespace thalweg::impl::tcp
