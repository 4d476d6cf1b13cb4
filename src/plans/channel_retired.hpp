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
};

class ChannelRetired {
 public:
  ChannelRetired() = default;
  ~ChannelRetired() {
    free_memory();
    free_tables();
  }
  ChannelRetired(const ChannelRetired&) = delete;
  ChannelRetired& operator=(const ChannelRetired&) = delete;

  /// in_use: runs are under way; otherwise it is given back at once. What is kept already is kept once.
  void keep(Retired&& one, bool in_use);
  bool keeps() const { return !memory_.empty(); }
  /// No run is under way any more.
  void free_memory();

  /// The same for the table of a layout in `own`, by which runs find where to store: it is ours, and stays as long as any run may
  /// be reading it. address 0: there is none.
  void keep_table(Arena& own, uint64_t address, size_t length, bool in_use);
  bool keeps_tables() const { return !tables_.empty(); }
  void free_tables();

  /// The peer takes back, and describes, more than runs under way may leave here.
  bool full() const { return memory_.size() + tables_.size() >= kMostKept || table_bytes_ >= kMostTableBytes; }

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
  static constexpr size_t kMostKept = 4096;
  static constexpr size_t kMostTableBytes = 16u << 20;
  struct Piece {
    Arena* own;
    uint64_t address;
    size_t length;
  };
  static void give_back(Retired& one);
  static void free(std::vector<Piece>& pieces);

  std::vector<Retired> memory_;
  std::vector<Piece> tables_;
  size_t table_bytes_ = 0;
  std::vector<uint16_t> held_;
  std::vector<Piece> words_;
};

}  // namespace thalweg::impl
