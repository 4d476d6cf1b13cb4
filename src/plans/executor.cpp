// SPDX-License-Identifier: Apache-2.0
#include "plans/executor.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/clock.hpp"
#include "devices/registry.hpp"
#include "memory/placement.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kBlock = size_t{256} << 10, kAlign = 64;
/// Of device memory. A driver cuts smaller allocations out of such pages, and exports the whole page: the peer's words must share none with
/// anything else, nor what is our own with an exported buffer of the user's.
constexpr size_t kDevicePage = size_t{2} << 20;

/// Up to the next eighth of its power of two, so that a piece that was freed serves others of about that length.
size_t rounded(size_t length) {
  const size_t unit = std::max(kAlign, std::bit_floor(std::max<size_t>(length, 1)) / 8);
  return (std::max<size_t>(length, 1) + unit - 1) / unit * unit;
}

MemoryPlace own_place(Device* device) {
  MemoryPlace place;
  if (device != nullptr) parse_place((std::string(device->name()) + ":" + std::to_string(device->ordinal())).c_str(), &place);
  return place;
}

MemoryPlace pinned_place(Device* device) { return device == nullptr ? MemoryPlace{} : MemoryPlace{MemoryKind::pinned, device}; }

}  // namespace

// ------------------------------------------------------------------------------------------------ arena

Arena::~Arena() {
  for (tw_memory* block : blocks_) {
    if (place_.kind == MemoryKind::host) {
      context_.registry->release_or_leave(block);  // a peer that is lost may be stopped in the middle of a copy
    } else {
      context_.registry->release(block);
    }
  }
}

size_t Arena::block_size() const { return place_.kind == MemoryKind::device ? kDevicePage : kBlock; }

Status Arena::make_block(size_t length, uint64_t* address) {
  tw_memory* block = nullptr;
  const size_t unit = place_.kind == MemoryKind::device ? kDevicePage : kAlign;
  const size_t size = (length + unit - 1) / unit * unit;
  if (Status s = allocate_at(*context_.registry, place_, size, TW_MEMORY_ALL, false, &block); is_error(s)) return s;
  blocks_.push_back(block);
  *address = reinterpret_cast<uint64_t>(block->address);
  return TW_OK;
}

/// Of a piece that fills it, out of the arena. Null: there is none.
tw_memory* Arena::take_block(uint64_t address) {
  const auto block = std::find_if(blocks_.begin(), blocks_.end(), [address](const tw_memory* one) {
    return reinterpret_cast<uint64_t>(one->address) == address;
  });
  if (block == blocks_.end()) return nullptr;
  tw_memory* const taken = *block;
  blocks_.erase(block);
  return taken;
}

Status Arena::take(size_t length, uint64_t* address) {
  const std::lock_guard lock(mutex_);
  if (const auto found = free_.find(length); found != free_.end()) {
    *address = found->second;
    free_.erase(found);
    return TW_OK;
  }
  if (length >= block_size()) return make_block(length, address);
  if (end_ - next_ < length) {
    uint64_t made = 0;
    if (Status s = make_block(block_size(), &made); is_error(s)) return s;
    if (next_ < end_) free_.emplace(end_ - next_, next_);
    next_ = made;
    end_ = made + block_size();
  }
  *address = next_;
  next_ += length;
  return TW_OK;
}

Status Arena::allocate(size_t wanted, uint64_t* address) {
  const size_t length = rounded(wanted);
  if (Status s = take(length, address); is_error(s)) return s;
  const std::vector<std::byte> zeros(length);
  return context_.copier.copy(*address, reinterpret_cast<uint64_t>(zeros.data()), length);
}

/// Memory of a device, or pinned, is kept for the next: its driver would wait for what runs there, and another rank's plan may be what
/// that waits for.
void Arena::free(uint64_t address, size_t length) {
  if (address == 0) return;
  const size_t taken = rounded(length);
  tw_memory* block = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (taken >= block_size() && place_.kind == MemoryKind::host) block = take_block(address);
    if (block == nullptr) free_.emplace(taken, address);
  }
  if (block != nullptr) context_.registry->release_or_leave(block);
}

size_t Arena::bytes() const {
  const std::lock_guard lock(mutex_);
  size_t all = 0;
  for (const tw_memory* block : blocks_) all += block->length;
  return all;
}

tw_memory* Arena::holder(uint64_t address) const {
  const std::lock_guard lock(mutex_);
  for (tw_memory* block : blocks_) {
    if (address - reinterpret_cast<uint64_t>(block->address) < block->length) return block;
  }
  return nullptr;
}

// ------------------------------------------------------------------------------------------------ executor

Executor::Executor(tw_context& context, Device* device)
    : context_(context),
      device_(device),
      multiprocessors_(device == nullptr ? 0 : device->multiprocessors()),
      name_(device == nullptr ? "host" : std::string(device->name()) + ":" + std::to_string(device->ordinal())),
      own_(context, own_place(device)),
      shared_(context, own_place(device)),
      pinned_(context, pinned_place(device)) {}

Status Executor::open() {
  if (device_ == nullptr) return TW_OK;
  if (Status s = device_->make_queue(&queue_, QueueUse::moves); is_error(s)) return s;
  return device_->load_kernels();
}

