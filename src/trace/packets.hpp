// SPDX-License-Identifier: Apache-2.0
// Events as packets of Perfetto's trace format (protos/perfetto/trace/trace_packet.proto): each stands alone, so that files may be joined,
// and one that breaks off can be read up to there.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trace/event.hpp"
#include "trace/proto.hpp"

namespace thalweg::impl::trace {

/// Of one process. What it makes is appended to `out`.
class Packets {
 public:
  /// incarnation: names the process among those whose files are joined.
  Packets(uint64_t incarnation, int pid);

  void process(const std::string& name, std::string* out);
  /// A span's begin, and its end: nested as their times are.
  void span_begins(const Event& event, uint64_t track, uint64_t ns, std::string* out);
  void span_ends(uint64_t track, uint64_t ns, std::string* out);
  /// An activity: on the first line that none is on.
  void activity_begins(const Event& event, uint64_t ns, std::string* out);
  void activity_ends(const Event& event, uint64_t ns, std::string* out);
  void instant(const Event& event, uint64_t track, uint64_t ns, std::string* out);
  /// The lines, described before their first packet.
  uint64_t thread_track(int thread, const std::string& name, std::string* out);
  uint64_t named_track(uint64_t number, const std::string& name, std::string* out);
  /// How many events something happened to. track: of a thread; 0: of the process.
  void note(const char* what, uint64_t value, uint64_t track, uint64_t ns, std::string* out);

 private:
  uint64_t uuid(uint64_t kind, uint64_t number) const;
  void packet(const Proto& body, uint32_t field, const uint64_t* ns, std::string* out);
  Proto& event(uint64_t type, uint64_t track);
  void event_ends(int16_t status, uint64_t track, uint64_t ns, std::string* out);
  void describe(const Event& event);
  void annotate(const char* name, uint64_t value);
  void annotate_hex(const char* name, uint64_t value);
  uint64_t lane(std::string* out);

  const int pid_;
  const uint32_t sequence_;
  const uint64_t process_;
  const uint64_t salt_;
  Proto packet_, body_, note_;  // what is being made; their memory stays
  std::unordered_set<uint64_t> described_;
  std::unordered_map<uint64_t, uint32_t> open_;  // activities, and their lines
  std::vector<bool> lanes_;                      // taken
};

}  // namespace thalweg::impl::trace
