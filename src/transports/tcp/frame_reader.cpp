// SPDX-License-Identifier: Apache-2.0
// The receiving state machine: places, parse, land. Everything it reads comes from a peer and is checked here.
#include "transports/tcp/frame_reader.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "transports/tcp/frame.hpp"

namespace thalweg::impl::tcp {

size_t FrameReader::places(iovec out[2], ReadBuffer& shared) {
  switch (body_) {
    case Body::none:
      out[0] = {shared.fresh(), limit_};
      return 1;
    case Body::discard:
      out[0] = {shared.fresh(), std::min<size_t>(left_, kReadBuffer)};
      return 1;
    case Body::destination:
    case Body::own:
      break;
  }
  out[0] = {destination_ + (header_.length - left_), left_};
  out[1] = {shared.fresh(), kReadTail};
  return 2;
}

Status FrameReader::taken(size_t n, ReadBuffer& shared, const bool& gone, unsigned* frames) {
  if (body_ != Body::none) {
    const size_t m = std::min<size_t>(n, left_);
    // A discarded body is read into the shared buffer itself, and never more than the rest of it.
    left_ -= static_cast<uint32_t>(m);
    if (left_ > 0) return TW_OK;
    end_body(frames);
    if (gone || n == m) return TW_OK;
    return parse(shared.fresh(), n - m, gone, frames);
  }
  if (n == limit_) limit_ = kReadBuffer;
  std::byte* at = shared.fresh();
  if (!leftover_.empty()) {
    const size_t before = leftover_.size();
    at -= before;
    std::memcpy(at, leftover_.data(), before);
    n += before;
    leftover_.clear();
  }
  return parse(at, n, gone, frames);
}

Status FrameReader::parse(const std::byte* at, size_t n, const bool& gone, unsigned* frames) {
  while (n >= kFrameHead) {
    if (Status s = check(at); s != TW_OK) return s;
    const std::byte* body = at + kFrameHead;
    const size_t here = n - kFrameHead;
    if (here < header_.length) {
      const bool large = header_.length >= kDestinationMin;
      if (!large || here < kPrefix) break;
      ++sequence_;
      return begin_body(body, here);
    }
    ++sequence_;
    const size_t whole = kFrameHead + header_.length;
    at += whole;
    n -= whole;
    ++*frames;
    const FrameHeader header = header_;
    sink_.on_frame(link_, header, body);
    if (gone) return TW_OK;
  }
  if (n > 0) keep(at, n);
  return TW_OK;
}

Status FrameReader::check(const std::byte* head) {
  FramePrefix prefix;
  std::memcpy(&prefix, head, sizeof(prefix));
  std::memcpy(&header_, head + sizeof(prefix), sizeof(header_));
  if (prefix.version != kFrameVersion) return refuse("the peer sent a frame of an unknown version");
  if (prefix.rail != 0 || prefix.reserved != 0) return refuse("the peer sent a frame with unknown fields");
  if (prefix.sequence != sequence_) return refuse("the peer sent a frame out of sequence");
  if (header_.length > largest_) return refuse("the peer sent a frame longer than agreed");
  return TW_OK;
}

Status FrameReader::begin_body(const std::byte* prefix, size_t n) {
  left_ = header_.length - static_cast<uint32_t>(n);
  limit_ = kReadSmall;
  destination_ = sink_.destination(link_, header_, prefix, n);
  body_ = Body::destination;
  if (destination_ == nullptr) {
    own_.reset(new (std::nothrow) std::byte[header_.length]);
    destination_ = own_.get();
    if (destination_ == nullptr) {
      why_ = "no memory for a frame that has no place to land yet";
      return TW_ERR_NO_MEMORY;
    }
    body_ = Body::own;
  }
  std::memcpy(destination_, prefix, n);
  return TW_OK;
}

void FrameReader::end_body(unsigned* frames) {
  const Body was = body_;
  body_ = Body::none;
  destination_ = nullptr;
  const FrameHeader header = header_;
  if (was == Body::discard) return;
  ++*frames;
  if (was == Body::destination) {
    sink_.on_landed(link_, header);
    return;
  }
  const std::unique_ptr<std::byte[]> own = std::move(own_);
  sink_.on_frame(link_, header, own.get());
}

void FrameReader::withdraw(const std::byte* destination) {
  if (body_ == Body::destination && destination == destination_) {
    body_ = Body::discard;
    destination_ = nullptr;
  }
}

void FrameReader::keep(const std::byte* at, size_t n) { leftover_.assign(at, at + n); }

Status FrameReader::refuse(const char* why) {
  why_ = why;
  return TW_ERR_PROTOCOL;
}

}  // namespace thalweg::impl::tcp
