// SPDX-License-Identifier: Apache-2.0
// A GPU for kernels of this tool: its primary context, which the library uses too, so that addresses of bound windows hold,
// and a stream. The driver is loaded at run time: the tool is built and runs where there is none.
#pragma once
#include <string>

#include "pair.hpp"

namespace perf {

/// Why kernels of this tool cannot run on this memory at all; "": nothing is known against it.
std::string why_no_kernels(const std::string& memory);
/// The device that runs kernels for a memory on it.
unsigned ordinal_of(const std::string& memory);

/// Why this process can run no kernel of this tool on any GPU; "": it can.
std::string why_no_gpu();

/// What goes wrong ends the process with a text: no driver, no device, no kernel, a fault in one.
class Gpu {
 public:
  explicit Gpu(unsigned ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  std::string place() const { return "cuda:" + std::to_string(ordinal_); }
  unsigned ordinal() const { return ordinal_; }
  unsigned multiprocessors() const { return multiprocessors_; }
  /// Can it order pieces into shared memory, and was its code compiled for that? Others have code for 8.0.
  bool orders_pieces() const { return capability_ == 9 || capability_ == 10; }
  /// Enqueues blocks of a kernel with its only argument.
  template <class Argument>
  void launch(const char* kernel, unsigned blocks, unsigned threads, Argument argument) {
    launch_raw(kernel, blocks, threads, &argument);
  }
  /// Enqueues a copy between memories that this device reaches.
  void copy(void* to, const void* from, size_t bytes);
  void* stream() const { return stream_; }
  /// May this device's kernels touch memory of that one? From then on they do.
  bool reach(const Gpu& peer) const;
  bool idle() const;
  /// Until all of it is over. A minute at most.
  void finish() const;
  /// While it lives, this thread's calls are for this device: where there are several.
  class Turn {
   public:
    explicit Turn(const Gpu& gpu);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
  };
  /// Until all of it is over, progressing the worker. A minute at most: each wait of device code has a limit that is less.
  void finish(Pair& pair);

 private:
  void launch_raw(const char* kernel, unsigned blocks, unsigned threads, void* argument);
  const unsigned ordinal_;
  unsigned multiprocessors_ = 0, capability_ = 0;
  void *context_ = nullptr, *stream_ = nullptr;
};

/// Zeroed words in a device's memory: counters of blocks, and a kernel's results.
class DeviceWords {
 public:
  static constexpr size_t kWords = 32;
  DeviceWords(tw_context* context, const std::string& place);
  ~DeviceWords() { (void)tw_memory_release(memory_); }
  DeviceWords(const DeviceWords&) = delete;
  DeviceWords& operator=(const DeviceWords&) = delete;
  /// Words on lines of their own.
  template <class T>
  T* at(size_t word) const {
    return reinterpret_cast<T*>(static_cast<uint64_t*>(tw_memory_address(memory_)) + word);
  }
  uint64_t read(size_t word) const;
  void write(size_t word, uint64_t value);

 private:
  tw_context* context_;
  tw_memory* memory_ = nullptr;
};

}  // namespace perf
