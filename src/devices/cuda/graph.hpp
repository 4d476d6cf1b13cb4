// SPDX-License-Identifier: Apache-2.0
// Captures of streams.
#pragma once
#include "devices/cuda/queue.hpp"

namespace thalweg::impl::cuda {

class CudaGraph final : public Graph {
 public:
  CudaGraph(CudaDevice& device, CuContext context, CuGraphExec executable)
      : device_(device), context_(context), executable_(executable) {}
  ~CudaGraph() override;
  Status launch(Queue& queue) override;

 private:
  CudaDevice& device_;
  const CuContext context_;
  const CuGraphExec executable_;
};

}  // namespace thalweg::impl::cuda
