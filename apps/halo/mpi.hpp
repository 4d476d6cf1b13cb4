// SPDX-License-Identifier: Apache-2.0
// Beside MPI: thalweg-halo-mpi is the same program, started by mpirun, with one more way. mpi_none.cpp is for thalweg-halo.
#pragma once
#include "halo/way.hpp"

namespace halo {

/// Makes this process a rank of a job with MPI's ranks; no more than a look where there is no MPI. Called first.
void start_mpi();
void end_mpi();
/// Isend and Irecv of MPI_Type_vector, between the same buffers.
bool has_mpi();
std::unique_ptr<Way> by_mpi(apps::Ranks& ranks, Cube& cube);

}  // namespace halo
