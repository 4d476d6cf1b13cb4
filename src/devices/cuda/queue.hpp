// SPDX-License-Identifier: Apache-2.0
// A CUDA stream: an own one, which never blocks against default streams, or a user's in its own context.
#pragma once
#include <atomic>

#include "devices/cuda/device.hpp"
#include "devices/queue.hpp"

namespace thalweg::impl::cuda {

class CudaQueue final : public Queue {
 public:
  enum class Kind : uint8_t { own, users, standard };  // standard: a default stream, which is only ordered
  CudaQueue(CudaDevice& device, CuContext context, CuStream stream, Kind kind, uint64_t counter)
      : device_(device), context_(context), stream_(stream), kind_(kind), counter_(counter) {}
  ~CudaQueue() override;
  Device* device() override { return &device_; }
  void* native() override { return stream_; }
  Status admit(Use use, uint64_t address, uint64_t length) override;
  Status copy(const Copy* copies, size_t count) override;
  Status write_value(uint64_t address, uint64_t value, bool add) override;
  Status wait_geq(uint64_t address, uint64_t value) override;
  Status launch(const Kernel& kernel) override;
  Status run(const ProgramRun& program) override;
  Status call(void (*function)(void* argument), void* argument) override;
  Status record(Event& event) override;
  Status wait_event(Event& event) override;
  Status begin_capture() override;
  Status end_capture(std::unique_ptr<Graph>* out) override;
  CaptureState capture_state() override;
  Status query() override;
  Status synchronize() override;

 private:
  const DriverApi& driver() const { return device_.driver(); }
  Status ready() const;    // for work: this process's, and no default stream
  Status at_rest();        // for questions: nothing is captured
  CaptureState capture();  // in the current context
  unsigned wait_flags() const;
  static Status check_word(uint64_t address);
  Status enqueue_copy(const Copy& copy);
  Status enqueue_lines(const Copy* copies, size_t count);
  Status enqueue_each(const Copy& copy);
  Status launch_one(const CopyKernel& kernel);
  Status launch_one(const BlocksKernel& kernel);
  Status launch_one(const WaitKernel& kernel);
  Status launch_one(const AtomicKernel& kernel);
  Status launch_one(const PersistentKernel& kernel);
  Status launch_one(const WaitAheadKernel& kernel);
  template <class Arguments>
  Status launch_program(KernelName name, const ProgramShape& shape, bool early_start, const Arguments& arguments);
  Status run_exchange(const ProgramRun& program);
  Status signal_alone(const SignalAfter& signal, uint64_t status);
  Status signal_behind(const SignalAfter& signal, uint64_t status);
  uint64_t counter_now();
  friend class CudaGraph;

  CudaDevice& device_;
  const CuContext context_;
  const CuStream stream_;
  const Kind kind_;
  const uint64_t counter_;  // blocks of a kernel that are done; 0: a signal takes a launch of its own
  std::atomic<bool> counted_{false};
};

}  // namespace thalweg::impl::cuda
