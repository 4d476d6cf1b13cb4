// SPDX-License-Identifier: Apache-2.0
#include "trace/ring.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

namespace thalweg::impl::trace {

std::unique_ptr<Ring> Ring::make(uint64_t events) {
  void* const memory = mmap(nullptr, events * sizeof(Event), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* const ring = new (std::nothrow) Ring(static_cast<Event*>(memory), events);
  if (ring == nullptr) munmap(memory, events * sizeof(Event));
  return std::unique_ptr<Ring>(ring);
}

namespace {
std::atomic<uint64_t> last_number{0};
}

Ring::Ring(Event* events, uint64_t size)
    : events_(events),
      size_(size),
      number_(last_number.fetch_add(1, std::memory_order_relaxed) + 1),
      thread_(static_cast<int>(syscall(SYS_gettid))) {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  name_ = name;
}

Ring::~Ring() { munmap(events_, size_ * sizeof(Event)); }

}  // namespace thalweg::impl::trace
