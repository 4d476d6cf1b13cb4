// SPDX-License-Identifier: Apache-2.0
#include "routes.hpp"

#include <cstdlib>
#include <cstring>
#include <vector>

namespace conformance {

const char* const Routes::kNames[kWays] = {"eager", "frames", "mapped", "kernel", "push", "pull", "staging"};

namespace {

constexpr size_t kEager = 0;
constexpr char kOr[] = ", or where ";

/// The number of the place's device.
int device_of(unsigned place) {
  const char* const colon = std::strchr(place_name(place), ':');
  return place < kFirstDevice || colon == nullptr ? -1 : std::atoi(colon + 1);
}

/// The words with which explain names memory of the receiver.
std::string receiver(const Row& row) {
  const unsigned mine = row.place[0], there = row.place[1];
  if (there == kPinned) return "pinned library memory";
  if (there < kFirstDevice) return there == kPlain ? "ordinary memory" : "library memory";
  const bool same = device_of(mine) == device_of(there);
  const std::string name = place_name(there), which = same ? "the same device" : "another device";
  const bool unnamed = name.find("pool") != std::string::npos || name.find("managed") != std::string::npos;
  return unnamed ? "pool or managed memory of " + which : which + "'s memory";
}

}  // namespace

Routes::Routes(Side& side, const Row& row, Kind kind) : side_(side), row_(row), kind_(kind), before_(counted()) {}

/// A device can be asked to write into a short list of the receiver's only, and a sender cannot say how long that is, nor
/// whether the receiver unpacks by callbacks.
bool Routes::known() const {
  if (kind_ == Kind::messages && row_.remote == Shape::callbacks) return false;
  return row_.routes != 0 && !(kind_ == Kind::messages && row_.place[1] >= kFirstDevice && row_.remote == Shape::list);
}

Routes::Counts Routes::counted() const {
  size_t length = 0;
  must(tw_context_counters(side_.context, nullptr, &length), "tw_context_counters");
  std::vector<char> room(length + 4096);  // it may have grown meanwhile
  length = room.size();
  must(tw_context_counters(side_.context, room.data(), &length), "tw_context_counters");
  const char* const text = room.data();
  Counts counts{};
  for (size_t i = 0; i < kWays; ++i) {
    const std::string mark = "\"" + std::string(kNames[i]) + "\": {\"operations\": ";
    const char* const at = std::strstr(text, mark.c_str());
    if (at == nullptr) failed("no counter of the way %s in %s", kNames[i], text);
    counts[i] = std::strtoull(at + mark.size(), nullptr, 10);
  }
  return counts;
}

std::string Routes::key() const { return kind_ == Kind::messages ? "\nway into " + receiver(row_) + ": " : "\nway: "; }

size_t Routes::index_of(const std::string& name, const std::string& text) {
  for (size_t i = 0; i < kWays; ++i) {
    if (name == kNames[i]) return i;
  }
  failed("explain names no way: %s", text.c_str());
}

void Routes::expect(const char* verb, const void* address, size_t length, tw_remote_memory* remote,
                    const tw_op_options* options) {
  if (length == 0 || !known()) return;
  char text[16384];
  size_t size = sizeof text;
  must(tw_endpoint_explain_buffer(side_.endpoint, verb, address, length, remote, options, text, &size),
       "tw_endpoint_explain_buffer");
  const std::string mark = key();
  const char* const at = std::strstr(text, mark.c_str());
  if (at == nullptr) failed("explain does not say %s: %s", mark.c_str() + 1, text);
  const std::string line(at + mark.size(), std::strcspn(at + mark.size(), "\n"));
  std::string name = line.substr(0, line.find(kOr));
  // The buffer is new, so no peer has mapped it.
  if (const size_t cold = name.rfind(": "); cold != std::string::npos) name = name.substr(cold + 2);
  ++expected_[index_of(name, text)];
  take_alternatives(line, index_of(name, text), text);
  said_ = text;
}

/// "push, or where the receive is posted second: pull": nothing here says which of them it is.
void Routes::take_alternatives(const std::string& line, size_t base, const std::string& text) {
  for (size_t at = line.find(kOr); at != std::string::npos; at = line.find(kOr, at + 1)) {
    const size_t from = line.find(": ", at) + 2;
    std::string name = line.substr(from, line.find(kOr, from) - from);
    if (const size_t cold = name.rfind(": "); cold != std::string::npos) {
      either_[index_of(name.substr(0, name.find(',')), text)] = true;
      name = name.substr(cold + 2);
    }
    either_[base] = either_[index_of(name, text)] = true;
  }
}

void Routes::expect_runs(const std::string& text, unsigned runs, bool started) {
  if (row_.routes == 0 || row_.size == 0) return;
  said_ = text;
  const std::string mark = ": mapped, way: ";
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    const size_t begin = at + mark.size();
    expected_[index_of(text.substr(begin, text.find('\n', begin) - begin), text)] += started ? runs : 0;
  }
  for (size_t at = text.find(": by the host: "); at != std::string::npos; at = text.find(": by the host: ", at + 1))
    carried_ += runs;
}

void Routes::check() {
  if (!known()) return;
  Counts there{};
  if (side_.rank == 0) side_.receive_control(&there, sizeof there);  // all is over there, which counts may be here
  Counts moved = counted();
  for (size_t i = 0; i < kWays; ++i) moved[i] -= before_[i];
  if (side_.rank == 1) {
    if (side_.shares_context()) moved = Counts{};  // rank 0 sees them as well
    return side_.send_control(&moved, sizeof moved);
  }
  uint64_t moved_either = 0, expected_either = 0, more = 0;
  for (size_t i = 0; i < kWays; ++i) {
    moved[i] += there[i];
    if (either_[i]) {
      moved_either += moved[i];
      expected_either += expected_[i];
      continue;
    }
    const bool enough = moved[i] >= expected_[i];
    if (i != kEager && enough) more += moved[i] - expected_[i];
    // The ranks talk by short messages, too.
    if (i == kEager || carried_ != 0 ? enough : moved[i] == expected_[i]) continue;
    failed("%llu operations went by the way %s, explain had said so of %llu: %s", (unsigned long long)moved[i], kNames[i],
           (unsigned long long)expected_[i], said_.c_str());
  }
  const bool met = either_[kEager] ? moved_either >= expected_either : moved_either == expected_either;  // the ranks' own, too
  if (!met) {
    failed("%llu operations went by one of the ways that explain names, which had said so of %llu: %s",
           (unsigned long long)moved_either, (unsigned long long)expected_either, said_.c_str());
  }
  // What a channel carries are messages, also short ones; the ranks' own are among those.
  const uint64_t most = more + (kind_ == Kind::channels ? moved[kEager] : 0);
  if (carried_ != 0 && (more > carried_ || most < carried_))
    failed("%llu operations were carried by the host, explain had said so of %llu: %s", (unsigned long long)most,
           (unsigned long long)carried_, said_.c_str());
}

}  // namespace conformance
