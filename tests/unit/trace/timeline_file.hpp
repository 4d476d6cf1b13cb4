// SPDX-License-Identifier: Apache-2.0
// A timeline as it is in the file: enough of the format to see events and their lines.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace thalweg::tests {

/// Fields of a message by their numbers: numbers, and bytes.
struct Message {
  std::multimap<uint32_t, uint64_t> numbers;
  std::multimap<uint32_t, std::string> texts;
  bool whole = true;

  explicit Message(const std::string& bytes) {
    size_t at = 0;
    const auto varint = [&] {
      uint64_t value = 0;
      for (int shift = 0; at < bytes.size(); shift += 7) {
        const auto byte = static_cast<unsigned char>(bytes[at++]);
        value |= uint64_t(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
      }
      whole = false;
      return value;
    };
    while (at < bytes.size() && whole) {
      const uint64_t key = varint();
      const auto field = static_cast<uint32_t>(key >> 3);
      if ((key & 7) == 0) {
        numbers.emplace(field, varint());
      } else if ((key & 7) == 1) {
        uint64_t value = 0;
        whole = at + 8 <= bytes.size();
        if (!whole) return;
        std::memcpy(&value, &bytes[at], 8);
        at += 8;
        numbers.emplace(field, value);
      } else if ((key & 7) == 2) {
        const uint64_t length = varint();
        whole = length <= bytes.size() - at;
        if (!whole) return;
        texts.emplace(field, bytes.substr(at, length));
        at += length;
      } else {
        whole = false;
      }
    }
  }
  uint64_t number(uint32_t field) const { return numbers.contains(field) ? numbers.find(field)->second : 0; }
  std::string text(uint32_t field) const { return texts.contains(field) ? texts.find(field)->second : ""; }
};

struct Seen {
  uint64_t ns, type, track, flow, flow_ends;
  std::string name;
  uint64_t bytes, dropped;  // that it is annotated with
};

/// Of an event's annotations.
inline uint64_t annotated(const Message& event, const std::string& name) {
  const auto [first, end] = event.texts.equal_range(4);
  for (auto at = first; at != end; ++at) {
    const Message annotation(at->second);
    if (annotation.text(10) == name) return annotation.number(3);
  }
  return 0;
}

struct TimelineFile {
  std::vector<Seen> events;
  std::map<uint64_t, std::string> tracks;  // names by uuid
  explicit TimelineFile(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    const Message trace(std::string(std::istreambuf_iterator<char>(in), {}));
    EXPECT_TRUE(trace.whole);
    for (const auto& [field, bytes] : trace.texts) {
      EXPECT_EQ(field, 1u);
      const Message packet(bytes);
      EXPECT_TRUE(packet.whole);
      EXPECT_NE(packet.number(10), 0u) << "no sequence";
      if (const std::string track = packet.text(60); !track.empty()) {
        const Message described(track);
        const std::string thread = described.text(4), process = described.text(3);
        tracks[described.number(1)] = !thread.empty()    ? Message(thread).text(5)
                                      : !process.empty() ? Message(process).text(6)
                                                         : described.text(2);
      }
      if (const std::string event = packet.text(11); !event.empty()) {
        const Message what(event);
        EXPECT_TRUE(tracks.contains(what.number(11))) << "a line that was not described";
        events.push_back({packet.number(8), what.number(9), what.number(11), what.number(47), what.number(48), what.text(23),
                          annotated(what, "bytes"), annotated(what, "events")});
      }
    }
  }
  size_t count(const std::string& name) const {
    size_t n = 0;
    for (const Seen& one : events) n += one.name == name;
    return n;
  }
};

}  // namespace thalweg::tests
