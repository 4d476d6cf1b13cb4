// SPDX-License-Identifier: Apache-2.0
// Answers about device memory from a hostile peer: arbitrary parts with arbitrary descriptors. What is accepted keeps the
// documented limits, and no descriptor is left behind.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "memory/device_names.hpp"
#include "transports/device_memory/answer.hpp"

using namespace thalweg::impl;

namespace {

constexpr uint64_t kIncarnation = 0x0101010101010101;

void require(bool holds) {
  if (!holds) std::abort();
}

int any_descriptor() { return fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0); }

int lowest_free_descriptor() {
  const int fd = any_descriptor();
  require(fd >= 0);
  close(fd);
  return fd;
}

void check(const DeviceAssembly& assembly, bool complete) {
  require(assembly.pieces.size() <= DeviceNames::kMaxPieces);
  if (complete) require((assembly.status == TW_OK) == !assembly.pieces.empty());
  uint64_t next = assembly.pieces.empty() ? 0 : assembly.pieces[0].handle.base;
  for (const ExportedMemory& piece : assembly.pieces) {
    require(piece.handle.base == next && piece.handle.length != 0 && piece.handle.incarnation == kIncarnation);
    require(bool(piece.fd) == (piece.handle.form == ExportForm::descriptor));
    next += piece.handle.length;
  }
}

}  // namespace

// Input: parts of {2 bytes: length, 1 byte: descriptors}, bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int before = lowest_free_descriptor();
  {
    DeviceAssembly assembly;
    while (size >= 3) {
      const size_t n = std::min<size_t>((data[0] | data[1] << 8) % (SetupChannel::kMax + 1), size - 3);
      std::vector<UniqueFd> fds;
      for (int i = data[2] % (SetupChannel::kMaxFds + 1); i > 0; --i) fds.emplace_back(any_descriptor());
      const Status status = assembly.add({reinterpret_cast<const std::byte*>(data + 3), n}, std::move(fds), kIncarnation);
      require(status == TW_OK || status == TW_IN_PROGRESS || status == TW_ERR_PROTOCOL);
      if (status == TW_ERR_PROTOCOL) break;
      check(assembly, status == TW_OK);
      if (status == TW_OK) assembly.pieces.clear();
      data += 3 + n;
      size -= 3 + n;
    }
  }
  require(lowest_free_descriptor() == before);
  return 0;
}
