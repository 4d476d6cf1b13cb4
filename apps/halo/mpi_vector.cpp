// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>

#include <cstdlib>
#include <filesystem>

#include "halo/mpi.hpp"
#include "ranks/launch.hpp"

namespace halo {
namespace {

void must_mpi(int result) {
  if (result != MPI_SUCCESS) throw std::runtime_error("MPI failed with " + std::to_string(result));
}

class ByMpi final : public Way {
 public:
  ByMpi(apps::Ranks&, Cube& cube) : cube_(cube) {
    for (const apps::Move& move : cube.moves().receives) receives_.push_back({move, type_of(move.box)});
    for (const apps::Move& move : cube.moves().sends) sends_.push_back({move, type_of(move.box)});
  }
  ~ByMpi() override {
    for (std::vector<Part>* parts : {&receives_, &sends_})
      for (Part& part : *parts) MPI_Type_free(&part.type);
  }
  void run(uint64_t count) override {
    std::vector<MPI_Request> requests(receives_.size() + sends_.size());
    for (uint64_t n = 0; n < count; ++n) {
      MPI_Request* next = requests.data();
      for (const Part& p : receives_)
        must_mpi(MPI_Irecv(first(p), 1, p.type, p.move.peer, static_cast<int>(p.move.tag), MPI_COMM_WORLD, next++));
      for (const Part& p : sends_)
        must_mpi(MPI_Isend(first(p), 1, p.type, p.move.peer, static_cast<int>(p.move.tag), MPI_COMM_WORLD, next++));
      must_mpi(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
    }
  }

 private:
  struct Part {
    apps::Move move;
    MPI_Datatype type;
  };
  /// Rows in a vector, and planes of rows where there is more than one; a contiguous box is one block.
  MPI_Datatype type_of(const apps::Box& box) const {
    const auto [ni, nj, nk] = cube_.shape().points;
    const auto element = static_cast<int>(cube_.shape().element);
    const auto number = [](uint64_t n) { return static_cast<int>(n); };
    MPI_Datatype rows, planes;
    const bool whole = box.extent[2] == nk;  // the rows of a plane are one block
    must_mpi(MPI_Type_vector(whole ? 1 : number(box.extent[1]), number(whole ? box.extent[1] * nk : box.extent[2]) * element,
                             number(nk) * element, MPI_BYTE, &rows));
    must_mpi(MPI_Type_create_hvector(number(box.extent[0]), 1, static_cast<MPI_Aint>(nj * nk) * element, rows, &planes));
    must_mpi(MPI_Type_commit(&planes));
    MPI_Type_free(&rows);
    return planes;
  }
  char* first(const Part& part) const {
    const apps::Triple& at = part.move.box.start;
    const apps::Shape& shape = cube_.shape();
    return static_cast<char*>(cube_.data()) + ((at[0] * shape.points[1] + at[1]) * shape.points[2] + at[2]) * shape.element;
  }
  Cube& cube_;
  std::vector<Part> receives_, sends_;
};

struct Join {
  char store[256];
  char key[65];
};

std::string folder;  // rank 0's, until the end

}  // namespace

void start_mpi() {
  must_mpi(MPI_Init(nullptr, nullptr));
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  Join join{};
  if (rank == 0) {
    folder = apps::fresh_folder();
    std::snprintf(join.store, sizeof join.store, "file:%s/store", folder.c_str());
    std::snprintf(join.key, sizeof join.key, "%s", apps::fresh_key().c_str());
  }
  must_mpi(MPI_Bcast(&join, sizeof join, MPI_BYTE, 0, MPI_COMM_WORLD));
  ::setenv("THALWEG_RANK", std::to_string(rank).c_str(), 1);
  ::setenv("THALWEG_SIZE", std::to_string(size).c_str(), 1);
  ::setenv("THALWEG_STORE", join.store, 1);
  ::setenv("THALWEG_JOB_KEY", join.key, 1);
}

void end_mpi() {
  MPI_Finalize();
  if (!folder.empty()) std::filesystem::remove_all(folder);
}

bool has_mpi() { return true; }

std::unique_ptr<Way> by_mpi(apps::Ranks& ranks, Cube& cube) { return std::make_unique<ByMpi>(ranks, cube); }

}  // namespace halo
