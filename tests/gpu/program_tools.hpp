// SPDX-License-Identifier: Apache-2.0
// What tests of programs share: sites (a device with its queue, a host queue, the calling thread), where memory is reached
// alike, and programs that are written down step by step.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <random>
#include <thread>
#include <vector>

#include "devices/device.hpp"
#include "devices/program/host.hpp"

namespace thalweg::impl::programs {

using device::Side;
using device::Signal;
using device::Step;
using device::StepKind;
using Bytes = std::vector<std::byte>;

inline std::mt19937_64& rng() {
  static std::mt19937_64 all(std::random_device{}());
  return all;
}
inline Bytes random_bytes(size_t length) {
  Bytes bytes(length);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng()());
  return bytes;
}

enum class Trigger { device, host_queue, caller };
inline const char* name_of(Trigger trigger) {
  return trigger == Trigger::device ? "device" : trigger == Trigger::host_queue ? "host_queue" : "caller";
}

/// Where programs run, and the memory they may use.
class Site {
 public:
  Site(Trigger trigger, Device* device, MemoryKind kind) : trigger_(trigger), device_(device), kind_(kind) {
    if (trigger == Trigger::caller) return;
    queue_ = new_queue();
    if (trigger == Trigger::device) access_ = new_queue();
  }
  ~Site() {
    queue_.reset();
    for (const uint64_t address : allocated_) EXPECT_EQ(device_->free(address), TW_OK) << last_error();
  }
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  Trigger trigger() const { return trigger_; }
  Device* device() const { return device_; }
  bool on_device() const { return trigger_ == Trigger::device; }
  Queue& queue() { return *queue_; }
  std::unique_ptr<Queue> new_queue() {
    std::unique_ptr<Queue> queue;
    if (!on_device()) return make_host_queue();
    EXPECT_EQ(device_->make_queue(&queue), TW_OK) << last_error();
    return queue;
  }

  /// Zeroed.
  uint64_t allocate(size_t length, MemoryKind kind) {
    if (!on_device()) return reinterpret_cast<uintptr_t>(host_.emplace_back(length + 64).data()) / 64 * 64 + 64;
    uint64_t address = 0;
    EXPECT_EQ(device_->allocate(kind, length, &address), TW_OK) << last_error();
    allocated_.push_back(address);
    write(address, Bytes(length));
    return address;
  }
  uint64_t allocate(size_t length) { return allocate(length, kind_); }
  uint64_t pinned(size_t length) { return allocate(length, MemoryKind::pinned); }
  /// Lets this site's queues touch what another one allocated.
  void admit(uint64_t address, size_t length) {
    if (on_device()) {
      ASSERT_EQ(queue_->admit(Use::kernel, address, length), TW_OK) << last_error();
    }
  }

  /// The fake driver's streams move when they are asked.
  void poke() {
    if (queue_ != nullptr) queue_->query();
  }
  void write(uint64_t address, const Bytes& bytes) {
    if (!on_device()) return void(std::memcpy(reinterpret_cast<void*>(address), bytes.data(), bytes.size()));
    const uint64_t source = bounce(bytes.size());
    std::memcpy(reinterpret_cast<void*>(source), bytes.data(), bytes.size());
    move(address, source, bytes.size());
  }
  Bytes read(uint64_t address, size_t length) {
    const auto* from = reinterpret_cast<const std::byte*>(address);
    if (on_device()) {
      from = reinterpret_cast<const std::byte*>(bounce(length));
      move(reinterpret_cast<uintptr_t>(from), address, length);
    }
    return {from, from + length};
  }
  template <typename T>
  void put(uint64_t address, const T& value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    write(address, {first, first + sizeof(T)});
  }
  /// Words that a running program may use, too.
  void put_word(uint64_t address, uint64_t value) {
    if (!on_device()) return __atomic_store_n(reinterpret_cast<uint64_t*>(address), value, __ATOMIC_RELEASE);
    put(address, value);
  }
  uint64_t word(uint64_t address) {
    if (!on_device()) return __atomic_load_n(reinterpret_cast<const uint64_t*>(address), __ATOMIC_ACQUIRE);
    const Bytes bytes = read(address, 8);
    uint64_t value;
    std::memcpy(&value, bytes.data(), 8);
    return value;
  }
  Bytes fill(uint64_t address, size_t length) {
    const Bytes bytes = random_bytes(length);
    write(address, bytes);
    return bytes;
  }

 private:
  void move(uint64_t to, uint64_t from, size_t length) {
    const Copy copy{to, from, length};
    ASSERT_EQ(access_->copy(&copy, 1), TW_OK) << last_error();
    ASSERT_EQ(access_->synchronize(), TW_OK) << last_error();
  }
  uint64_t bounce(size_t length) {
    if (length > bounce_length_) {
      EXPECT_EQ(device_->allocate(MemoryKind::pinned, length, &bounce_), TW_OK) << last_error();
      allocated_.push_back(bounce_);
      bounce_length_ = length;
    }
    return bounce_;
  }

