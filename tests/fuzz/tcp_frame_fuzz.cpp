// SPDX-License-Identifier: Apache-2.0
// Random bytes into the receiving state machine of a tcp link: no frame beyond its bounds, no byte outside its place. The
// first bytes choose how the stream is cut, where bodies land and when a destination is withdrawn; prefixes are repaired on
// demand, so that the fuzzer gets past the sequence check.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "transports/tcp/frame.hpp"
#include "transports/tcp/frame_reader.hpp"

namespace {

using namespace thalweg::impl;

class FuzzSink final : public Sink {
 public:
  explicit FuzzSink(uint8_t choice) : choice_(choice) {}
  tcp::FrameReader* reader = nullptr;
  bool gone = false;

  void on_frame(Link&, const FrameHeader& header, const std::byte* body) override {
    for (uint32_t i = 0; i < header.length; ++i) sum_ += static_cast<uint8_t>(body[i]);
    if ((choice_ & 4) != 0 && header.flags == 0xff) gone = true;
  }
  std::byte* destination(Link&, const FrameHeader& header, const std::byte* prefix, size_t n) override {
    if (n >= header.length || n < tcp::kPrefix) std::abort();
    for (size_t i = 0; i < n; ++i) sum_ += static_cast<uint8_t>(prefix[i]);
    if ((choice_ & 1) != 0) return nullptr;
    place_.assign(header.length, std::byte{0});
    return place_.data();
  }
  void on_landed(Link&, const FrameHeader& header) override {
    if (place_.size() != header.length) std::abort();
  }
  void on_sent(Link&, void*, Status) override { std::abort(); }
  void on_lost(Link&, Status, const char*) override { std::abort(); }
  void on_import(Link&, uint64_t) override { std::abort(); }
  void maybe_withdraw() {
    if ((choice_ & 2) == 0 || place_.empty()) return;
    reader->withdraw(place_.data());
    std::vector<std::byte>().swap(place_);  // freed: a later write is caught
  }

 private:
  const uint8_t choice_;
  std::vector<std::byte> place_;
  unsigned sum_ = 0;
};

/// Makes the prefixes of the frames in the stream valid, as far as the lengths lead.
void repair(std::vector<std::byte>& stream) {
  uint32_t sequence = 0;
  for (size_t at = 0; at + tcp::kFrameHead <= stream.size();) {
    const tcp::FramePrefix prefix{sequence++, 0, tcp::kFrameVersion, 0};
    std::memcpy(stream.data() + at, &prefix, sizeof(prefix));
    FrameHeader header;
    std::memcpy(&header, stream.data() + at + sizeof(prefix), sizeof(header));
    header.length &= 0x3fff;
    std::memcpy(stream.data() + at + sizeof(prefix), &header, sizeof(header));
    at += tcp::kFrameHead + header.length;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const uint8_t choice = data[0];
  uint32_t cut = data[1] | (data[2] << 8) | 1u;
  std::vector<std::byte> stream(size - 3);
  std::memcpy(stream.data(), data + 3, size - 3);
  if ((choice & 8) != 0) repair(stream);
  Link link;
  FuzzSink sink(choice);
  tcp::FrameReader reader(link, sink, tcp::kReferenceMax);
  sink.reader = &reader;
  tcp::ReadBuffer buffer;
  unsigned frames = 0;
  for (size_t at = 0; at < stream.size() && !sink.gone;) {
    iovec places[2];
    const size_t count = reader.places(places, buffer);
    size_t n = 0;
    size_t limit = std::min<size_t>(stream.size() - at, 1 + cut % 5000);
    for (size_t i = 0; i < count && limit > 0; ++i) {
      const size_t part = std::min(limit, places[i].iov_len);
      std::memcpy(places[i].iov_base, stream.data() + at + n, part);
      n += part;
      limit -= part;
    }
    if (n == 0) std::abort();
    at += n;
    cut = cut * 1664525u + 1013904223u;
    if (reader.taken(n, buffer, sink.gone, &frames) != TW_OK) return 0;
    sink.maybe_withdraw();
  }
  return 0;
}
