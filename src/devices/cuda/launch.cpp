// SPDX-License-Identifier: Apache-2.0
// Launching our kernels: which one, on how many blocks, and how its signal is given.
//
// A signal after several blocks needs a counter, one per queue: kernels of one stream run one after the other. A captured
// kernel may run beside others of the same queue when its graph is launched elsewhere, so there the signal is a second launch.
#include <algorithm>
#include <variant>

#include "devices/cuda/engine_copy.hpp"
#include "devices/cuda/queue.hpp"
#include "devices/kernels/arguments.hpp"
#include "devices/persistent/block.hpp"
#include "devices/program/wait_ahead.hpp"

namespace thalweg::impl::cuda {
namespace {

using namespace kernels;

constexpr unsigned kThreads = 512, kWarps = kThreads / 32;
constexpr unsigned kBlocks = 64;  // x 512 threads x 128 bytes in flight: several times what an NVLink needs
constexpr unsigned kMostBlocks = 65535;
constexpr uint64_t kLargePiece = 4096, kSmallPiece = 1024;

unsigned blocks_for(unsigned wanted, uint64_t pieces, unsigned pieces_per_block) {
  const uint64_t useful = (pieces + pieces_per_block - 1) / pieces_per_block;
  return static_cast<unsigned>(std::clamp<uint64_t>(useful, 1, wanted == 0 ? kBlocks : std::min(wanted, kMostBlocks)));
}

/// Small pieces while there are too few large ones for all warps.
uint64_t piece_for(uint64_t bytes) { return bytes >= kBlocks * kWarps * kLargePiece ? kLargePiece : kSmallPiece; }

/// The largest word, in bytes, in which the whole rectangle can be copied.
uint64_t common_word(const Copy& copy) {
  uint64_t bits = copy.to | copy.from | copy.width | 16;
  if (copy.rows > 1) bits |= static_cast<uint64_t>(copy.to_row | copy.from_row);
  if (copy.slices > 1) bits |= static_cast<uint64_t>(copy.to_slice | copy.from_slice);
  return bits & (~bits + 1);
}

Status launch_raw(CudaDevice& device, KernelName name, unsigned blocks, unsigned threads, CuStream stream, void* arguments) {
  CuFunction function = nullptr;
  if (Status s = device.backend().kernels().get(name, &function); is_error(s)) return s;
  void* parameters[] = {arguments};
  const Turn turn(device);
  return check(device.driver().LaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr),
               "launching a kernel");
}

}  // namespace

uint64_t CudaQueue::counter_now() {
  if (counter_ == 0 || capture() != CaptureState::none) return 0;
  counted_.store(true, std::memory_order_relaxed);
  return counter_;
}

Status CudaQueue::signal_alone(const SignalAfter& signal, uint64_t status) {
  Ends ends{status, signal.address, signal.value, 0, signal.add};
  return launch_raw(device_, KernelName::signal, 1, 1, stream_, &ends);
}

/// Behind a kernel that was launched. Where it fails, that kernel is over, as the error gives its buffers back; one that was captured
/// has not begun.
Status CudaQueue::signal_behind(const SignalAfter& signal, uint64_t status) {
  const Status launched = signal_alone(signal, status);
  if (is_error(launched) && capture() == CaptureState::none) driver().StreamSynchronize(stream_);
  return launched;
}

Status CudaQueue::launch_one(const CopyKernel& kernel) {
  const Copy copy = simplify(kernel.copy);
  if (copy.width == 0) return kernel.signal.address == 0 ? Status{TW_OK} : signal_alone(kernel.signal, kernel.status);
  CopyArguments arguments{copy.to,       copy.from,     copy.width,      copy.rows, copy.slices, copy.to_row,
                          copy.from_row, copy.to_slice, copy.from_slice, 0,         {}};
  const uint64_t rows = copy.rows * copy.slices;
  const bool wide = rows == 1 || copy.width >= 512;
  arguments.piece = wide ? piece_for(copy.width * rows) : common_word(copy);
  const uint64_t pieces = (copy.width + arguments.piece - 1) / arguments.piece * rows;
  const unsigned blocks = blocks_for(kernel.blocks, pieces, wide ? kWarps : kThreads);
  const uint64_t counter = kernel.signal.address == 0 || blocks == 1 ? 0 : counter_now();
  const bool together = kernel.signal.address != 0 && (blocks == 1 || counter != 0);
  arguments.ends = {kernel.status, together ? kernel.signal.address : 0, kernel.signal.value, counter, kernel.signal.add};
  const KernelName name = wide ? KernelName::copy_wide : KernelName::copy_narrow;
  Status status = launch_raw(device_, name, blocks, kThreads, stream_, &arguments);
  if (is_error(status) || together || kernel.signal.address == 0) return status;
  return signal_behind(kernel.signal, kernel.status);
}

