// SPDX-License-Identifier: Apache-2.0
// Ways to copy between two memories, where at least one is a GPU's.
#pragma once
#include <string>

#include "gpu.hpp"

namespace perf {

/// One direction of a copy.
class CopyWay {
 public:
  virtual ~CopyWay() = default;
  virtual void start(void* to, const void* from, size_t bytes) = 0;
  virtual void finish() = 0;
};

/// By a stream of a device: its copy engine.
class EngineCopy : public CopyWay {
 public:
  explicit EngineCopy(Gpu& gpu) : gpu_(gpu) {}
  void start(void* to, const void* from, size_t bytes) override;
  void finish() override { gpu_.finish(); }

 private:
  Gpu& gpu_;
};

/// By a kernel of a device that reaches both; multiples of 8 bytes.
class KernelCopy : public CopyWay {
 public:
  explicit KernelCopy(Gpu& gpu) : gpu_(gpu) {}
  void start(void* to, const void* from, size_t bytes) override;
  void finish() override { gpu_.finish(); }

 private:
  Gpu& gpu_;
};

/// From one device to another through two pieces of pinned memory: each engine moves one while the other one moves the other.
class StagedCopy : public CopyWay {
 public:
  static constexpr size_t kPiece = 2u << 20;
  /// staging: 2 * kPiece bytes, pinned.
  StagedCopy(Gpu& from, Gpu& to, unsigned char* staging);
  ~StagedCopy() override;
  StagedCopy(const StagedCopy&) = delete;
  StagedCopy& operator=(const StagedCopy&) = delete;
  void start(void* to, const void* from, size_t bytes) override;
  void finish() override;

 private:
  Gpu &from_, &to_;
  unsigned char* staging_;
  void *filled_[2], *emptied_[2];  // events
  bool used_[2] = {false, false};
};

}  // namespace perf
