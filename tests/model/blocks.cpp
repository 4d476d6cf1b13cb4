// SPDX-License-Identifier: Apache-2.0
// Blocks by index, and the notifications behind them.
#include "protocols/blocks.hpp"

#include <algorithm>

#include "model/world.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::model {

void World::blocks(const Op& op) {
  End& to = end(op.worker, op.peer);
  Worker& target = workers_[op.peer];
  if (to.lost) return;
  const Engine::Guard guard(*workers_[op.worker].engine);  // as core's
  const uint64_t block = op.size % 3 == 0 ? 8 : op.size % 3 == 1 ? 40 : 1000;
  const uint64_t there_count = target.exports->memories[op.memory].length / block;
  if (there_count == 0) return;
  const uint64_t count = 1 + op.seed % std::min<uint64_t>(6, there_count);
  RemoteRegion* region = nullptr;
  if (import_region(to.peer, target.exports->memories[op.memory].key, &region) != TW_OK) return;
  auto there = std::make_shared<RemoteBlocks>();
  there->space.length = block;
  there->regions.push_back(region);
  BlockRange range;
  range.stride = block;
  range.count = there_count;
  if (there->space.add(range, 0, target.exports->memories[op.memory].length) != TW_OK)
    return wrong("blocks of exported memory are refused");

  Posted& posted = post(op);
  const bool put = op.what == What::put_blocks;
  posted.memory = op.memory;
  Op of_kind;
  of_kind.kind = op.kind;
  give_buffer(posted, of_kind, count * block, put);
  auto here = std::make_shared<BlockSpace>();
  here->length = block;
  const BufferInfo& info = posted.buffer->info;  // as core's tw_blocks_prepare()
  here->pinned = info.device != nullptr && info.kind == MemoryKind::pinned;
  if (!here->pinned) here->device = info.device;
  BlockRange local_range;
  local_range.begin = reinterpret_cast<uintptr_t>(posted.buffer->address());
  local_range.stride = block;
  local_range.count = count;
  if (here->add(local_range, 0, count * block) != TW_OK) return wrong("blocks of a buffer are refused");
  auto* transfer = new BlockTransfer();
  transfer->here = here;
  transfer->there = there;
  transfer->pairs = std::make_unique<BlockChoice[]>(count);
  enter_order(posted);
  target.used[op.memory] = true;
  const auto first = static_cast<uint32_t>(op.seed / 7 % there_count);
  for (uint32_t i = 0; i < count; ++i) {
    const auto number = static_cast<uint32_t>((first + i * (op.tag + 1u)) % there_count);
    transfer->pairs[i] = {i, number};
    const uint64_t begin = number * block;
    posted.ranges.push_back({begin, begin + block, static_cast<int64_t>(i * block) - static_cast<int64_t>(begin)});
    const Range& added = posted.ranges.back();
    if (put) target.orders[op.memory].write(added.begin, added.end, posted.access, added.shift);
  }
  OpDesc desc = local(posted, put ? Verb::put_blocks : Verb::get_blocks);
  desc.flags &= ~kOpDevice;
  desc.blocks = transfer;
  if (put && (op.flags & kSignalled) != 0) with_signal(posted, desc, op.signal);
  if ((op.flags & kNotify) != 0) {
    transfer->notify = TW_NOTIFY_QUEUE;
    transfer->notification_length = sizeof posted.id;
    std::memcpy(transfer->notification, &posted.id, sizeof posted.id);
    to.notices.push_back(&posted);
  }
  const Status status = workers_[op.worker].engine->start(desc, completion(posted));
  release(transfer);
  this->posted(posted, status);
}

/// The next notification at this worker. False: there is none.
bool World::take_notification(unsigned index) {
  Worker& worker = workers_[index];
  tw_notification next;
  if (next_notification(*worker.engine, &next) != TW_OK) return false;
  const End& back = End::of(next.endpoint);
  uint32_t id = 0;
  std::memcpy(&id, next.data, sizeof id);
  if (id >= by_id_.size() || by_id_[id] == nullptr) {
    wrong("a notification that nobody sent comes to worker " + std::to_string(index));
    return false;
  }
  std::deque<Posted*>& queue = end(back.to, index).notices;
  while (!queue.empty() && queue.front()->id != id && may_have_failed(*queue.front())) queue.pop_front();
  if (next.length != sizeof id || queue.empty() || queue.front()->id != id) {
    wrong("worker " + std::to_string(index) + " gets the notification of operation " + std::to_string(id) +
          " instead of that of " + std::to_string(queue.empty() ? 0 : queue.front()->id));
    return false;
  }
  Posted& posted = *queue.front();
  queue.pop_front();
  if (posted.ended && posted.status == TW_ERR_STALE) {
    wrong(posted, "it failed, and its notification came");
  } else if (posted.what == What::put_blocks) {
    signal_seen(posted);
  }
  return failure_.empty();
}

/// Everything that was put is applied, so all were notified.
void World::check_notices(unsigned from, unsigned to) {
  for (const Posted* one : end(from, to).notices) {
    if (!may_have_failed(*one)) return wrong(*one, "its notification never came");
  }
}

}  // namespace thalweg::model
