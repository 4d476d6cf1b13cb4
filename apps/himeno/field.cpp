// SPDX-License-Identifier: Apache-2.0
#include "himeno/field.hpp"

#include <cstring>

namespace himeno {

Field::Field(apps::Ranks& ranks, const Size& size, const Triple& parts, const std::string& place, float cross)
    : ranks_(ranks),
      size_(size),
      block_(size, parts, ranks.rank()),
      shape_(block_.shape()),
      place_(place),
      largest_((Block(size, parts, 0).shape().bytes() + 255) / 256 * 256) {  // the first block is as large as any
  for (size_t axis = 0; axis < 3; ++axis) arrays_.inside[axis] = static_cast<Index>(block_.inside[axis]);
  arrays_.stride_j = static_cast<Index>(shape_.points[2]);
  arrays_.stride_i = arrays_.stride_j * static_cast<Index>(shape_.points[1]);
  for (int n = 0; n < 3; ++n) {
    arrays_.a[n] = add(1);
    arrays_.b[n] = add(cross);
    arrays_.c[n] = add(1);
  }
  arrays_.a[3] = add(1.0f / 6.0f);
  arrays_.wrk1 = add(0);
  arrays_.bnd = add(1);
  memory_ = ranks.context.allocate(word(apps::kDirections), place.c_str());
  const std::vector<uint64_t> zeros(apps::kDirections);
  ranks.context.copy(static_cast<char*>(memory_.data()) + word(0), zeros.data(), zeros.size() * sizeof(uint64_t));
  reset();
}

const float* Field::add(float value) {
  const std::vector<float> filled(shape_.bytes() / sizeof(float), value);
  coefficients_.push_back(ranks_.context.allocate(shape_.bytes(), place_.c_str()));
  ranks_.context.copy(coefficients_.back().data(), filled.data(), shape_.bytes());
  return static_cast<const float*>(coefficients_.back().data());
}

void Field::reset() {
  const auto [ni, nj, nk] = shape_.points;
  const auto last = static_cast<float>(size_.points[0] - 1);
  std::vector<float> start(ni * nj * nk);
  for (uint64_t i = 0; i < ni; ++i) {
    const auto global = static_cast<float>(block_.first[0] + i - 1);
    std::fill_n(start.begin() + static_cast<std::ptrdiff_t>(i * nj * nk), nj * nk, global * global / (last * last));
  }
  for (int which = 0; which < 2; ++which) ranks_.context.copy(p(which), start.data(), shape_.bytes());
}

Index Field::number(uint64_t i, uint64_t j, uint64_t k) const {
  const uint64_t global_i = block_.first[0] + i - 1, global_j = block_.first[1] + j - 1, global_k = block_.first[2] + k - 1;
  return static_cast<Index>((global_i * size_.points[1] + global_j) * size_.points[2] + global_k);
}

uint64_t Field::fingerprint(int which) const {
  std::vector<float> here(shape_.bytes() / sizeof(float));
  ranks_.context.copy(here.data(), p(which), shape_.bytes());
  uint64_t sum = 0;
  for (uint64_t i = 1; i <= block_.inside[0]; ++i)
    for (uint64_t j = 1; j <= block_.inside[1]; ++j)
      for (uint64_t k = 1; k <= block_.inside[2]; ++k) {
        uint32_t bits = 0;
        std::memcpy(&bits, &here[(i * shape_.points[1] + j) * shape_.points[2] + k], sizeof bits);
        sum += bits * (2 * static_cast<uint64_t>(number(i, j, k)) + 1);
      }
  return sum;
}

}  // namespace himeno
