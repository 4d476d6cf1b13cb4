// SPDX-License-Identifier: Apache-2.0
// The atfork handlers, the bitmap of registered descriptors and the list of child hooks.
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

// Held across fork() so that the list is whole in the child and no close is half done. Never held while user code runs.
pthread_mutex_t fork_mutex = PTHREAD_MUTEX_INITIALIZER;
ChildHook* first_hook = nullptr;
ChildHook* last_hook = nullptr;

bool tracked(int fd) { return fd >= 0 && fd < kTracked; }

}  // namespace

struct ForkHandlers {
  static void prepare() { pthread_mutex_lock(&fork_mutex); }
  static void parent() { pthread_mutex_unlock(&fork_mutex); }
  static void child() {
    fork_generation_word.fetch_add(1, std::memory_order_relaxed);
    for (ChildHook* hook = first_hook; hook; hook = hook->next_) hook->function_(hook->arg_);
    const int words = used_words.load(std::memory_order_relaxed);
    for (int i = 0; i < words; ++i) {
      uint64_t bits = bitmap[i].exchange(0, std::memory_order_relaxed);
      for (; bits != 0; bits &= bits - 1) close(i * 64 + __builtin_ctzll(bits));
    }
    used_words.store(0, std::memory_order_relaxed);
    pthread_mutex_unlock(&fork_mutex);
  }
  static void install() {
    static const int installed = pthread_atfork(prepare, parent, child);
    (void)installed;
  }
  static void link(ChildHook* hook) {
    hook->previous_ = last_hook;
    (last_hook ? last_hook->next_ : first_hook) = hook;
    last_hook = hook;
  }
  static void unlink(ChildHook* hook) {
    (hook->previous_ ? hook->previous_->next_ : first_hook) = hook->next_;
    (hook->next_ ? hook->next_->previous_ : last_hook) = hook->previous_;
  }
};

namespace {
// At load time, so that a generation is moved on even when nothing was registered yet.
[[gnu::constructor]] void install_at_load() { ForkHandlers::install(); }
}  // namespace

Status BornHere::refuse(const char* object) {
  return fail(TW_ERR_FORKED, "this %s belongs to the parent process; create a new context after fork()", object);
}

bool forked() { return fork_generation() != 1; }

void register_descriptor(int fd) {
  if (!tracked(fd)) return;
  ForkHandlers::install();
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

ChildHook::ChildHook(Function function, void* arg) : function_(function), arg_(arg) {
  ForkHandlers::install();
  pthread_mutex_lock(&fork_mutex);
  ForkHandlers::link(this);
  pthread_mutex_unlock(&fork_mutex);
}

ChildHook::~ChildHook() {
  pthread_mutex_lock(&fork_mutex);
  ForkHandlers::unlink(this);
  pthread_mutex_unlock(&fork_mutex);
}

}  // namespace thalweg::impl
