// SPDX-License-Identifier: Apache-2.0
// Physical pieces mapped contiguously into a reserved range of addresses.
#pragma once
#include <vector>

#include "devices/cuda/driver.hpp"

namespace thalweg::impl::cuda {

struct MappedRow {
  CuPointer base = 0;
  size_t reserved = 0;
  std::vector<size_t> pieces;  // bytes each; mapped
};

struct Piece {
  CuMemory memory;
  size_t length;
};

/// Maps the pieces for reading and writing by device `ordinal`. A failure leaves nothing mapped. The mappings hold the memory:
/// the caller releases its handles in any case.
Status map_row(const DriverApi& driver, int ordinal, const std::vector<Piece>& pieces, MappedRow* out);
Status unmap_row(const DriverApi& driver, const MappedRow& row);

}  // namespace thalweg::impl::cuda
