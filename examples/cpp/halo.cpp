// SPDX-License-Identifier: Apache-2.0
// halo: a field cut down the middle, each half in one process with a column of its neighbour's cells beside it (the halo).
// Columns of a row-major array are strided: both sides say so with a layout, and nobody packs a buffer.
#include <array>

#include "pair.hpp"

namespace {

constexpr uint64_t kRows = 300, kColumns = 200, kTag = 2;
constexpr int kSteps = 25;
// Columns 0 and kColumns + 1 are halo; only one of them has a neighbour, the other keeps the border's value.
std::array<std::array<double, kColumns + 2>, kRows> field;

double cell(int rank, size_t row, size_t column, int step) {
  return rank * 1e6 + double(row) * 1e3 + double(column) + step * 0.5;
}

thalweg::Layout column_layout(uint64_t column) {
  const std::array<uint64_t, 2> shape{kRows, kColumns + 2}, extent{kRows, 1}, start{0, column};
  return thalweg::Layout::subarray(shape, extent, start, sizeof(double));
}

void exchange(examples::Pair& pair, const thalweg::Layout& edge, const thalweg::Layout& halo) {
  thalweg::Request sent, received;
  examples::must(
      pair.worker.recv({&field, 0}, kTag, received, UINT64_MAX, thalweg::OpOptions().layout(halo).source(pair.endpoint.get())));
  examples::must(pair.endpoint.send({&field, 0}, kTag, sent, thalweg::OpOptions().layout(edge)));
  examples::must(received.wait());
  examples::must(sent.wait());
}

}  // namespace

int main(int, char** argv) {
  return examples::run(argv, [](examples::Pair& pair) {
    const bool left = pair.rank == 0;
    const uint64_t edge_column = left ? kColumns : 1, halo_column = left ? kColumns + 1 : 0;
    const uint64_t border_column = left ? 0 : kColumns + 1, their_edge = left ? 1 : kColumns;
    const thalweg::Layout edge = column_layout(edge_column), halo = column_layout(halo_column);
    for (auto& row : field) row[border_column] = -1;
    for (int step = 0; step < kSteps; ++step) {
      for (size_t row = 0; row < kRows; ++row)
        for (size_t column = 1; column <= kColumns; ++column) field[row][column] = cell(pair.rank, row, column, step);
      exchange(pair, edge, halo);
      for (size_t row = 0; row < kRows; ++row) {
        examples::expect(field[row][halo_column] == cell(!pair.rank, row, their_edge, step), "halo: a wrong cell arrived");
        examples::expect(field[row][border_column] == -1, "halo: the border was touched");
        for (size_t column = 1; column <= kColumns; ++column)
          examples::expect(field[row][column] == cell(pair.rank, row, column, step), "halo: an inner cell was touched");
      }
    }
    if (left) {
      std::printf("halo: %d exchanges of a %zu-byte column over %s, every cell right\n", kSteps, edge.bytes(),
                  pair.endpoint.transport().data());
    }
  });
}
