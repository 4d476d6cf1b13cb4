// SPDX-License-Identifier: Apache-2.0
// The same collectives by an MPI: mpicxx -O2 -std=c++20 mpi_collectives.cpp, then mpirun --bind-to core -n RANKS a.out [SECONDS] [NAME] [MOST bytes]
#include <mpi.h>

#include "collective_loop.hpp"

namespace {

struct Mpi : bench::Ranks {
  Mpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  void allreduce(const float* send, float* recv, size_t count) override {
    MPI_Allreduce(send, recv, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void alltoall(const char* send, char* recv, size_t bytes) override {
    const auto count = static_cast<int>(bytes);
    MPI_Alltoall(send, count, MPI_CHAR, recv, count, MPI_CHAR, MPI_COMM_WORLD);
  }
  void broadcast(char* buffer, size_t bytes) override {
    MPI_Bcast(buffer, static_cast<int>(bytes), MPI_CHAR, 0, MPI_COMM_WORLD);
  }
  void greatest(const double* send, double* recv, size_t count) override {
    MPI_Allreduce(send, recv, static_cast<int>(count), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  }
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    Mpi ranks;
    bench::measure(ranks, argc > 2 ? argv[2] : "mpi", argc > 1 ? std::atof(argv[1]) : 0.5,
                   argc > 3 ? std::strtoull(argv[3], nullptr, 10) : SIZE_MAX);
  }
  MPI_Finalize();
}