  const Trigger trigger_;
  Device* const device_;
  const MemoryKind kind_;
  std::unique_ptr<Queue> queue_, access_;
  std::vector<uint64_t> allocated_;
  std::deque<Bytes> host_;
  uint64_t bounce_ = 0;
  size_t bounce_length_ = 0;
};

inline Side at(uint64_t address) { return {address, ~0ull, {0, 0}, {0, 0, 0}, nullptr, 0}; }
template <typename T>
T* pointer(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

/// A program of one site.
class Written {
 public:
  explicit Written(Site& site, uint32_t blocks = 0) : site_(site), blocks_(blocks) {}

  Step& add(StepKind kind, std::initializer_list<uint32_t> after = {}) {
    Step& step = steps.emplace_back();
    step.kind = kind;
    step.first_after = static_cast<uint32_t>(numbers.size());
    step.after_count = static_cast<uint32_t>(after.size());
    numbers.insert(numbers.end(), after);
    return step;
  }
  void copy(const Side& to, const Side& from, uint64_t bytes, Signal signal = {}, std::initializer_list<uint32_t> after = {}) {
    Step& step = add(StepKind::copy, after);
    step.to = to;
    step.from = from;
    step.bytes = bytes;
    step.signal = signal;
  }
  void send(uint64_t end, const Side& from, uint64_t bytes, std::initializer_list<uint32_t> after = {}) {
    Step& step = add(StepKind::send, after);
    step.end = pointer<void>(end);
    step.from = from;
    step.bytes = bytes;
  }
  void post(uint64_t end, uint32_t recv_buffer, std::initializer_list<uint32_t> after = {}) {
    Step& step = add(StepKind::post, after);
    step.end = pointer<void>(end);
    step.recv_buffer = recv_buffer;
  }
  void take(uint64_t end, std::initializer_list<uint32_t> after = {}) { add(StepKind::take, after).end = pointer<void>(end); }
  void signal(Signal signal, std::initializer_list<uint32_t> after = {}) { add(StepKind::signal, after).signal = signal; }
  void wait(uint64_t word, uint64_t value, uint64_t increment, uint32_t compare = TW_COMPARE_GE,
            std::initializer_list<uint32_t> after = {}) {
    Step& step = add(StepKind::wait, after);
    step.signal = {pointer<device::u64>(word), value, increment, 0};
    step.compare = compare;
  }

  void prepare(uint64_t limit_ns = 20'000'000'000) {
    ProgramShape shape;
    ASSERT_EQ(arrange(steps, numbers, blocks_, kMostBlocks, &shape), TW_OK) << last_error();
    failure = site_.pinned(sizeof(device::Failure));
    abort = site_.pinned(8);
    state = site_.allocate(state_bytes(steps.size()));
    run = {steps,
           numbers,
           0,
           state,
           {abort_flag_of(state), pointer<device::Failure>(failure), pointer<device::u64>(abort), limit_ns},
           shape};
    if (kept_runs != 0) run.times = site_.pinned(kept_runs * (steps.size() + 1) * sizeof(device::StepTime));
    run.kept_runs = kept_runs;
    if (!fits_inline(steps.size(), numbers.size())) {
      Bytes placed(placed_bytes(steps, numbers, shape));
      place(steps, numbers, shape, placed.data());
      run.placed = site_.allocate(placed.size());
      site_.write(run.placed, placed);
    }
    if (site_.trigger() == Trigger::caller) caller_ = std::make_unique<HostProgram>(run);
  }
  /// Starts a run.
  void trigger() {
    if (caller_ != nullptr) {
      ASSERT_EQ(caller_->start(), TW_OK) << last_error();
    } else {
      ASSERT_EQ(site_.queue().run(run), TW_OK) << last_error();
    }
  }
  Status advance() { return caller_ == nullptr ? Status{TW_OK} : caller_->advance(); }
  /// Until what was triggered is over.
  void finish() {
    while (advance() == TW_IN_PROGRESS) std::this_thread::yield();
    if (caller_ != nullptr) return;
    ASSERT_EQ(site_.queue().synchronize(), TW_OK) << last_error();
  }
  /// Odd: a run has begun in this block.
  uint64_t owner_word(uint32_t block) {
    auto* const words = device::owner_words(pointer<device::ProgramState>(state), static_cast<uint32_t>(steps.size()));
    return site_.word(reinterpret_cast<uint64_t>(words + block));
  }
  /// A run does, in this block; within a time in which its waits have long expired.
  bool begins(uint32_t block) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (owner_word(block) % 2 == 0) {
      site_.poke();
      if (std::chrono::steady_clock::now() < limit) continue;
      ADD_FAILURE() << "queue: " << site_.queue().query() << ", block " << owner_word(block) << ", closed " << site_.word(state)
                    << ", runs " << site_.word(state + 8) << ", failure " << failed().code;
      return false;
    }
    return true;
  }
  const device::Failure& failed() const { return *pointer<device::Failure>(failure); }
  void expect_good() const {
    EXPECT_EQ(failed().code, 0) << "step " << failed().what << " expected " << failed().expected << " found " << failed().found;
  }

  std::vector<Step> steps;
  std::vector<uint32_t> numbers;
  ProgramRun run;
  uint32_t kept_runs = 0;  // whose times are kept; a power of two, set before prepare()
  uint64_t failure = 0, abort = 0, state = 0;

 private:
  Site& site_;
  const uint32_t blocks_;
  std::unique_ptr<HostProgram> caller_;
};

