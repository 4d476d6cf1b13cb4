// SPDX-License-Identifier: Apache-2.0
// One of the two ends of an operation whose devices are made to fail: a context, a worker and an endpoint of their own for every
// row, a buffer, and a pipe to the other end on which nothing ever fails.
#pragma once
#include <thalweg/blocks.h>
#include <thalweg/places.h>
#include <thalweg/thalweg.h>

#include <array>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "devices/emulated/options.hpp"
#include "process.hpp"

namespace thalweg::faults {

using impl::emulated::Operation;
inline constexpr size_t kKinds = static_cast<size_t>(Operation::count_);
inline constexpr uint8_t kNobody = 2;

/// What both ends do. Plain data.
struct Row {
  char operation[24];
  char transport[8];
  char place[2][24];  // "plain", or a place of tw_memory_allocate
  uint64_t size, seed;
  uint8_t rows;         // short ones with gaps instead of contiguous bytes
  uint8_t one_process;  // rank 0 injects for both
  uint8_t fails;        // whose devices: a rank, or kNobody
  uint8_t kind;         // Operation
  uint32_t nth;
};

/// How it went at one end.
struct Outcome {
  tw_status status, again;  // the operation, and the same one afterwards with sound devices
  uint32_t calls[kKinds];   // of its devices during the first
  char error[200];          // the library's text
  char wrong[300];          // what the end found wrong; empty: nothing
};

/// Found wrong by an end: the text goes into Outcome::wrong.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void demand(bool holds, const std::string& what);
void must(tw_status status, const char* what);

class End {
 public:
  End(const Row& row, unsigned rank, test::Pipe& pipe);
  ~End();
  End(const End&) = delete;
  /// To the other end, and what it said; progresses meanwhile.
  std::string swap(const std::string& mine);
  /// Both ends are ready. From here on the calls that the row names fail, once; all are counted anew.
  void arm();
  /// Both have ended: the devices are sound again. How it went at the other end.
  tw_status agree(tw_status mine);
  bool told() const { return pipe_.readable(); }  // the other end has said something
  /// How the operation ended here, of at most `patience` progress; the text of an error is kept.
  tw_status wait(tw_request request);
  tw_status note(tw_status status);  // keeps the text of an error that a call gave
  /// Progresses until done(); throws when that takes too long.
  void progress_until(const char* what, const std::function<bool()>& done);

  bool source(bool reversed = false) const { return (rank == 0) != reversed; }
  void fill(uint64_t seed);
  void poison();
  /// Everything around the payload is poison, and with `whole` the payload is that of `seed`.
  void verify(uint64_t seed, bool whole, const char* what);
  std::vector<unsigned char> load();
  void store(const std::vector<unsigned char>& bytes);

  unsigned char* address() const { return start_ + kGuard; }
  size_t bytes() const { return offsets_.size(); }
  const tw_layout* layout() const { return layout_; }
  tw_op_options options() const;

  /// Gives everything back and checks that it was all.
  void close();

  const Row row;
  const unsigned rank;
  tw_context* context = nullptr;
  tw_worker* worker = nullptr;
  tw_endpoint* endpoint = nullptr;
  tw_memory* memory = nullptr;
  std::string error;
  std::array<uint32_t, kKinds> calls{};  // of devices, during the first operation
  static constexpr size_t kGuard = 128;
  static constexpr uint64_t kRow = 16, kStride = 48;  // bytes of short rows

 private:
  void connect();
  void make_buffer();
  void inject(uint32_t nth) const;
  bool armed_ = false;
  test::Pipe& pipe_;
  tw_layout* layout_ = nullptr;
  std::vector<uint32_t> offsets_;  // of the payload's bytes
  std::vector<unsigned char> plain_;
  unsigned char* start_ = nullptr;
  size_t total_ = 0;
};

size_t holdings();  // of all devices of this process

/// An operation at either end: how it ended there. `seed` is that of its bytes.
struct Named {
  const char* name;
  tw_status (*run)(End& end, uint64_t seed);
};
const std::vector<Named>& operations();        // device_operations.cpp
const std::vector<Named>& block_operations();  // device_blocks.cpp
std::vector<Named> all_operations();

/// All of a row at one end. Never throws.
Outcome run_row(const Row& row, unsigned rank, test::Pipe& pipe);

}  // namespace thalweg::faults
