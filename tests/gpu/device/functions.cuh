// SPDX-License-Identifier: Apache-2.0
// Every function by every thread group between two GPUs, with odd sizes, alignments and shapes: the whole of both windows is
// compared with what it should hold.
#pragma once
#include <vector>

#include "tests/device/shapes.hpp"
#include "tests/gpu/device/pair.cuh"

namespace thalweg::device::gpu {

enum class Call : u32 { put, get, sides, strided_put, packed, lines, channel };
constexpr const char* kCallNames[] = {"put", "get", "sides", "strided_put", "packed", "packed_lines", "channel"};
enum class At : u32 { thread, warp, block, blocks };
constexpr const char* kAtNames[] = {"thread", "warp", "block", "blocks"};

constexpr u64 kWindowFlag = 0, kRoom = 1024, kRoomEnd = 16384, kArea = kRoomEnd;

/// One call on one GPU; the other waits.
struct Case {
  Window window;
  char* own;
  Call call;
  u64 offset, bytes;  // in the window
  u64 own_offset;
  Side to, from;
  u64 width, to_pitch, from_pitch, rows;  // bytes
  u32 generation;
  u32* arrived;
  SendEnd* send;
  RecvEnd* receive;
};

template <class ThreadGroup>
__device__ void run_sender(const Case& c, ThreadGroup group) {
  char* const own = c.own + c.own_offset;
  switch (c.call) {
    case Call::put:
      put_signal(group, c.window, 1, c.offset, own, c.bytes, kWindowFlag, 1);
      return;
    case Call::get:
      get(group, c.window, 1, c.offset, own, c.bytes);
      signal(group, c.window, 1, kWindowFlag, 1);
      return;
    case Call::sides:
      copy(group, c.to, c.from, c.bytes);
      signal(group, c.window, 1, kWindowFlag, 1, SignalOp::add);
      return;
    case Call::strided_put:
      strided_put(group, c.window, 1, c.offset, c.to_pitch, own, c.from_pitch, c.width, c.rows);
      signal(group, c.window, 1, kWindowFlag, 1);
      return;
    case Call::packed:
      put_ll(group, c.window, 1, kRoom, own, c.bytes, c.generation);
      return;
    case Call::lines:
      if constexpr (ThreadGroup::whole_warps) put_ll128(group, c.window, 1, kRoom, own, c.bytes, c.generation);
      return;
    case Call::channel:
      Sender<> out(c.send, c.window.guard);
      out.send(group, c.from, c.bytes);
  }
}

template <class ThreadGroup>
__device__ void run_receiver(const Case& c, ThreadGroup group) {
  char* const to = c.window.bases[1] + c.offset;
  if (c.call == Call::packed) {
    take_ll(group, c.window, kRoom, to, c.bytes, c.generation);
  } else if (c.call == Call::lines) {
    if constexpr (ThreadGroup::whole_warps) take_ll128(group, c.window, kRoom, to, c.bytes, c.generation);
  } else if (c.call == Call::channel) {
    Receiver<> in(c.receive, c.window.guard);
    if (in.post(group, 0)) in.take(group);
  } else {
    wait(group, c.window, kWindowFlag, Compare::equal, 1);
  }
}

template <class ThreadGroup>
__device__ void run_case(const Case& c, ThreadGroup group) {
  if (c.window.rank == 0) {
    run_sender(c, group);
  } else {
    run_receiver(c, group);
  }
}

__global__ void case_thread(const __grid_constant__ Case c) { run_case(c, Thread()); }
__global__ void case_warp(const __grid_constant__ Case c) { run_case(c, Warp()); }
__global__ void __launch_bounds__(256) case_block(const __grid_constant__ Case c) { run_case(c, Block()); }
__global__ void __launch_bounds__(256) case_blocks(const __grid_constant__ Case c) {
  run_case(c, Blocks(c.arrived, blockIdx.x, gridDim.x));
}

inline void launch_case(const Case& c, At at, cudaStream_t stream) {
  const unsigned threads = 32 * static_cast<unsigned>(1 + twins::draw(8)), blocks = static_cast<unsigned>(1 + twins::draw(5));
  if (at == At::thread) case_thread<<<1, 1, 0, stream>>>(c);
  if (at == At::warp) case_warp<<<1, 32, 0, stream>>>(c);
  if (at == At::block) case_block<<<1, threads, 0, stream>>>(c);
  if (at == At::blocks) case_blocks<<<blocks, threads, 0, stream>>>(c);
}

/// Memory of the test, here and there.
class Functions {
 public:
  Functions() : pair_(kLength, 2'000'000'000) {
    CUDA_CHECK(cudaHostAlloc(&pieces_, sizeof(Piece) * 2 * kPieces, cudaHostAllocPortable));
    for (int g = 0; g < 2; ++g) {
      CUDA_CHECK(cudaSetDevice(g));
      CUDA_CHECK(cudaMalloc(&arrived_[g], sizeof(u32)));
      CUDA_CHECK(cudaMemset(arrived_[g], 0, sizeof(u32)));
    }
  }
  /// Wrong bytes, or -1: a wait failed.
  long run(Call call, At at) {
    Case c{};
    prepare(call, &c);
    Pipe pipe(pair_, 0, c.offset, kLength - c.offset);
    const float time = pair_.run([&](int rank) {
      Case mine = c;
      mine.window = pair_.window[rank];
      mine.own = pair_.own[rank];
      mine.arrived = arrived_[rank];
      mine.send = pipe.send;
      mine.receive = pipe.receive;
      launch_case(mine, at, pair_.stream[rank]);
    });
    pipe.free();
    if (time < 0) pair_.say_failures(kCallNames[static_cast<u32>(call)]);
    return time < 0 ? -1 : compare(call);
  }

