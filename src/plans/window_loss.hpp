// SPDX-License-Identifier: Apache-2.0
// Which of a window's peers are lost: written by the thread that detects it, usually a service thread, which at once sets
// the words that end device code's waits.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transports/transport.hpp"

namespace thalweg::impl {

/// Shared by a window and its watches, which may outlive it.
class LossBoard {
 public:
  void lost(uint32_t rank, Status status, const char* why);
  /// `word` is set at a loss, at once when there was one, until forget_words().
  void add_word(uint64_t* word);
  void forget_words();
  void forget_word(uint64_t* word);
  /// TW_OK, or how the first one was lost, with a text.
  Status check();
  /// The same, with a text of the rank alone.
  Status check_rank();

 private:
  std::mutex mutex_;
  std::vector<uint64_t*> words_;
  Status status_ = TW_OK;
  uint32_t rank_ = 0;
  std::string why_;
};

/// One peer of the window.
class RankWatch final : public LossWatch {
 public:
  RankWatch(std::shared_ptr<LossBoard> board, uint32_t rank) : board_(std::move(board)), rank_(rank) {}
  void on_loss(Status status, const char* why) override { board_->lost(rank_, status, why); }

 private:
  const std::shared_ptr<LossBoard> board_;
  const uint32_t rank_;
};

}  // namespace thalweg::impl
