// SPDX-License-Identifier: Apache-2.0
// usage: gpu_devices --backend=emulated|fake|cuda [GoogleTest's options]. fake: libfake_cuda.so beside the program. Exit code 77
// when the back end has no device here.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "devices/cuda/backend.hpp"
#include "devices/cuda/device.hpp"
#include "devices/emulated/backend.hpp"
#include "devices/emulated/emulated.hpp"
#include "tests/gpu/contract.hpp"

namespace thalweg::impl::contract {

Backend* backend = nullptr;
MemoryKind ordinary = MemoryKind::device;
const char* name = "";

namespace {

Status open_emulated() {
  emulated::Options options;
  options.vmm_piece = 32 << 20;
  for (unsigned i = 0; i < 2; ++i) {
    std::unique_ptr<emulated::EmulatedDevice> device;
    if (Status s = emulated::EmulatedDevice::open(i, options, &device); is_error(s)) return s;
    device.release();  // until exit, NOLINT(bugprone-unused-return-value)
  }
  backend = &emulated::backend();
  ordinary = MemoryKind::emulated;
  return TW_OK;
}

Status open_cuda(const std::string& library) {
  cuda::DriverApi driver;
  if (Status s = cuda::load_driver(library.c_str(), &driver); is_error(s)) return s;
  backend = new cuda::CudaBackend(driver);  // until exit
  std::vector<Device*> devices;
  return backend->devices(&devices);
}

std::string beside_the_program(const char* file) {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  const std::string program(path, n > 0 ? static_cast<size_t>(n) : 0);
  return program.substr(0, program.rfind('/') + 1) + file;
}

Status open(const std::string& which) {
  if (which == "emulated") return open_emulated();
  if (which == "fake") return open_cuda(beside_the_program("libfake_cuda.so"));
  return open_cuda(cuda::kDriverLibrary);
}

}  // namespace
}  // namespace thalweg::impl::contract

int main(int argc, char** argv) {
  using namespace thalweg::impl;
  static std::string which = "emulated";
  int socket = -1;
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--backend=", 0) == 0) which = word.substr(10);
    if (word.rfind("--import=", 0) == 0) socket = std::atoi(word.c_str() + 9);
  }
  contract::name = which.c_str();
  if (is_error(contract::open(which))) {
    std::fprintf(stderr, "no %s device: %s\n", which.c_str(), last_error());
    return 77;
  }
  return socket >= 0 ? contract::import_in_another_process(socket) : RUN_ALL_TESTS();
}