 private:
  static constexpr size_t kLength = 1 << 17, kPieces = 4096;
  using Bytes = std::vector<unsigned char>;

  void fill(char* device, Bytes* image) {
    image->resize(kLength);
    for (auto& b : *image) b = static_cast<unsigned char>(twins::random_source()());
    CUDA_CHECK(cudaMemcpy(device, image->data(), kLength, cudaMemcpyHostToDevice));
  }
  void take_list(const twins::Shape& shape, u32 which, Side* side) {
    *side = shape.side;
    if (shape.side.pieces == nullptr) return;
    std::copy(shape.pieces.begin(), shape.pieces.end(), pieces_ + which * kPieces);
    side->pieces = pieces_ + which * kPieces;
  }
  void prepare(Call call, Case* c) {
    pair_.clear();
    fill(pair_.own[0], &own_);
    fill(pair_.part[1], &part_);
    const u64 zero = 0;
    std::memcpy(part_.data() + kWindowFlag, &zero, 8);
    CUDA_CHECK(cudaMemcpy(pair_.part[1] + kWindowFlag, &zero, 8, cudaMemcpyHostToDevice));
    const bool small = call == Call::packed || call == Call::lines;
    const u64 grain = call == Call::lines ? 8 : 1;
    c->call = call;
    c->generation = static_cast<u32>(twins::random_source()()) | 1;
    c->bytes = twins::draw(small || twins::draw(2) == 0 ? 5000 : 40000) / grain * grain;
    c->offset = kArea + twins::draw(40) * grain;
    c->own_offset = twins::draw(40) * grain;
    if (small) clear_room();
    if (call == Call::strided_put) return prepare_rows(c);
    if (call == Call::sides || call == Call::channel) return prepare_sides(call, c);
    for (u64 i = 0; i < c->bytes; ++i) move(call, c->offset + i, c->own_offset + i);
  }
  /// What the room holds is not compared, but must not be taken for a message.
  void clear_room() { CUDA_CHECK(cudaMemset(pair_.part[1] + kRoom, 0, kRoomEnd - kRoom)); }
  void prepare_rows(Case* c) {
    c->width = 1 + twins::draw(60);
    c->to_pitch = c->width + twins::draw(20);
    c->from_pitch = c->width + twins::draw(20);
    c->rows = twins::draw(200);
    for (u64 r = 0; r < c->rows; ++r) {
      for (u64 i = 0; i < c->width; ++i)
        move(Call::put, c->offset + r * c->to_pitch + i, c->own_offset + r * c->from_pitch + i);
    }
  }
  void prepare_sides(Call call, Case* c) {
    c->bytes = twins::draw(6000);
    const twins::Shape from = twins::any_shape(reinterpret_cast<u64>(pair_.own[0]), c->bytes);
    take_list(from, 0, &c->from);
    const u64 base = reinterpret_cast<u64>(pair_.part[1]) + c->offset;
    const twins::Shape to = call == Call::sides ? twins::any_shape(base, c->bytes) : twins::Shape{};
    if (call == Call::sides) take_list(to, 1, &c->to);
    for (u64 i = 0; i < c->bytes; ++i) move(Call::put, c->offset + (call == Call::sides ? to.offsets[i] : i), from.offsets[i]);
  }
  void move(Call call, u64 in_window, u64 in_own) {
    if (call == Call::get) {
      own_[in_own] = part_[in_window];
    } else {
      part_[in_window] = own_[in_own];
    }
  }
  long compare(Call call) {
    Bytes found(kLength);
    long wrong = 0;
    CUDA_CHECK(cudaMemcpy(found.data(), pair_.own[0], kLength, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < kLength; ++i) wrong += found[i] != own_[i];
    CUDA_CHECK(cudaMemcpy(found.data(), pair_.part[1], kLength, cudaMemcpyDeviceToHost));
    const bool small = call == Call::packed || call == Call::lines;
    for (size_t i = 8; i < kLength; ++i) wrong += found[i] != part_[i] && !(small && i >= kRoom && i < kRoomEnd);
    return wrong;
  }

  Pair pair_;
  Bytes own_, part_;
  Piece* pieces_ = nullptr;
  u32* arrived_[2];
};

}  // namespace thalweg::device::gpu
