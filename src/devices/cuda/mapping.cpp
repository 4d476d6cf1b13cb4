// SPDX-License-Identifier: Apache-2.0
// Reserve, map, give access; and back.
#include "devices/cuda/mapping.hpp"

namespace thalweg::impl::cuda {

Status map_row(const DriverApi& driver, int ordinal, const std::vector<Piece>& pieces, MappedRow* out) {
  MappedRow row;
  for (const Piece& piece : pieces) row.reserved += piece.length;
  Status status = check(driver.MemAddressReserve(&row.base, row.reserved, 0, 0, 0), "reserving device addresses");
  if (is_error(status)) return status;
  CuPointer at = row.base;
  for (const Piece& piece : pieces) {
    status = check(driver.MemMap(at, piece.length, 0, piece.memory, 0), "mapping device memory");
    if (is_error(status)) break;
    row.pieces.push_back(piece.length);
    at += piece.length;
  }
  if (!is_error(status)) {
    const AccessDescription access{{kLocationDevice, ordinal}, kReadWrite};
    status = check(driver.MemSetAccess(row.base, row.reserved, &access, 1), "giving a device access to mapped memory");
  }
  if (!is_error(status)) {
    *out = std::move(row);
    return TW_OK;
  }
  const std::string reason = last_error();
  (void)unmap_row(driver, row);  // the first failure is what counts
  set_last_error(reason);
  return status;
}

Status unmap_row(const DriverApi& driver, const MappedRow& row) {
  Status first = TW_OK;
  CuPointer at = row.base;
  for (const size_t length : row.pieces) {
    const Status status = check(driver.MemUnmap(at, length), "unmapping device memory");
    if (!is_error(first)) first = status;
    at += length;
  }
  const Status status = check(driver.MemAddressFree(row.base, row.reserved), "giving device addresses back");
  return is_error(first) ? first : status;
}

}  // namespace thalweg::impl::cuda
