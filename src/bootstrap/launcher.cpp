// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/launcher.hpp"

#include <thalweg/thalweg.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace thalweg::impl {
namespace {

class Alone final : public Launcher {
 public:
  Status exchange(const void* mine, size_t length, void* values) override {
    if (length != 0) std::memcpy(values, mine, length);
    return TW_OK;
  }
};

/// Launchers that give a rank and no way that is known here. To go on would make as many groups of one.
Status refuse_unknown() {
  constexpr struct {
    const char *rank, *size, *what, *lacks, *remedy;
  } kKnown[] = {
      {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "srun", "PMIx server", "start it with srun --mpi=pmix"},
      {"PMI_RANK", "PMI_SIZE", "a launcher that speaks PMI (MPICH's mpiexec)", "PMIx server",
       "attach to its MPI (thalweg/mpi.hpp)"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun without PMIx", "PMIx server",
       "attach to its MPI (thalweg/mpi.hpp)"},
      {"RANK", "WORLD_SIZE", "a launcher like torchrun", "address", "set MASTER_ADDR and MASTER_PORT"},
  };
  for (const auto& one : kKnown) {
    const char* size = variable(one.size);
    if (variable(one.rank) == nullptr || size == nullptr || std::atoi(size) < 2) continue;
    return fail(TW_ERR_UNSUPPORTED,
                "%s started %s processes (%s), but gives no %s by which they find each other: %s, or give all of them "
                "THALWEG_STORE, THALWEG_RANK and THALWEG_SIZE",
                one.what, size, one.size, one.lacks, one.remedy);
  }
  return TW_OK;
}

}  // namespace

const char* variable(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != 0 ? text : nullptr;
}

Status read_place(uint32_t given, const char* name, uint32_t otherwise, uint32_t* out) {
  const char* text = variable(name);
  *out = given == TW_STORE_ENVIRONMENT ? otherwise : given;
  if (given != TW_STORE_ENVIRONMENT || text == nullptr) return TW_OK;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, *out);
  if (error == std::errc() && stop == end && *out != TW_STORE_ENVIRONMENT) return TW_OK;
  return fail(TW_ERR_INVALID, "%s is \"%s\", which is no rank or count: set a number, or give it in the options", name, text);
}

Status find_launcher(const LaunchOptions& options, std::unique_ptr<Launcher>* out) {
  for (const auto find : {find_own, find_torchrun, find_pmix}) {
    if (const Status status = find(options, out); is_error(status) || *out != nullptr) return status;
  }
  if (const Status status = refuse_unknown(); is_error(status)) return status;
  *out = std::make_unique<Alone>();
  return TW_OK;
}

}  // namespace thalweg::impl
