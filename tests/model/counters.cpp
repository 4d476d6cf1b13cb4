// SPDX-License-Identifier: Apache-2.0
#include "model/counters.hpp"

#include "protocols/bytes.hpp"
#include "protocols/flow.hpp"

namespace thalweg::model {
namespace {

constexpr uint64_t kSign = uint64_t{1} << 63, k32Bits = uint64_t{1} << 32;

bool starts(const Program& program, Counter which) { return (program.counters & which) != 0; }

Random random_for(const Program& program, Counter which, unsigned worker, unsigned to = 0) {
  return Random(program.seed * 0x2545f4914f6cdd1du + which * 1024u + worker * 32u + to);
}

uint64_t near_any(Random& random) { return random.of({k32Bits, kSign}) - random.below(8); }

struct Used {
  uint64_t bytes, rts, stream;
};
/// Less than a quarter of the smallest window: more would have been given back.
Used used(const Program& program, unsigned from, unsigned to) {
  Random random = random_for(program, kCountCredits, from, to);
  const auto part = [&random](uint64_t window) { return random.below(static_cast<uint32_t>(window / 4)); };
  return {part(kLeastEager), part(kFirstRts), part(kFirstStream)};
}

}  // namespace

FirstNumbers first_numbers(const Program& program, unsigned worker) {
  FirstNumbers first;
  if (starts(program, kCountGenerations)) {
    Random random = random_for(program, kCountGenerations, worker);
    first.generation = 0u - 2 * (1 + random.below(4));
  }
  if (starts(program, kCountReceives)) {
    Random random = random_for(program, kCountReceives, worker);
    first.receive = near_any(random);
  }
  if (starts(program, kCountTickets)) {
    Random random = random_for(program, kCountTickets, worker);
    first.ticket = near_any(random);
    first.stream_wait = near_any(random);
  }
  return first;
}

void start_numbers(const Program& program, unsigned worker, unsigned to, Peer& peer) {
  if (starts(program, kCountMessages)) {
    Random random = random_for(program, kCountMessages, worker, to);
    peer.next_first = random.of({k32Bits, kSign, uint64_t{0}}) - 1 - random.below(3);
  }
  if (starts(program, kCountFrames)) {
    Random random = random_for(program, kCountFrames, worker, to);
    OneSided& all = peer.one_sided;
    all.framed = all.confirmed = all.silent = all.reported = near_any(random);
    all.issued = all.fence = near_any(random);
  }
}

void start_credits(const Program& program, unsigned worker, unsigned to, Peer& peer) {
  if (!starts(program, kCountCredits) || peer.state != TW_OK) return;
  const Used out = used(program, worker, to), in = used(program, to, worker);
  peer.eager_credit -= static_cast<int64_t>(out.bytes);
  peer.rts_credit -= static_cast<int64_t>(out.rts);
  peer.bytes_credit -= static_cast<int64_t>(out.stream);
  peer.consumed_bytes += in.bytes;
  peer.consumed_messages += in.rts;
  peer.consumed_stream += in.stream;
}

std::string check_credits(const Peer& from, const Peer& to) {
  const auto lacks = [](const char* what, int64_t left, uint64_t here, uint64_t granted) -> std::string {
    const int64_t sum = left + static_cast<int64_t>(here);
    if (sum == static_cast<int64_t>(granted)) return "";
    return std::string("of the credit of ") + what + " " + std::to_string(sum) + " are left of " + std::to_string(granted);
  };
  const uint64_t kept = to.byte_stream ? to.byte_stream->kept : 0;
  std::string out = lacks("messages", from.eager_credit, to.consumed_bytes + to.held_bytes, to.granted_bytes);
  if (out.empty()) out = lacks("RTS messages", from.rts_credit, to.consumed_messages + to.held_messages, kFirstRts);
  if (out.empty()) out = lacks("streams", from.bytes_credit, to.consumed_stream + kept, to.granted_stream);
  return out;
}

uint64_t first_word(const Program& program, unsigned worker, unsigned memory, unsigned word, bool narrow) {
  if (!starts(program, kCountWords)) return 0;
  Random random = random_for(program, kCountWords, worker, memory * 8 + word);
  const uint64_t last = narrow ? UINT32_MAX : random.of({~uint64_t{0}, k32Bits - 1, kSign - 1});
  return last - random.below(8);
}

}  // namespace thalweg::model
