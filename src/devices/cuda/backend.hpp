// SPDX-License-Identifier: Apache-2.0
// CUDA GPUs by the driver's interface, found at run time: the same program runs where there is none.
//
//   identify   one query of the driver, which answers "not initialised" until the application, or devices(), has initialised it
//   contexts   each device's primary one, retained at first need and kept; a wrapped stream's own. Pushed and popped per call.
//   imports    legacy handles and rows of pieces, found again by address, so that an import is never exported
// No destructor calls the driver at exit: back ends and their devices stay.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "devices/cuda/driver.hpp"
#include "devices/cuda/kernels.hpp"
#include "devices/device.hpp"

namespace thalweg::impl::cuda {

class CudaDevice;

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const DriverApi& driver);
  ~CudaBackend() override;
  const char* name() const override { return "cuda"; }
  Status identify(uint64_t address, BufferInfo* info) override;
  Status devices(std::vector<Device*>* out) override;

  const DriverApi& driver() const { return driver_; }
  Kernels& kernels() { return kernels_; }
  CudaDevice* device(int ordinal) const;  // null: none, or not enumerated
  CudaDevice* device(const Uuid& uuid) const;
  unsigned count() const { return count_.load(std::memory_order_acquire); }

  /// The incarnation of this process, as its exports named it; 0: none yet. An import of it is one's own memory.
  std::atomic<uint64_t> exported_as{0};
  std::atomic<unsigned> import_count{0};  // of all devices: none is the common case

 private:
  Status enumerate();
  ExportForm form_of(uint64_t address, MemoryKind kind, bool legacy, uint64_t handle_types) const;

  const DriverApi driver_;
  Kernels kernels_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<CudaDevice>> devices_;  // written once, before count_
  std::atomic<unsigned> count_{0};
};

/// Loads the driver's library, if there is one, and adds the back end to the registry. Initialises nothing.
void open_backend();
/// Why open_backend() added none; empty when it did.
const std::string& why_absent();

}  // namespace thalweg::impl::cuda
