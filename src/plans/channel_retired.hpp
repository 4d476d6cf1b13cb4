// SPDX-License-Identifier: Apache-2.0
// What one end of a channel has no more use for, and runs that are under way may still use: memory of the peer that is reached, the
// numbers of buffers that the peer wants back, ends and tables of earlier words. It is kept here until those runs are over, which the
// channel asks its users (ChannelUsers).
//
// Under Proxy::mutex().
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plans/reach.hpp"

namespace thalweg::impl {

/// Memory of the peer.
struct Retired {
  Reached reached;
  tw_remote_memory* region = nullptr;
  uint64_t table = 0;  // of a layout, in Executor::own(); 0: none
  size_t table_length = 0;
};

class ChannelRetired {
 public:
  ChannelRetired() = default;
  ~ChannelRetired() { free_memory(); }
  ChannelRetired(const ChannelRetired&) = delete;
  ChannelRetired& operator=(const ChannelRetired&) = delete;

  /// in_use: runs are under way; otherwise it is given back at once. What is kept already is kept once. own: where its table is.
  void keep(Retired&& one, Arena& own, bool in_use);
  bool keeps() const { return !memory_.empty(); }
  /// No run is under way any more.
  void free_memory();

  /// Past runs may still store to the buffer with this number, which the peer wants back.
  void hold(uint16_t index);
  bool holds() const { return !held_.empty(); }
  /// No past run is under way any more: those numbers, once.
  std::vector<uint16_t> take_held();

  /// Runs find the end by this: plans that have failed name it as long as they are there.
  void keep_words(Arena& own, uint64_t address, size_t length) { words_.push_back({&own, address, length}); }
  /// The channel has no user any more.
  void free_words();

 private:
  struct Piece {
    Arena* own;
    uint64_t address;
    size_t length;
  };
  struct Kept {
    Retired one;
    Arena* own;
  };
  static void give_back(Kept& kept);

  std::vector<Kept> memory_;
  std::vector<uint16_t> held_;
  std::vector<Piece> words_;
};

}  // namespace thalweg::impl
