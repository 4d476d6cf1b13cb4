// SPDX-License-Identifier: Apache-2.0
// Host side of the persistent kernel, which lies beside the program.
#include "persistent.hpp"

#include <unistd.h>

#include <fstream>
#include <iterator>

namespace thalweg::floors {

/// As in persistent.cu.
struct PersistentCopier::Mailbox {
  uint64_t turn;  // written by the host; 0: nothing yet
  uint64_t to, from, length;
  uint64_t stop;
  alignas(128) uint64_t done;  // written by the kernel
};

namespace {

std::vector<char> image_beside_the_program() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  const std::string program(path, n > 0 ? static_cast<size_t>(n) : 0);
  std::ifstream file(program.substr(0, program.rfind('/') + 1) + "persistent.fatbin", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

cuda::CuFunction load(Bench& bench) {
  static std::vector<char> image;
  static cuda::CuKernel kernel = nullptr;
  if (kernel == nullptr) {
    image = image_beside_the_program();
    if (image.empty()) give_up("persistent.fatbin is not beside the program");
    cuda::CuLibrary library = nullptr;
    must_raw(bench.driver.LibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
             "loading a kernel");
    must_raw(bench.driver.LibraryGetKernel(&kernel, library, "persistent"), "finding a kernel");
  }
  return reinterpret_cast<cuda::CuFunction>(kernel);
}

}  // namespace

PersistentCopier::PersistentCopier(Bench& bench, Device& device)
    : memory_(device, MemoryKind::pinned, 4096), queue_(make_queue(device)) {
  cuda::CuContext popped = nullptr;
  must_raw(bench.driver.CtxPushCurrent(bench.context(device)), "pushing");
  uint64_t address = memory_.at(), limit_ns = 20'000'000'000;
  void* parameters[] = {&address, &limit_ns};
  const auto stream = static_cast<cuda::CuStream>(queue_->native());
  must_raw(bench.driver.LaunchKernel(load(bench), 1, 1, 1, 512, 1, 1, 0, stream, parameters, nullptr), "launching");
  must_raw(bench.driver.CtxPopCurrent(&popped), "popping");
}

PersistentCopier::~PersistentCopier() {
  __atomic_store_n(&mailbox()->stop, 1, __ATOMIC_RELEASE);
  queue_->synchronize();
}

void PersistentCopier::copy(uint64_t to, uint64_t from, uint64_t length) const {
  Mailbox* const box = mailbox();
  box->to = to;
  box->from = from;
  box->length = length;
  __atomic_store_n(&box->turn, ++turn_, __ATOMIC_RELEASE);
  wait_for(&box->done, turn_);
}

}  // namespace thalweg::floors
