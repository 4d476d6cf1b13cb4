// SPDX-License-Identifier: Apache-2.0
#include "trace/packets.hpp"

#include <algorithm>
#include <cstdio>

#include "base/hex.hpp"

namespace thalweg::impl::trace {
namespace {

// Numbers of fields, as the format has them.
constexpr uint32_t kTracePacket = 1;
constexpr uint32_t kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kTrackDescriptor = 60;
constexpr uint32_t kUuid = 1, kTrackName = 2, kProcess = 3, kThread = 4, kParent = 5;
constexpr uint32_t kPid = 1, kTid = 2, kThreadName = 5, kProcessName = 6;
constexpr uint32_t kAnnotation = 4, kType = 9, kTrack = 11, kCategory = 22, kEventName = 23, kFlow = 47, kFlowEnds = 48;
constexpr uint32_t kAnnotationName = 10, kUnsigned = 3, kSigned = 4, kString = 6;
constexpr uint64_t kBegins = 1, kEnds = 2, kInstant = 3;

enum TrackKind : uint64_t { kProcessTrack = 1, kThreadTrack, kLaneTrack, kNamedTrack };

/// splitmix64: every bit depends on all.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

Packets::Packets(uint64_t incarnation, int pid)
    : pid_(pid),
      sequence_(std::max(uint32_t{1}, static_cast<uint32_t>(mix(incarnation)))),
      process_(mix(incarnation ^ kProcessTrack)),
      salt_(incarnation) {}

void Packets::annotate(const char* name, uint64_t value) {
  note_.clear().number(kUnsigned, value);
  note_.text(kAnnotationName, name);
  body_.message(kAnnotation, note_);
}

void Packets::annotate_hex(const char* name, uint64_t value) {
  note_.clear().text(kString, hex16(value));
  note_.text(kAnnotationName, name);
  body_.message(kAnnotation, note_);
}

/// A packet of an event, begun; what it is goes into body_ next.
Proto& Packets::event(uint64_t type, uint64_t track) {
  body_.clear().number(kType, type);
  body_.number(kTrack, track);
  return body_;
}

uint64_t Packets::uuid(uint64_t kind, uint64_t number) const { return mix(mix(salt_ ^ kind) ^ number); }

void Packets::packet(const Proto& body, uint32_t field, const uint64_t* ns, std::string* out) {
  packet_.clear();
  if (ns != nullptr) packet_.number(kTimestamp, *ns);
  packet_.number(kSequence, sequence_);
  packet_.message(field, body);
  Proto::append(kTracePacket, packet_, out);
}

void Packets::process(const std::string& name, std::string* out) {
  Proto process;
  process.number(kPid, static_cast<uint64_t>(pid_));
  process.text(kProcessName, name);
  Proto track;
  track.number(kUuid, process_);
  track.message(kProcess, process);
  packet(track, kTrackDescriptor, nullptr, out);
}

uint64_t Packets::thread_track(int thread, const std::string& name, std::string* out) {
  const uint64_t track = uuid(kThreadTrack, static_cast<uint64_t>(thread));
  if (!described_.insert(track).second) return track;
  Proto of;
  of.number(kPid, static_cast<uint64_t>(pid_));
  of.number(kTid, static_cast<uint64_t>(thread));
  of.text(kThreadName, name);
  Proto descriptor;
  descriptor.number(kUuid, track);
  descriptor.message(kThread, of);
  descriptor.number(kParent, process_);
  packet(descriptor, kTrackDescriptor, nullptr, out);
  return track;
}

uint64_t Packets::named_track(uint64_t number, const std::string& name, std::string* out) {
  const uint64_t track = uuid(kNamedTrack, number);
  if (!described_.insert(track).second) return track;
  Proto descriptor;
  descriptor.number(kUuid, track);
  descriptor.text(kTrackName, name);
  descriptor.number(kParent, process_);
  packet(descriptor, kTrackDescriptor, nullptr, out);
  return track;
}

void Packets::describe(const Event& event) {
  const Name& name = name_of(event.what);
  body_.text(kCategory, name.category);
  const bool named = event.phase == Phase::on_track && event.tag != 0;
  body_.text(kEventName, named ? reinterpret_cast<const char*>(event.tag) : name.name);
  if (event.bytes != 0) annotate("bytes", event.bytes);
  if (event.peer != 0) annotate_hex("peer", event.peer);
  if (event.tagged()) annotate("tag", event.tag);
  if (event.what == What::step) annotate("step", event.number);
}

void Packets::span_begins(const Event& event, uint64_t track, uint64_t ns, std::string* out) {
  this->event(kBegins, track);
  describe(event);
  packet(body_, kTrackEvent, &ns, out);
}

void Packets::span_ends(uint64_t track, uint64_t ns, std::string* out) { packet(event(kEnds, track), kTrackEvent, &ns, out); }

void Packets::instant(const Event& event, uint64_t track, uint64_t ns, std::string* out) {
  this->event(kInstant, track);
  describe(event);
  const bool ends = event.what == What::arrived || event.what == What::unexpected;
  if (event.flow != 0) body_.fixed64(ends ? kFlowEnds : kFlow, event.flow);
  packet(body_, kTrackEvent, &ns, out);
}

/// The first one that is free; described when it is new.
uint64_t Packets::lane(std::string* out) {
  const auto free = std::find(lanes_.begin(), lanes_.end(), false);
  const uint64_t number = static_cast<uint64_t>(free - lanes_.begin());
  if (free == lanes_.end()) {
    lanes_.push_back(true);
    char name[32];
    snprintf(name, sizeof name, "operations %llu", static_cast<unsigned long long>(number + 1));
    Proto descriptor;
    descriptor.number(kUuid, uuid(kLaneTrack, number));
    descriptor.text(kTrackName, name);
    descriptor.number(kParent, process_);
    packet(descriptor, kTrackDescriptor, nullptr, out);
  } else {
    *free = true;
  }
  return number;
}

void Packets::activity_begins(const Event& event, uint64_t ns, std::string* out) {
  if (open_.contains(event.id)) return;  // its end was dropped, and the number is another one's now
  const auto number = static_cast<uint32_t>(lane(out));
  open_[event.id] = number;
  span_begins(event, uuid(kLaneTrack, number), ns, out);
}

void Packets::event_ends(int16_t status, uint64_t track, uint64_t ns, std::string* out) {
  event(kEnds, track);
  if (status != 0) {
    note_.clear().number(kSigned, static_cast<uint64_t>(int64_t{status}));
    note_.text(kAnnotationName, "status");
    body_.message(kAnnotation, note_);
  }
  packet(body_, kTrackEvent, &ns, out);
}

void Packets::activity_ends(const Event& event, uint64_t ns, std::string* out) {
  const auto at = open_.find(event.id);
  if (at == open_.end()) return;  // begun before the timeline, or dropped
  event_ends(event.status, uuid(kLaneTrack, at->second), ns, out);
  lanes_[at->second] = false;
  open_.erase(at);
}

void Packets::note(const char* what, uint64_t value, uint64_t track, uint64_t ns, std::string* out) {
  event(kInstant, track != 0 ? track : process_);
  body_.text(kCategory, "trace");
  body_.text(kEventName, what);
  annotate("events", value);
  packet(body_, kTrackEvent, &ns, out);
}

}  // namespace thalweg::impl::trace
