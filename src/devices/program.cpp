// SPDX-License-Identifier: Apache-2.0
// Checking and completing the steps of a program.
#include "devices/program.hpp"

#include "devices/program/ownership.hpp"
#include "devices/program/specialised_of.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "thalweg/device/side.hpp"

namespace thalweg::impl {
namespace {

using device::Step;
using device::StepKind;

constexpr uint32_t kWarp = 32, kMostThreads = 512;
constexpr uint32_t kMostPieces = 16384;
constexpr uint64_t kMostBytes = uint64_t{1} << 62;  // in items that 32 bits count
constexpr uint32_t kWarps = kMostThreads / kWarp;
static_assert(kMostBlocks == device::kMostOwners);

bool moves(const Step& step) { return step.kind <= StepKind::reduce; }
bool in_channel(const Step& step) {
  return step.kind == StepKind::send || step.kind == StepKind::post || step.kind == StepKind::take;
}

Status check(const Step& step, uint32_t number, std::span<const uint32_t> after) {
  if (step.first_after > after.size() || step.after_count > after.size() - step.first_after)
    return fail(TW_ERR_INVALID, "step %u comes after steps that the list does not have", number);
  for (const uint32_t each : after.subspan(step.first_after, step.after_count)) {
    const uint32_t earlier = each & ~device::kOwnShare;
    if (earlier >= number) return fail(TW_ERR_INVALID, "step %u comes after step %u, which is no earlier one", number, earlier);
  }
  if (moves(step) && step.recv_buffer > number)
    return fail(TW_ERR_INVALID, "step %u moves on the bytes of step %u, which is no earlier one", number, step.recv_buffer - 1);
  const bool needs_word = step.kind == StepKind::atomic || step.kind == StepKind::ring || step.kind == StepKind::await ||
                          (step.kind == StepKind::reduce && step.bytes != 0);
  const bool needs_signal = step.kind == StepKind::signal || step.kind == StepKind::wait;
  if ((in_channel(step) && step.end == nullptr) || (needs_word && step.word == nullptr) ||
      (needs_signal && step.signal.word == nullptr)) {
    return fail(TW_ERR_INVALID, "step %u names no word or channel", number);
  }
  if (step.kind == StepKind::atomic && step.atomic_bytes != 4 && step.atomic_bytes != 8)
    return fail(TW_ERR_INVALID, "step %u: an atomic operation needs a word of 4 or 8 bytes", number);
  return TW_OK;
}

/// The n-th step of its kind in its channel; the last one has their number.
Status number_in_channels(std::span<Step> steps) {
  struct Seen {
    uint64_t count = 0;
    Step* last = nullptr;
  };
  std::map<std::pair<const void*, StepKind>, Seen> channels;
  for (Step& step : steps) {
    if (!in_channel(step)) continue;
    Seen& seen = channels[{step.end, step.kind}];
    step.operand = seen.count++;
    step.operand2 = 0;
    seen.last = &step;
    if (step.kind == StepKind::post && seen.count > device::kSlots) {
      return fail(TW_ERR_UNSUPPORTED, "one program has more than %u receives of one channel; use several channels or programs",
                  device::kSlots);
    }
  }
  for (const auto& [key, seen] : channels) seen.last->operand2 = seen.count;
  return TW_OK;
}

/// Measured on two H200: 16 blocks saturate a link with what fits into one latency, 32 with more; strided rows of single
/// words want threads rather than bytes in flight.
uint32_t blocks_for(uint64_t bytes, bool scattered) {
  const uint64_t share = 4096, most = scattered || bytes >= (32u << 20) ? 64 : bytes >= (512u << 10) ? 32 : 16;
  return static_cast<uint32_t>(std::bit_ceil(std::clamp<uint64_t>(bytes / share, 1, most)));
}

bool scattered(const device::Side& side) { return side.pieces == nullptr && side.block < 512; }

/// A thread for each 32 bytes of a block's share; for each word of scattered ones.
uint32_t threads_for(uint64_t share, bool scattered) {
  return static_cast<uint32_t>(std::bit_ceil(std::clamp<uint64_t>(share / (scattered ? 8 : 32), kWarp, kMostThreads)));
}

/// `blocks` and `compare` of the step: those of its kernel, the same on all ranks.
Status arrange_exchange(std::span<Step> steps, ProgramShape* out) {
  if (steps.size() != 1) return fail(TW_ERR_UNSUPPORTED, "an exchange is a program of its own");
  *out = ProgramShape{};
  out->blocks = steps[0].blocks;
  out->threads = steps[0].compare;
  return TW_OK;
}

}  // namespace

uint32_t most_blocks(uint32_t multiprocessors, bool shared) {
  if (multiprocessors == 0) return kMostBlocks;
  return std::bit_floor(std::clamp(shared ? multiprocessors / kSharers : multiprocessors, 1u, kMostBlocks));
}

Status arrange(std::span<Step> steps, std::span<const uint32_t> after, uint32_t blocks, uint32_t most, ProgramShape* out) {
  if (!steps.empty() && steps[0].kind == StepKind::exchange) return arrange_exchange(steps, out);
  if (steps.size() > kMostSteps) return fail(TW_ERR_UNSUPPORTED, "a program has at most %u steps; make several", kMostSteps);
  uint64_t bytes = 0;
  bool small_rows = false;
  out->reduces = false;
  for (uint32_t i = 0; i < steps.size(); ++i) {
    if (Status s = check(steps[i], i, after); is_error(s)) return s;
    if (!moves(steps[i])) continue;
    blocks = std::max(blocks, steps[i].blocks);
    const uint64_t halves = steps[i].kind == StepKind::reduce ? steps[i].compare + uint64_t{1} : 2;  // each source is read
    if (steps[i].bytes > (kMostBytes - bytes) / halves)
      return fail(TW_ERR_INVALID, "the first %u steps have more bytes than any memory: check their lengths", i + 1);
    bytes += steps[i].bytes * halves / 2;
    out->reduces = out->reduces || steps[i].kind == StepKind::reduce;
    if (steps[i].kind == StepKind::copy)
      steps[i].atomic_bytes = static_cast<uint32_t>(device::common_word(steps[i].to, steps[i].from, steps[i].bytes));
    small_rows = small_rows || scattered(steps[i].from) || (steps[i].kind == StepKind::copy && scattered(steps[i].to));
  }
  if (Status s = number_in_channels(steps); is_error(s)) return s;
  out->blocks = std::min(most, blocks == 0 ? blocks_for(bytes, small_rows) : std::bit_ceil(std::min(blocks, kMostBlocks)));
  out->threads = threads_for(bytes / out->blocks, small_rows);
  const uint64_t each = bytes / (uint64_t{out->blocks} * kWarps);
  const uint64_t item = std::bit_ceil(std::clamp<uint64_t>(each, 256, std::max<uint64_t>(4096, bytes / kMostPieces)));
  out->item = static_cast<uint32_t>(std::min<uint64_t>(item, uint64_t{1} << 31));
  uint64_t items = 0;  // so far; an item's number determines which warp copies it
  for (Step& step : steps) {
    if (!moves(step)) continue;
    if (step.recv_buffer != 0) {  // each warp moves on what it has moved
      step.recv_buffer = steps[step.recv_buffer - 1].recv_buffer;
      continue;
    }
    step.recv_buffer = static_cast<uint32_t>(items);
    items += (step.bytes + out->item - 1) / out->item;
  }
  out->specialised = specialised_of(steps, after);
  out->specialised.items = static_cast<uint32_t>(items);
  if (!out->specialised.known()) {  // a thread polls a step
    const uint64_t pollers = std::min<uint64_t>(std::bit_ceil(steps.size()), kMostThreads);
    out->threads = std::max(out->threads, static_cast<uint32_t>(pollers));
  }
  if (out->specialised.move == device::Move::list ||
      out->specialised.move == device::Move::independent) {  // a warp for each piece
    out->threads = static_cast<uint32_t>(std::bit_ceil(std::clamp<uint64_t>(items * kWarp / out->blocks, kWarp, kMostThreads)));
  }
  return TW_OK;
}

size_t placed_bytes(std::span<const Step> steps, std::span<const uint32_t> after, const ProgramShape& shape) {
  const device::Move move = shape.specialised.move;
  const size_t numbers = move == device::Move::list          ? shape.specialised.items
                         : move == device::Move::independent ? steps.size()
                                                             : 0;
  return steps.size_bytes() + after.size_bytes() + numbers * sizeof(uint32_t);
}

void place(std::span<const Step> steps, std::span<const uint32_t> after, const ProgramShape& shape, std::byte* out) {
  if (!steps.empty()) std::memcpy(out, steps.data(), steps.size_bytes());
  if (!after.empty()) std::memcpy(out + steps.size_bytes(), after.data(), after.size_bytes());
  auto* const pieces = reinterpret_cast<uint32_t*>(out + steps.size_bytes() + after.size_bytes());
  if (shape.specialised.move == device::Move::independent) std::ranges::copy(independent_order(steps), pieces);
  if (shape.specialised.move != device::Move::list) return;
  for (uint32_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind != StepKind::copy) continue;
    std::fill_n(pieces + steps[i].recv_buffer, (steps[i].bytes + shape.item - 1) / shape.item, i);
  }
}

}  // namespace thalweg::impl
