// SPDX-License-Identifier: Apache-2.0
// The board of lost peers.
#include "plans/window_loss.hpp"

namespace thalweg::impl {
namespace {

void set(uint64_t* word, Status status) {
  __atomic_store_n(word, static_cast<uint64_t>(static_cast<int64_t>(status)), __ATOMIC_RELEASE);
}

}  // namespace

void LossBoard::lost(uint32_t rank, Status status, const char* why) {
  const std::lock_guard lock(mutex_);
  if (status_ != TW_OK) return;
  status_ = status;
  rank_ = rank;
  why_ = why;
  for (uint64_t* word : words_) set(word, status);
}

void LossBoard::add_word(uint64_t* word) {
  const std::lock_guard lock(mutex_);
  words_.push_back(word);
  if (status_ != TW_OK) set(word, status_);
}

void LossBoard::forget_words() {
  const std::lock_guard lock(mutex_);
  words_.clear();
}

void LossBoard::forget_word(uint64_t* word) {
  const std::lock_guard lock(mutex_);
  std::erase(words_, word);
}

Status LossBoard::check() {
  const std::lock_guard lock(mutex_);
  if (status_ == TW_OK) return TW_OK;
  return fail(status_, "the window has lost rank %u: %s; end it with tw_window_destroy", rank_, why_.c_str());
}

Status LossBoard::check_rank() {
  const std::lock_guard lock(mutex_);
  if (status_ == TW_OK) return TW_OK;
  return fail(status_, "rank %u is lost: %s", rank_, why_.c_str());
}

}  // namespace thalweg::impl