/// Both ends of a channel from one site to another, with receive buffers that the test names.
struct Channel {
  Channel(Site& from, Site& to, std::initializer_list<device::RecvBuffer> recv_buffers) {
    const uint64_t credits = from.allocate(device::kSlots * 8), flags = to.allocate(device::kSlots * 8);
    const uint64_t table = from.allocate(recv_buffers.size() * sizeof(device::RecvBuffer));
    uint64_t entry = table;
    for (const device::RecvBuffer& one : recv_buffers) {
      from.put(entry, one);
      entry += sizeof one;
    }
    device::SendEnd sender{};
    sender.credits = pointer<device::u64>(credits);
    sender.flags = pointer<device::u64>(flags);
    sender.recv_buffers = pointer<device::RecvBuffer>(table);
    device::RecvEnd receiver{};
    receiver.credits = pointer<device::u64>(credits);
    receiver.flags = pointer<device::u64>(flags);
    send = from.allocate(sizeof sender);
    from.put(send, sender);
    recv = to.allocate(sizeof receiver);
    to.put(recv, receiver);
    from.admit(flags, device::kSlots * 8);
    to.admit(credits, device::kSlots * 8);
  }
  uint64_t send, recv;
};

constexpr size_t kArea = 70000;

/// Random sides of `bytes` bytes within an area of kArea bytes, no byte twice.
inline Side random_side(Site& site, uint64_t area, uint64_t bytes) {
  const uint64_t shift = 64 + rng()() % 3 * 4 + rng()() % 2;
  switch (rng()() % 5) {
    case 0:
      return at(area + shift);
    case 1: {  // rows
      const uint64_t block = 1 + rng()() % 200;
      const auto pitch = static_cast<long long>(std::min<uint64_t>(block + rng()() % 9, (kArea - 200) / (bytes / block + 1)));
      if (pitch < static_cast<long long>(block)) return at(area + shift);
      return {area + shift, block, {0, 0}, {pitch, 0, 0}, nullptr, 0};
    }
    case 2: {  // words in three dimensions
      const long long pitch = 8 + 8 * static_cast<long long>(rng()() % 2);
      return {area + 64, 8, {5, 3}, {pitch, 5 * pitch + 8, 3 * (5 * pitch + 8) + 16}, nullptr, 0};
    }
    case 3: {  // downwards
      const uint64_t block = 96, rows = bytes / block + 1;
      return {area + 64 + rows * 100, block, {0, 0}, {-100, 0, 0}, nullptr, 0};
    }
    default: {  // a list, last pieces first
      std::vector<device::Piece> pieces;
      uint64_t offset = 0, end = area + kArea - 64;
      while (offset < bytes) {
        const uint64_t length = std::min<uint64_t>(bytes - offset, 1 + rng()() % 999);
        end -= length + rng()() % 3;
        pieces.push_back({offset, end});
        offset += length;
      }
      const uint64_t list = site.allocate(pieces.size() * sizeof(device::Piece));
      for (size_t i = 0; i < pieces.size(); ++i) site.put(list + i * sizeof(device::Piece), pieces[i]);
      return {0, 0, {0, 0}, {0, 0, 0}, pointer<device::Piece>(list), pieces.size()};
    }
  }
}

/// Where each packed byte is.
inline std::vector<uint64_t> addresses(Site& site, const Side& side, uint64_t bytes) {
  std::vector<uint64_t> all(bytes);
  if (side.pieces != nullptr) {
    const Bytes list = site.read(reinterpret_cast<uintptr_t>(side.pieces), side.piece_count * sizeof(device::Piece));
    std::vector<device::Piece> pieces(side.piece_count);
    std::memcpy(pieces.data(), list.data(), list.size());
    for (size_t p = 0; p < pieces.size(); ++p) {
      const uint64_t end = p + 1 < pieces.size() ? pieces[p + 1].offset : bytes;
      for (uint64_t i = pieces[p].offset; i < end; ++i) all[i] = pieces[p].address + i - pieces[p].offset;
    }
    return all;
  }
  for (uint64_t i = 0; i < bytes; ++i) {
    all[i] = side.base + i;
    if (side.block == ~0ull) continue;
    uint64_t index = i / side.block;
    all[i] = side.base + i % side.block;
    for (int d = 0; d < 3; ++d) {
      const uint64_t count = d < 2 ? side.count[d] : 0;
      all[i] += (count == 0 ? index : index % count) * static_cast<uint64_t>(side.stride[d]);
      index = count == 0 ? 0 : index / count;
    }
  }
  return all;
}

}  // namespace thalweg::impl::programs
