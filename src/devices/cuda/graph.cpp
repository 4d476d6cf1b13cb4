// SPDX-License-Identifier: Apache-2.0
// Captures: begun and ended in the thread-local mode, so that other threads go on with what a capture would forbid.
#include "devices/cuda/graph.hpp"

namespace thalweg::impl::cuda {

Status CudaQueue::begin_capture() {
  const Current current(driver(), context_, ready());
  if (is_error(current.status())) return current.status();
  return check(driver().StreamBeginCapture(stream_, kCaptureModeThreadLocal), "beginning a capture");
}

Status CudaQueue::end_capture(std::unique_ptr<Graph>* out) {
  const Current current(driver(), context_, device_.check_alive());
  if (is_error(current.status())) return current.status();
  CuGraph graph = nullptr;
  if (Status s = check(driver().StreamEndCapture(stream_, &graph), "ending a capture"); is_error(s)) return s;
  const Relaxed relaxed(driver());
  CuGraphExec executable = nullptr;
  const Status status = check(driver().GraphInstantiateWithFlags(&executable, graph, 0), "making a graph");
  driver().GraphDestroy(graph);
  if (!is_error(status)) *out = std::make_unique<CudaGraph>(device_, context_, executable);
  return status;
}

Status CudaQueue::call(void (*)(void*), void*) {
  return fail(TW_ERR_UNSUPPORTED, "a device's queue calls no host function; use a host queue");
}

CudaGraph::~CudaGraph() {
  if (device_.forked()) return;
  const Current current(device_.driver(), context_);
  const Relaxed relaxed(device_.driver(), current.status());
  if (!is_error(current.status())) device_.driver().GraphExecDestroy(executable_);
}

Status CudaGraph::launch(Queue& queue) {
  if (queue.device() != &device_)
    return fail(TW_ERR_INVALID, "a graph is launched on a queue of the device where it was captured");
  auto& target = static_cast<CudaQueue&>(queue);
  const Current current(device_.driver(), target.context_, target.ready());
  if (is_error(current.status())) return current.status();
  const Turn turn(device_);
  return check(device_.driver().GraphLaunch(executable_, target.stream_), "launching a graph");
}

}  // namespace thalweg::impl::cuda
