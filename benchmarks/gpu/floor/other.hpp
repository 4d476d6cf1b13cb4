// SPDX-License-Identifier: Apache-2.0
// The other process: this program again, with the last GPU. It allocates, exports, copies at the same time, dies when told.
#pragma once
#include <sys/types.h>

#include "bench.hpp"

namespace thalweg::floors {

struct Order {
  enum What : uint32_t { export_memory, take_memory, copy_for, figures, end } what;
  MemoryKind kind = MemoryKind::device;
  uint64_t length = 0;
  double seconds = 0;
};
struct Reply {
  uint64_t pieces = 0, address = 0;
  double gigabytes_per_s = 0, export_us = 0;
  uint64_t free_bytes = 0;
  char error[160] = {};
};

class Other {
 public:
  Other();
  ~Other();  // ends it
  Reply ask(const Order& order);
  void tell(const Order& order);
  Reply hear();
  /// Exports what it has; the pieces come with the reply.
  Reply ask(const Order& order, std::vector<ExportedMemory>* pieces);
  void give(std::span<const ExportedMemory> pieces);
  void kill();

 private:
  int socket_ = -1;
  pid_t child_ = -1;
};

bool send_piece(int socket, const ExportedMemory& piece);
bool take_piece(int socket, ExportedMemory* piece);
uint64_t free_memory(Bench& bench, Device& device);

}  // namespace thalweg::floors
