// SPDX-License-Identifier: Apache-2.0
// Many blocks in one operation, of devices that are made to fail: rank 0 puts or gets, rank 1 owns the blocks and is notified.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "device_end.hpp"

namespace thalweg::faults {
namespace {

constexpr size_t kMostBlocks = 1000;
constexpr char kNote[] = "the blocks are there";

/// The payload of an end in blocks, and at rank 0 those of rank 1.
class Blocks {
 public:
  explicit Blocks(End& end) {
    uint64_t count = kMostBlocks;
    while (end.bytes() % count != 0) --count;
    tw_block_range range{end.memory, nullptr, End::kGuard, 0, count};
    size_t length = end.bytes() / count;
    if (end.row.rows) {
      length = End::kRow;
      range.stride = End::kStride;
      range.count = end.bytes() / End::kRow;
    }
    must(tw_blocks_create(end.context, &range, 1, length, &blocks_), "tw_blocks_create");
    order_.resize(range.count);
    std::iota(order_.begin(), order_.end(), uint64_t{0});
    std::shuffle(order_.begin(), order_.end(), std::mt19937_64(end.row.seed));
    std::string key;
    if (end.rank == 1) {
      size_t needed = 0;
      must(tw_blocks_export(blocks_, 0, nullptr, &needed), "the length of a key");
      key.resize(needed);
      must(tw_blocks_export(blocks_, 0, key.data(), &needed), "tw_blocks_export");
      key.resize(needed);
    }
    const std::string theirs = end.swap(key.empty() ? "none" : key);
    if (end.rank == 0) must(tw_blocks_import(end.endpoint, theirs.data(), theirs.size(), &remote_), "tw_blocks_import");
  }
  ~Blocks() {
    if (remote_ != nullptr) tw_remote_blocks_release(remote_);
    tw_blocks_destroy(blocks_);
  }
  Blocks(const Blocks&) = delete;

  tw_status move(End& end, bool put) const {
    tw_blocks_options options = TW_BLOCKS_OPTIONS_INIT;
    options.flags = put ? TW_OP_REMOTE : 0;
    options.notify = TW_NOTIFY_QUEUE;
    options.notification = kNote;
    options.notification_length = sizeof kNote;
    tw_request request = TW_REQUEST_NONE;
    const auto run = put ? tw_put_blocks : tw_get_blocks;
    const tw_status status =
        end.note(run(end.endpoint, blocks_, order_.data(), remote_, order_.data(), order_.size(), &options, &request));
    return status < 0 ? status : end.wait(request);
  }

 private:
  tw_blocks* blocks_ = nullptr;
  tw_remote_blocks* remote_ = nullptr;
  std::vector<uint64_t> order_;
};

/// It comes when the operation succeeded, and never without its blocks.
bool is_notified(End& end, tw_status theirs) {
  tw_notification note;
  const auto came = [&] { return tw_worker_next_notification(end.worker, &note) == TW_OK; };
  if (theirs < 0) {
    if (!came()) return false;
  } else {
    end.progress_until("a notification", came);
  }
  demand(note.length == sizeof kNote && std::memcmp(note.data, kNote, sizeof kNote) == 0, "another notification");
  demand(!came(), "a second notification");
  return true;
}

template <bool kPut>
tw_status move_blocks(End& end, uint64_t seed) {
  const bool source = end.source(!kPut);
  source ? end.fill(seed) : end.poison();
  const Blocks blocks(end);
  end.arm();
  const tw_status status = end.rank == 0 ? blocks.move(end, kPut) : TW_OK;
  const tw_status theirs = end.agree(status);
  const bool whole = end.rank == 0 ? status == TW_OK : is_notified(end, theirs);
  end.verify(seed, source || whole, source ? "the source" : "the destination");
  return status;
}

}  // namespace

const std::vector<Named>& block_operations() {
  static const std::vector<Named> all = {{"put_blocks", move_blocks<true>}, {"get_blocks", move_blocks<false>}};
  return all;
}

}  // namespace thalweg::faults
