// SPDX-License-Identifier: Apache-2.0
// The atfork handlers and the bitmap of registered descriptors.
#include "base/platform/fork.hpp"

#include <pthread.h>
#include <unistd.h>

namespace thalweg::impl {

std::atomic<uint32_t> fork_generation_word{1};

namespace {

constexpr int kWords = kTracked / 64;
// Static and zero: pages that are never touched cost nothing.
std::atomic<uint64_t> bitmap[kWords];
std::atomic<int> used_words{0};  // words at and above this one were never set

// Held across fork() so that no close is half done in the child.
pthread_mutex_t fork_mutex = PTHREAD_MUTEX_INITIALIZER;

bool tracked(int fd) { return fd >= 0 && fd < kTracked; }

void before_fork() { pthread_mutex_lock(&fork_mutex); }
void in_parent() { pthread_mutex_unlock(&fork_mutex); }
void in_child() {
  fork_generation_word.fetch_add(1, std::memory_order_relaxed);
  const int words = used_words.load(std::memory_order_relaxed);
  for (int i = 0; i < words; ++i) {
    uint64_t bits = bitmap[i].exchange(0, std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) close(i * 64 + __builtin_ctzll(bits));
  }
  used_words.store(0, std::memory_order_relaxed);
  pthread_mutex_unlock(&fork_mutex);
}

/// At load time, so that a generation is moved on even when nothing was registered yet; by the first descriptor too, which
/// another file's initialiser may have opened before.
[[gnu::constructor]] void install() {
  static const int installed = pthread_atfork(before_fork, in_parent, in_child);
  (void)installed;
}

}  // namespace

Status BornHere::refuse(const char* object) {
  return fail(TW_ERR_FORKED, "this %s belongs to the parent process; make a new context and its objects after fork()", object);
}

bool forked() { return fork_generation() != 1; }

void register_descriptor(int fd) {
  if (!tracked(fd)) return;
  install();
  const int word = fd / 64;
  int seen = used_words.load(std::memory_order_relaxed);
  while (seen <= word && !used_words.compare_exchange_weak(seen, word + 1, std::memory_order_relaxed)) {
  }
  bitmap[word].fetch_or(uint64_t{1} << (fd % 64), std::memory_order_relaxed);
}

void unregister_descriptor(int fd) {
  if (tracked(fd)) bitmap[fd / 64].fetch_and(~(uint64_t{1} << (fd % 64)), std::memory_order_relaxed);
}

void close_descriptor(int fd) {
  pthread_mutex_lock(&fork_mutex);
  unregister_descriptor(fd);
  close(fd);
  pthread_mutex_unlock(&fork_mutex);
}

}  // namespace thalweg::impl
