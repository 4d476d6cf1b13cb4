// SPDX-License-Identifier: Apache-2.0
// A GPU. device.cpp: contexts and memory; mapping.cpp: rows of pieces; sharing.cpp: other processes; reach.cpp: peers.
#pragma once
#include <chrono>
#include <map>
#include <mutex>

#include "base/platform/fork.hpp"
#include "devices/cuda/backend.hpp"
#include "devices/cuda/clock.hpp"
#include "devices/cuda/current.hpp"
#include "devices/cuda/mapping.hpp"
#include "devices/device.hpp"

namespace thalweg::impl::cuda {

class CudaDevice final : public Device {
 public:
  CudaDevice(CudaBackend& backend, int ordinal, const Uuid& uuid) : backend_(backend), ordinal_(ordinal), uuid_(uuid) {}
  const char* name() const override { return "cuda"; }
  unsigned ordinal() const override { return static_cast<unsigned>(ordinal_); }
  const Uuid& uuid() const override { return uuid_; }
  std::string model() const override;
  bool clock(uint64_t* now) override { return clock_.read(now); }
  bool has_clock() override { return clock_.open(); }
  unsigned multiprocessors() const override { return static_cast<unsigned>(attribute(kMultiprocessors)); }
  Status allocate(MemoryKind kind, size_t length, uint64_t* address) override;
  Status allocate_at(const Uuid& other, size_t length, uint64_t* address) override;
  Status free(uint64_t address) override;
  Status register_host(void* address, size_t length) override;
  Status unregister_host(void* address) override;
  Status export_memory(uint64_t address, uint64_t length, uint64_t incarnation, std::vector<ExportedMemory>* out) override;
  Status import_memory(std::span<ExportedMemory> pieces, uint64_t* address) override;
  Status release_import(uint64_t address) override;
  PeerAccess peer(const Uuid& other) const override;
  Status make_queue(std::unique_ptr<Queue>* out, QueueUse use = QueueUse::any) override;
  Status wrap_queue(void* native, std::unique_ptr<Queue>* out) override;
  Status make_event(std::unique_ptr<Event>* out) override;
  Status wrap_event(void* native, std::unique_ptr<Event>* out) override;
  Status load_kernels() override;
  bool has_kernels() const override { return !kernels_image().empty(); }

  CudaBackend& backend() { return backend_; }
  const DriverApi& driver() const { return backend_.driver(); }
  bool forked() const { return born_.forked(); }
  Status check_alive() const { return born_.check("device"); }
  /// The primary context, retained at the first call.
  Status context(CuContext* out);
  int attribute(DeviceAttribute which) const;  // 0 when the driver does not know it
  bool is_import(uint64_t address) const;
  /// Queue::admit() for work in `context`, the current one.
  Status admit(Use use, CuContext context, uint64_t address, uint64_t length);
  /// Must waits for words request a flush of remote writes? Known once there is a context.
  bool flushes() const { return flushes_; }
  /// A kernel with that attribute may be launched while the one before it runs, and waits for its end itself.
  bool starts_early() const { return starts_early_; }
  /// A zeroed 32-bit word of device memory, 0 when there is none left; give_back_counter() when no kernel uses it any more.
  uint64_t take_counter();
  void give_back_counter(uint64_t counter);
  std::timed_mutex& enqueuing() { return enqueuing_; }  // of Turn

 private:
  struct Owned {
    MemoryKind kind;
    size_t length;
    MappedRow row;  // vmm
  };
  struct Import {
    uint64_t length;
    unsigned opens = 0;  // of a legacy handle; the driver counts, too
    MappedRow row;       // of pieces
  };
  Status allocate_simple(MemoryKind kind, size_t length, uint64_t* address);
  Status allocate_from_pool(size_t length, uint64_t* address);
  Status create_row(int home, size_t length, MappedRow* out);
  Status describe_pieces(const BufferInfo& info, uint64_t incarnation, ExportedMemory* out);
  Status check_opened(uint64_t opened, uint64_t length) const;
  Status import_handle(const ExportHandle& handle, uint64_t* address);
  Status import_row(std::span<ExportedMemory> pieces, uint64_t* address);
  Status check_source(const ExportHandle& handle) const;
  Status admit_piece(Use use, CuContext context, uint64_t address, const BufferInfo& info);
  Status reach_peer(CuContext context, uint64_t address, const BufferInfo& info);
  Status enable_peer(CuContext from, CuContext to);
  Status share_row(uint64_t base, uint64_t length) const;
  Status share_pool(CuPool pool) const;
  bool make_counters();

  CudaBackend& backend_;
  const int ordinal_;
  const Uuid uuid_;
  BornHere born_;
  const int major_ = attribute(kComputeMajor);  // compute capability
  std::mutex making_;                           // held while the driver makes things; guards the stream and the counters
  std::atomic<CuContext> context_{nullptr};
  bool flushes_ = false;            // written before context_
  bool starts_early_ = false;       // as well
  CuStream pool_stream_ = nullptr;  // for what is waited for at once
  mutable std::mutex tables_;       // guards the next two; the driver is never called under it
  std::map<uint64_t, Owned> owned_;
  std::map<uint64_t, Import> imports_;
  std::vector<uint64_t> counters_;
  bool counters_made_ = false;
  CudaClock clock_{*this};
  std::timed_mutex enqueuing_;
};

/// One thread at a time enqueues work on a device. Launches of several at once hold up each other's streams: on an H200 three threads
/// launched two kernels each that waited for the others', and one of 7 was not begun while the others ran; one at a time, none
/// (benchmarks/results/gpu-holdups-2026-11-29.log). A call that waits for room in its stream, which another thread's launch may have
/// to make, is not waited for.
class Turn {
 public:
  explicit Turn(CudaDevice& device) : mutex_(device.enqueuing()), mine_(mutex_.try_lock() || mutex_.try_lock_for(kLongest)) {}
  ~Turn() {
    if (mine_) mutex_.unlock();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  static constexpr std::chrono::milliseconds kLongest{10};
  std::timed_mutex& mutex_;
  const bool mine_;
};

/// Current and Relaxed, in a device's primary context.
class OnDevice {
 public:
  explicit OnDevice(CudaDevice& device)
      : ready_(device.context(&context_)),
        current_(device.driver(), context_, ready_),
        relaxed_(device.driver(), current_.status()) {}
  Status status() const { return current_.status(); }
  CuContext context() const { return context_; }

 private:
  CuContext context_ = nullptr;
  Status ready_;
  Current current_;
  Relaxed relaxed_;
};

}  // namespace thalweg::impl::cuda
