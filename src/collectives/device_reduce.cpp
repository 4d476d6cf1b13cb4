// SPDX-License-Identifier: Apache-2.0
#include "collectives/device_reduce.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "devices/place.hpp"
#include "devices/program.hpp"
#include "protocols/engine.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kLimit = 10'000'000'000;  // ns, of waits, of which there are none

struct Pinned {
  device::Failure failure;
  uint64_t abort;
};
constexpr size_t kTableEntries = 512;  // a page of them

Status own_kind(Device& device, MemoryKind* kind) {
  MemoryPlace place;
  const std::string name = std::string(device.name()) + ":" + std::to_string(device.ordinal());
  const Status status = parse_place(name.c_str(), &place);
  *kind = place.kind;
  return status;
}

}  // namespace

Status check_device_operation(const Operation& what) {
  if (what.op == TW_REDUCE_USER)
    return fail(TW_ERR_UNSUPPORTED, "a function of the caller's combines host memory: copy the buffers there first");
  if (what.type > TW_TYPE_UINT8)
    return fail(TW_ERR_UNSUPPORTED, "devices do not combine elements of %s: copy the buffers to host memory first",
                type_name(what.type));
  if (scales(what))
    return fail(TW_ERR_UNSUPPORTED, "devices do not scale sums: use TW_REDUCE_SUM and scale the result, or host memory");
  return TW_OK;
}

Status DeviceReducer::open(Engine& engine) {
  if (pinned_.device() != nullptr) return TW_OK;
  MemoryKind kind = MemoryKind::host;
  const size_t length = state_bytes(1), pinned = std::max(sizeof(Pinned), length);
  DeviceAllocation words;
  if (Status s = own_kind(device_, &kind); is_error(s)) return s;
  if (Status s = DeviceAllocation::allocate(device_, kind, length, &state_); is_error(s)) return s;
  if (Status s = DeviceAllocation::allocate(device_, MemoryKind::pinned, pinned, &words); is_error(s)) return s;
  std::memset(reinterpret_cast<void*>(words.address()), 0, pinned);
  const Copy zeros{state_.address(), words.address(), length};
  if (Status s = engine.devices().run(device_, std::span(&zeros, 1)); is_error(s)) return s;
  pinned_ = std::move(words);
  return TW_OK;
}

Status DeviceReducer::take_table(size_t entries, Table* out) {
  const auto fits = std::find_if(idle_.begin(), idle_.end(), [&](const Table& one) { return one.entries >= entries; });
  if (fits != idle_.end()) {
    *out = std::move(*fits);
    idle_.erase(fits);
    return TW_OK;
  }
  out->entries = std::max(entries, kTableEntries);
  return DeviceAllocation::allocate(device_, MemoryKind::pinned, out->entries * sizeof(uint64_t), &out->memory);
}

void DeviceReducer::ended() {
  idle_.push_back(std::move(under_way_.front()));
  under_way_.pop_front();
}

Status DeviceReducer::submit(Engine& engine, const Operation& what, uint64_t to, std::span<const uint64_t> sources,
                             uint64_t bytes, DeviceQueues::Done done, void* token) {
  if (Status s = open(engine); is_error(s)) return s;
  Table taken;
  if (Status s = take_table(sources.size(), &taken); is_error(s)) return s;
  auto* const table = reinterpret_cast<uint64_t*>(taken.memory.address());
  std::copy(sources.begin(), sources.end(), table);
  device::Step step{};
  step.kind = device::StepKind::reduce;
  step.bytes = bytes;
  step.to.base = to;
  step.word = reinterpret_cast<device::u64*>(table);
  step.compare = static_cast<uint32_t>(sources.size());
  step.atomic_op = what.op;
  step.atomic_bytes = what.type;
  const auto aligned = [](uint64_t address) { return address % 16 == 0; };
  step.operand = aligned(to) && std::all_of(sources.begin(), sources.end(), aligned);
  ProgramRun run;
  auto* const pinned = reinterpret_cast<Pinned*>(pinned_.address());
  Status status = arrange(std::span(&step, 1), {}, 0, most_blocks(device_.multiprocessors(), false), &run.shape);
  if (!is_error(status)) {
    run.steps = std::span(&step, 1);
    run.state = state_.address();
    run.guard = {abort_flag_of(run.state), &pinned->failure, reinterpret_cast<const device::u64*>(&pinned->abort), kLimit};
    status = engine.devices().submit(device_, run, done, token);
  }
  if (is_error(status)) {
    idle_.push_back(std::move(taken));
  } else {
    under_way_.push_back(std::move(taken));
  }
  return status;
}

}  // namespace thalweg::impl