Status CudaQueue::launch_one(const BlocksKernel& kernel) {
  if (kernel.count == 0 || kernel.length == 0)
    return kernel.signal.address == 0 ? Status{TW_OK} : signal_alone(kernel.signal, kernel.status);
  BlocksArguments arguments{kernel.pairs, kernel.count, kernel.length, piece_for(kernel.length * kernel.count), {}};
  const uint64_t pieces = (kernel.length + arguments.piece - 1) / arguments.piece * kernel.count;
  const unsigned blocks = blocks_for(kernel.blocks, pieces, kWarps);
  const uint64_t counter = kernel.signal.address == 0 || blocks == 1 ? 0 : counter_now();
  const bool together = kernel.signal.address != 0 && (blocks == 1 || counter != 0);
  arguments.ends = {kernel.status, together ? kernel.signal.address : 0, kernel.signal.value, counter, kernel.signal.add};
  Status status = launch_raw(device_, KernelName::copy_blocks, blocks, kThreads, stream_, &arguments);
  if (is_error(status) || together || kernel.signal.address == 0) return status;
  return signal_behind(kernel.signal, kernel.status);
}

Status CudaQueue::launch_one(const WaitKernel& kernel) {
  if (kernel.status == 0 || kernel.word == 0)
    return fail(TW_ERR_INVALID, "a waiting kernel needs a word, and a status word to say that it gave up");
  if (Status s = check_word(kernel.word); is_error(s)) return s;
  WaitArguments arguments{kernel.word, kernel.value, kernel.limit_ns, kernel.status,
                          static_cast<uint64_t>(int64_t{TW_ERR_TIMED_OUT})};
  return launch_raw(device_, KernelName::wait, 1, 1, stream_, &arguments);
}

Status CudaQueue::launch_one(const AtomicKernel& kernel) {
  if ((kernel.bytes != 4 && kernel.bytes != 8) || kernel.word == 0)
    return fail(TW_ERR_INVALID, "an atomic operation needs a word of 4 or 8 bytes");
  if (kernel.word % kernel.bytes != 0)
    return fail(TW_ERR_MISALIGNED, "the word of an atomic operation must be aligned to its %u bytes", kernel.bytes);
  if (Status s = check_word(kernel.old); is_error(s)) return s;
  AtomicArguments arguments{
      kernel.word, kernel.operand, kernel.compare, kernel.old, static_cast<unsigned>(kernel.op), kernel.bytes, {}};
  arguments.ends = {kernel.status, kernel.signal.address, kernel.signal.value, 0, kernel.signal.add};
  return launch_raw(device_, KernelName::atomic, 1, 1, stream_, &arguments);
}

Status CudaQueue::launch_one(const PersistentKernel& kernel) {
  persistent::Arguments arguments{reinterpret_cast<persistent::Shared*>(kernel.shared),
                                  kernel.generation,
                                  kernel.first,
                                  kernel.idle_ns,
                                  kernel.life_ns,
                                  kernel.blocks};
  return launch_raw(device_, KernelName::persistent, kernel.blocks, kThreads, stream_, &arguments);
}

Status CudaQueue::launch_one(const WaitAheadKernel& kernel) {
  device::WaitAhead waits = *kernel.waits;
  return launch_raw(device_, KernelName::wait_ahead, 1, kAheadThreads, stream_, &waits);
}

Status CudaQueue::launch(const Kernel& kernel) {
  const Current current(driver(), context_, ready());
  const Relaxed relaxed(driver(), current.status());  // a kernel that is not loaded yet is loaded now
  if (is_error(current.status())) return current.status();
  return std::visit(
      [this](const auto& one) {
        if constexpr (requires { one.status; }) {
          if (Status s = check_word(one.status); is_error(s)) return s;
        }
        if constexpr (requires { one.signal; }) {
          if (Status s = check_word(one.signal.address); is_error(s)) return s;
        }
        return launch_one(one);
      },
      kernel);
}

}  // namespace thalweg::impl::cuda
