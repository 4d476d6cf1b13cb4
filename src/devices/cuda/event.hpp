// SPDX-License-Identifier: Apache-2.0
// Events. An own one belongs to one context at a time: recorded in a queue of another, it is made anew there.
#pragma once
#include <mutex>

#include "devices/cuda/device.hpp"

namespace thalweg::impl::cuda {

class CudaEvent final : public Event {
 public:
  /// The user's.
  CudaEvent(CudaDevice& device, CuEvent event) : device_(device), users_(true), event_(event) {}
  /// An own one; without a native event until make().
  explicit CudaEvent(CudaDevice& device) : device_(device), users_(false) {}
  ~CudaEvent() override;
  Status query() override;
  Status synchronize() override;
  void* native() override;

  Status make(CuContext context);  // the current one
  Status record(CuContext context, CuStream stream);
  Status wait(CuStream stream);

 private:
  CudaDevice& device_;
  const bool users_;
  std::mutex mutex_;
  CuContext context_ = nullptr;
  CuEvent event_ = nullptr;
};

}  // namespace thalweg::impl::cuda
