// SPDX-License-Identifier: Apache-2.0
// Steps, state, channels; floors' kernels.
#include "prepared.hpp"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "devices/cuda/current.hpp"

namespace thalweg::floors {

void upload(Device& device, uint64_t to, const void* from, size_t length) {
  const Memory bounce(device, MemoryKind::pinned, length);
  std::memcpy(bounce.host(), from, length);
  const auto queue = make_queue(device);
  const Copy copy{to, bounce.at(), length};
  must(queue->copy(&copy, 1), "uploading");
  must(queue->synchronize(), "uploading");
}

DeviceMemory::DeviceMemory(Device& device, size_t length) : Memory(device, MemoryKind::device, length) {
  const std::vector<char> zeros(length);
  upload(device, at(), zeros.data(), length);
}

Side at(uint64_t address) { return {address, ~0ull, {0, 0}, {0, 0, 0}, nullptr, 0}; }
Side rows(uint64_t address, uint64_t block, int64_t pitch) { return {address, block, {0, 0}, {pitch, 0, 0}, nullptr, 0}; }

namespace {

device::u64* word_at(uint64_t address) { return reinterpret_cast<device::u64*>(address); }

}  // namespace

Step copy_step(const Side& to, const Side& from, uint64_t bytes, uint64_t signal) {
  Step step{};
  step.kind = StepKind::copy;
  step.to = to;
  step.from = from;
  step.bytes = bytes;
  if (signal != 0) step.signal = {word_at(signal), 1, 1, 0};
  return step;
}
Step wait_step(uint64_t word) {
  Step step{};
  step.kind = StepKind::wait;
  step.signal = {word_at(word), 1, 1, 0};
  return step;
}
Step signal_step(uint64_t word) {
  Step step = wait_step(word);
  step.kind = StepKind::signal;
  return step;
}
Step channel_step(StepKind kind, uint64_t end, const Side& from, uint64_t bytes) {
  Step step{};
  step.kind = kind;
  step.end = reinterpret_cast<void*>(end);
  step.from = from;
  step.bytes = bytes;
  return step;
}

Prepared::Prepared(Device& device, std::vector<Step> steps, const std::vector<std::vector<uint32_t>>& after, uint32_t blocks)
    : steps_(std::move(steps)), state_(device, state_bytes(steps_.size())), pinned_(device, MemoryKind::pinned, 4096) {
  for (size_t i = 0; i < after.size(); ++i) {
    steps_[i].first_after = static_cast<uint32_t>(numbers_.size());
    steps_[i].after_count = static_cast<uint32_t>(after[i].size());
    numbers_.insert(numbers_.end(), after[i].begin(), after[i].end());
  }
  ProgramShape shape;
  must(arrange(steps_, numbers_, blocks, kMostBlocks, &shape), "arranging a program");
  run_ = {steps_, numbers_, 0, state_.at(), {abort_flag_of(state_.at()), nullptr, nullptr, 1'000'000'000}, shape};
  run_.guard.failure = reinterpret_cast<device::Failure*>(pinned_.at());
  run_.guard.abort = word_at(pinned_.at() + 1024);
  if (fits_inline(steps_.size(), numbers_.size())) return;
  std::vector<std::byte> bytes(placed_bytes(steps_, numbers_, shape));
  place(steps_, numbers_, shape, bytes.data());
  placed_.emplace(device, bytes.size());
  upload(device, placed_->at(), bytes.data(), bytes.size());
  run_.placed = placed_->at();
}

void Prepared::check() const {
  const device::Failure& failure = *run_.guard.failure;
  if (failure.code != 0) {
    give_up("a program failed with " + std::to_string(failure.code) + " at step " + std::to_string(failure.what) +
            ": expected " + std::to_string(failure.expected) + ", found " + std::to_string(failure.found));
  }
}

Channel::Channel(Device& from, Device& to, const Side& recv_buffer, uint64_t capacity)
    : send_(from, sizeof(device::SendEnd)),
      recv_(to, sizeof(device::RecvEnd)),
      credits_(from, device::kSlots * 8),
      flags_(to, device::kSlots * 8),
      recv_buffers_(from, sizeof(device::RecvBuffer)) {
  const auto here = make_queue(from), there = make_queue(to);
  must(here->admit(Use::kernel, flags_.at(), flags_.length()), "admitting");
  must(there->admit(Use::kernel, credits_.at(), credits_.length()), "admitting");
  device::SendEnd sender{};
  sender.credits = word_at(credits_.at());
  sender.flags = word_at(flags_.at());
  sender.recv_buffers = reinterpret_cast<const device::RecvBuffer*>(recv_buffers_.at());
  device::RecvEnd receiver{};
  receiver.credits = sender.credits;
  receiver.flags = sender.flags;
  const device::RecvBuffer buffer{recv_buffer, capacity};
  upload(from, send_.at(), &sender, sizeof sender);
  upload(to, recv_.at(), &receiver, sizeof receiver);
  upload(from, recv_buffers_.at(), &buffer, sizeof buffer);
}

FloorKernel::FloorKernel(Bench& bench, Device& device, const char* name)
    : driver_(bench.driver), context_(bench.context(device)) {
  static std::vector<char> image;
  static cuda::CuLibrary library = nullptr;
  if (library == nullptr) {
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    const std::string program(path, n > 0 ? static_cast<size_t>(n) : 0);
    std::ifstream file(program.substr(0, program.rfind('/') + 1) + "floors.fatbin", std::ios::binary);
    image.assign(std::istreambuf_iterator<char>(file), {});
    if (image.empty()) give_up("floors.fatbin is not beside the program");
    must_raw(driver_.LibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), "loading a kernel");
  }
  must_raw(driver_.LibraryGetKernel(&kernel_, library, name), name);
}

void FloorKernel::launch(Queue& queue, unsigned blocks, unsigned threads, void** parameters) const {
  const cuda::Current current(driver_, context_);
  must_raw(driver_.LaunchKernel(reinterpret_cast<cuda::CuFunction>(kernel_), blocks, 1, 1, threads, 1, 1, 0,
                                static_cast<cuda::CuStream>(queue.native()), parameters, nullptr),
           "launching");
}

}  // namespace thalweg::floors