Status Executor::store(uint64_t to, const void* from, size_t length) {
  return context_.copier.copy(to, reinterpret_cast<uint64_t>(from), length);
}

Status Executor::load(void* to, uint64_t from, size_t length) {
  return context_.copier.copy(reinterpret_cast<uint64_t>(to), from, length);
}

void Reaching::fail_route(PreparedRoute route) {
  failed |= bit_of(route);
  why = last_error();
}

void describe_runner(const Device* device, Prepared* facts) {
  facts->by_device = device != nullptr;
  if (device == nullptr || !facts->place.on_device()) return;
  const PeerAccess there = device->peer(facts->place.device);
  const bool same = facts->place.device == device->uuid();
  facts->access = same || there.access || there.link == DeviceLink::unknown;
  facts->atomics = same || there.atomics;
}

Status Executor::grant(uint64_t address, uint64_t length) {
  if (device_ == nullptr) return TW_OK;
  return queue_->admit(Use::kernel, address, length);
}

/// As long as that takes.
Status Executor::pin(uint64_t address) {
  const Deadline deadline(10 * kSecond);
  Status status;
  while ((status = context_.registry->pin_allocated(address, *device_)) == TW_IN_PROGRESS) {
    if (deadline.passed()) return fail(TW_ERR_UNREACHABLE, "it was not pinned within 10 s");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return status;
}

Status Executor::admit(uint64_t address, uint64_t length, Asks asks, Reaching* how) {
  Reaching here;
  here.asked = here.facts.mine = true;
  here.facts.waits = asks.waits;
  here.facts.carriable = asks.carriable;
  here.facts.row = asks.row;
  here.facts.mapped = asks.row != 0;  // what its channel is decides
  here.facts.place = local_place(address, length, context_.registry.get());
  describe_runner(device_, &here.facts);
  Status status = TW_ERR_UNREACHABLE;
  while (is_error(status) && here.route() < PreparedRoute::carried) {
    const PreparedRoute route = here.route();
    status = route == PreparedRoute::own ? grant(address, length) : pin(address);
    if (is_error(status)) here.fail_route(route);
  }
  if (is_error(status) && here.failed == 0) {
    const bool far = here.facts.by_device && here.facts.place.on_device() && !here.facts.access;
    status =
        fail(far ? TW_ERR_UNREACHABLE : TW_ERR_UNSUPPORTED, "%s does not reach it: %s", name_.c_str(), here.why_not().c_str());
  }
  if (how != nullptr) *how = std::move(here);
  return status;
}

// ------------------------------------------------------------------------------------------------ sides

namespace {

constexpr uint64_t kMostPieces = 1u << 16;

device::Side contiguous(uint64_t address) {
  device::Side side{};
  side.base = address;
  side.block = ~0ull;
  return side;
}

/// Of a layout that needs no table.
device::Side in_place(uint64_t address, const Layout* layout) {
  device::Side side = contiguous(address);
  if (layout == nullptr) return side;
  side.base += static_cast<uint64_t>(layout->start);
  if (layout->contiguous()) return side;
  side.block = layout->block;
  for (unsigned i = 0; i < 3; ++i) {
    const bool used = i < layout->dimensions;
    if (i < 2) side.count[i] = used ? layout->dimension[i].count : 1;
    side.stride[i] = used ? layout->dimension[i].stride : 0;
  }
  return side;
}

Status pieces_of(uint64_t address, const Layout& layout, uint64_t length, std::vector<device::Piece>* out) {
  LayoutCursor cursor(reinterpret_cast<std::byte*>(address), &layout, length);
  for (uint64_t offset = 0; cursor.remaining() > 0;) {
    const LayoutCursor::Run run = cursor.next(cursor.remaining());
    if (out->size() == kMostPieces) {
      return fail(TW_ERR_LIMIT, "a layout of a plan has at most %llu pieces, unless it is strided in up to three dimensions",
                  static_cast<unsigned long long>(kMostPieces));
    }
    out->push_back({offset, reinterpret_cast<uint64_t>(run.address)});
    offset += run.length;
  }
  return TW_OK;
}

}  // namespace

Status make_side(Executor& executor, uint64_t address, const Layout* layout, uint64_t length, device::Side* out,
                 uint64_t* table, size_t* table_length) {
  *table = 0;
  *table_length = 0;
  if (layout == nullptr || layout->contiguous() || (layout->pieces.empty() && layout->dimensions <= 3)) {
    *out = in_place(address, layout);
    return TW_OK;
  }
  std::vector<device::Piece> pieces;
  if (Status s = pieces_of(address, *layout, length, &pieces); is_error(s)) return s;
  const size_t bytes = pieces.size() * sizeof(device::Piece);
  uint64_t made = 0;
  if (Status s = executor.own().allocate(bytes, &made); is_error(s)) return s;
  if (Status s = executor.store(made, pieces.data(), bytes); is_error(s)) {
    executor.own().free(made, bytes);
    return s;
  }
  device::Side side = contiguous(address + static_cast<uint64_t>(layout->start));
  side.pieces = reinterpret_cast<const device::Piece*>(made);
  side.piece_count = pieces.size();
  *out = side;
  *table = made;
  *table_length = bytes;
  return TW_OK;
}

}  // namespace thalweg::impl
