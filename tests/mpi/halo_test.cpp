// SPDX-License-Identifier: Apache-2.0
// A stencil code that keeps its MPI and replaces only the halo: cut along its fastest dimension, so every face is strided, periodic,
// with a plan for each of the two buffers, triggered on a queue between the steps of the computation. Every rank's part must be
// that of the same computation in one piece, to the bit. Exit code 0 at every rank, or a line that says what was wrong.
#include <thalweg/mpi.hpp>

#include <cstdio>

namespace {

constexpr int nz = 5, ny = 7, nx = 9, steps = 40;  // nx with the two columns of the halo

/// Cells of a grid of `width` columns; the outermost in z and y stay as they are.
struct Grid {
  explicit Grid(int columns) : width(columns), cells(static_cast<size_t>(nz) * ny * static_cast<size_t>(columns)) {}
  double& at(int z, int y, int x) {
    return cells[(static_cast<size_t>(z) * ny + static_cast<size_t>(y)) * static_cast<size_t>(width) + static_cast<size_t>(x)];
  }
  int width;
  std::vector<double> cells;
};

double mean(double west, double east, double south, double north, double down, double up, double here) {
  return 0.25 * here + 0.125 * (west + east + south + north + down + up);
}

/// One step of the computation on one rank's part, run by the queue.
struct Step {
  Grid* to;
  Grid* from;
};
void jacobi(void* arg) {
  auto& [to, from] = *static_cast<Step*>(arg);
  for (int z = 1; z < nz - 1; ++z)
    for (int y = 1; y < ny - 1; ++y)
      for (int x = 1; x < nx - 1; ++x)
        to->at(z, y, x) = mean(from->at(z, y, x - 1), from->at(z, y, x + 1), from->at(z, y - 1, x), from->at(z, y + 1, x),
                               from->at(z - 1, y, x), from->at(z + 1, y, x), from->at(z, y, x));
}

/// The same in one piece, periodic.
void step_whole(Grid& to, Grid& from) {
  const int width = from.width;
  for (int z = 1; z < nz - 1; ++z)
    for (int y = 1; y < ny - 1; ++y)
      for (int x = 0; x < width; ++x)
        to.at(z, y, x) = mean(from.at(z, y, (x + width - 1) % width), from.at(z, y, (x + 1) % width), from.at(z, y - 1, x),
                              from.at(z, y + 1, x), from.at(z - 1, y, x), from.at(z + 1, y, x), from.at(z, y, x));
}

/// The same random cells at every rank.
Grid random_whole(int columns) {
  unsigned seed = std::random_device{}();
  MPI_Bcast(&seed, 1, MPI_UNSIGNED, 0, MPI_COMM_WORLD);
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<double> values(-1.0, 1.0);
  Grid whole(columns);
  for (double& cell : whole.cells) cell = values(generator);
  return whole;
}

bool run() {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int columns = nx - 2, width = columns * size, lo = (rank + size - 1) % size, hi = (rank + 1) % size;
  Grid whole[2] = {random_whole(width), Grid(width)};
  whole[1] = whole[0];
  Grid part[2] = {Grid(nx), Grid(nx)};
  for (int z = 0; z < nz; ++z)
    for (int y = 0; y < ny; ++y)
      for (int x = 0; x < nx; ++x)
        part[0].at(z, y, x) = part[1].at(z, y, x) = whole[0].at(z, y, (rank * columns + x - 1 + width) % width);
  double* const u[2] = {part[0].cells.data(), part[1].cells.data()};

  auto peers = thalweg::attach(MPI_COMM_WORLD);  // key and addresses travel over MPI
  thalweg::Queue s(peers.context());
  auto face = [&](int x) { return thalweg::Layout::subarray<double>({nz, ny, nx}, {nz, ny, 1}, {0, 0, x}); };
  thalweg::Plan halo[2];  // one per buffer of the double buffering
  for (int b = 0; b < 2; ++b) {
    halo[b]
        .recv(peers[lo], u[b], face(0), /*tag*/ 1)
        .recv(peers[hi], u[b], face(nx - 1), 2)
        .send(peers[lo], u[b], face(1), 2)
        .send(peers[hi], u[b], face(nx - 2), 1);  // lo == hi (periodic, two ranks) works
    halo[b].prepare();
  }
  std::vector<Step> work;
  for (int t = 0; t < steps; ++t) work.push_back({&part[(t + 1) & 1], &part[t & 1]});
  for (int t = 0; t < steps; ++t) {
    thalweg::check(s.call(jacobi, &work[static_cast<size_t>(t)]));
    thalweg::check(halo[(t + 1) & 1].trigger(s));
    step_whole(whole[(t + 1) & 1], whole[t & 1]);
  }
  if (s.synchronize() != TW_OK) std::fprintf(stderr, "rank %d: %s\n", rank, tw_last_error());
  thalweg::check(s);  // a lost peer shows here

  for (int z = 0; z < nz; ++z)
    for (int y = 0; y < ny; ++y)
      for (int x = 0; x < nx; ++x) {
        const double expected = whole[steps & 1].at(z, y, (rank * columns + x - 1 + width) % width);
        if (part[steps & 1].at(z, y, x) == expected) continue;
        std::fprintf(stderr, "rank %d: cell (%d, %d, %d) is %g and not %g\n", rank, z, y, x, part[steps & 1].at(z, y, x),
                     expected);
        return false;
      }
  MPI_Barrier(MPI_COMM_WORLD);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bool good = false;
  try {
    good = run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi halo: %s\n", error.what());
  }
  if (!good) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
  return 0;
}
