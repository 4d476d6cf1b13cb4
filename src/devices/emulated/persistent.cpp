// SPDX-License-Identifier: Apache-2.0
// The twin of the persistent copy kernel: its blocks take turns, in no particular order, in the queue's thread.
#include <algorithm>
#include <deque>
#include <random>

#include "devices/emulated/kernels.hpp"
#include "devices/emulated/machine.hpp"
#include "devices/persistent/block.hpp"

namespace thalweg::impl::emulated {
namespace {

struct PersistentTwin {
  PersistentTwin(const EmulatedDevice* device, bool skip_fences, const persistent::Arguments& arguments, unsigned index)
      : memory(device, skip_fences), block({Machine(memory)}, arguments, index) {
    block.begin();
    memory.stores.settle();
  }
  BlockMemory memory;
  persistent::Block<persistent::OneThreadIo<Machine>> block;
};

class Run {
 public:
  Run(const EmulatedDevice* device, bool skip_fences, const persistent::Arguments& arguments) : arguments_(arguments) {
    for (unsigned i = 0; i < arguments.blocks; ++i) blocks_.push_back(&twins_.emplace_back(device, skip_fences, arguments_, i));
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// As long as there is something to do, though not for ever.
  Status advance() {
    constexpr unsigned kTurns = 64;
    bool moved = true;
    for (unsigned i = 0; moved && i < kTurns; ++i) {
      moved = false;
      if (Status s = turn(&moved); s != TW_IN_PROGRESS) return s;
    }
    return TW_IN_PROGRESS;
  }

 private:
  Status turn(bool* moved) {
    std::shuffle(blocks_.begin(), blocks_.end(), order_);
    for (auto at = blocks_.begin(); at != blocks_.end();) {
      PersistentTwin& twin = **at;
      const persistent::Turn turn = twin.block.turn();
      twin.memory.stores.settle();
      twin.memory.held.clear();
      if (is_error(twin.memory.failed)) return twin.memory.failed;
      *moved = *moved || turn == persistent::Turn::moved;
      at = turn == persistent::Turn::over ? blocks_.erase(at) : at + 1;
    }
    return blocks_.empty() ? TW_OK : TW_IN_PROGRESS;
  }

  const persistent::Arguments arguments_;
  std::mt19937 order_{std::random_device{}()};
  std::deque<PersistentTwin> twins_;  // which stay where they are
  std::vector<PersistentTwin*> blocks_;
};

}  // namespace

Status make_persistent(const EmulatedDevice* device, const Options& options, const PersistentKernel& kernel, Twin* out) {
  Place shared;
  if (Status s = locate(device, Use::kernel, kernel.shared, 0, sizeof(persistent::Shared), &shared); is_error(s)) return s;
  const persistent::Arguments arguments{reinterpret_cast<persistent::Shared*>(kernel.shared),
                                        kernel.generation,
                                        kernel.first,
                                        kernel.idle_ns,
                                        kernel.life_ns,
                                        kernel.blocks};
  *out = [=, skip = options.skip_fences](EmulatedStream& stream) -> Status {
    Run run(device, skip, arguments);
    Status status = TW_ERR_TIMED_OUT;  // its life is bounded by itself, not by the stream
    while (status == TW_ERR_TIMED_OUT) status = stream.await([&] { return run.advance(); });
    return status;
  };
  return TW_OK;
}

}  // namespace thalweg::impl::emulated
