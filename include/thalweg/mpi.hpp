// SPDX-License-Identifier: Apache-2.0
// mpi.hpp: Thalweg beside an MPI, in the same processes. Header only: include it where <mpi.h> is found, and link both.
//
//   MPI_Init(&argc, &argv);
//   auto peers = thalweg::attach(MPI_COMM_WORLD);   // all ranks
//   peers[1].send_blocking(std::span(data), tag);
//   auto window = peers.window(memory);             // all ranks
//
// The job key, addresses and windows' keys travel over MPI; nothing else does, and MPI goes on as before.
#pragma once
#include <mpi.h>
#include <thalweg/thalweg.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace thalweg {

/// A context, a worker and an endpoint to every rank of a communicator, this one included. It lives until destroyed, also behind
/// MPI_Finalize; what uses the worker must end before. Threads: as the worker's; the collective ones also call MPI.
class [[nodiscard]] MpiPeers {
 public:
  int rank() const noexcept { return state_->rank; }
  int size() const noexcept { return static_cast<int>(state_->endpoints.size()); }
  const Context& context() const noexcept { return state_->context; }
  const Worker& worker() const noexcept { return state_->worker; }
  /// Converts to tw_endpoint* for the C functions.
  const Endpoint& operator[](int rank) const { return state_->endpoints.at(static_cast<size_t>(rank)); }
  /// By rank, null for this one: as tw_window_create wants them.
  std::vector<tw_endpoint*> handles() const {
    std::vector<tw_endpoint*> all;
    for (const Endpoint& endpoint : state_->endpoints) all.push_back(endpoint.get());
    all[static_cast<size_t>(rank())] = nullptr;
    return all;
  }
  /// Collective: symmetric memory over all ranks (thalweg/windows.h). Ends before these peers, and before MPI_Finalize.
  Window window(const Memory& memory, const tw_window_options& options = WindowOptions()) const {
    return Window(worker(), handles(), static_cast<uint32_t>(rank()), memory, exchange, state_.get(), options);
  }
  /// Collective: the ranks as a group (thalweg/groups.h), whose messages travel over these connections. Ends before these peers.
  Group group(const tw_group_options& options = GroupOptions()) const {
    return Group(worker(), handles(), static_cast<uint32_t>(rank()), exchange, state_.get(), options);
  }
  /// A tw_exchange whose argument is exchange_argument().
  [[nodiscard]] static tw_status exchange(void* arg, const void* mine, size_t length, void* values) noexcept {
    const auto bytes = static_cast<int>(length);
    const int done = MPI_Allgather(mine, bytes, MPI_BYTE, values, bytes, MPI_BYTE, *static_cast<State*>(arg)->communicator);
    return done == MPI_SUCCESS ? TW_OK : TW_ERR_IO;
  }
  /// Delivers what is queued, then ends the connections; the destructor ends them by force. For which the peers must progress.
  void close() {
    for (Endpoint& endpoint : state_->endpoints) (void)endpoint.close();
  }
  void* exchange_argument() const noexcept { return state_.get(); }

 private:
  friend MpiPeers attach(MPI_Comm, const tw_context_options&, const tw_worker_options&);
  /// A communicator of its own, so that its messages meet none of the program's.
  struct Communicator {
    explicit Communicator(MPI_Comm of) { MPI_Comm_dup(of, &handle); }
    ~Communicator() {
      int over = 0;
      MPI_Finalized(&over);
      if (over == 0) MPI_Comm_free(&handle);
    }
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;
    operator MPI_Comm() const { return handle; }
    MPI_Comm handle = MPI_COMM_NULL;
  };
  struct State {
    std::shared_ptr<Communicator> communicator;
    int rank;
    Context context;
    Worker worker;
    std::vector<Endpoint> endpoints;
  };
  /// What each rank tells the others: an address, or that it has none.
  struct Hello {
    int32_t status;
    uint32_t length;
  };

  explicit MpiPeers(std::unique_ptr<State> state) : state_(std::move(state)) {}
  /// Tells all ranks how far this one came, and learns the same of them. Throws when one has failed.
  static std::vector<Hello> meet(MPI_Comm communicator, const Hello& mine, const std::exception_ptr& failed) {
    int size = 0;
    MPI_Comm_size(communicator, &size);
    std::vector<Hello> all(static_cast<size_t>(size));
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, communicator);
    if (failed) std::rethrow_exception(failed);
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].status != TW_OK)
        throw Error(all[i].status, "rank " + std::to_string(i) + " cannot attach: its own error text says why");
    }
    return all;
  }
  /// Every rank's address, by rank; all have one, as long as they said.
  static std::vector<std::string> gather(MPI_Comm communicator, const std::vector<Hello>& all, const std::string& mine) {
    std::vector<int> lengths, starts;
    int total = 0;
    for (const Hello& one : all) {
      lengths.push_back(static_cast<int>(one.length));
      starts.push_back(total);
      total += lengths.back();
    }
    std::string together(static_cast<size_t>(total), '\0');
    MPI_Allgatherv(mine.data(), static_cast<int>(mine.size()), MPI_CHAR, together.data(), lengths.data(), starts.data(),
                   MPI_CHAR, communicator);
    std::vector<std::string> addresses;
    for (size_t i = 0; i < all.size(); ++i) addresses.push_back(together.substr(static_cast<size_t>(starts[i]), all[i].length));
    return addresses;
  }
  void connect_all(const std::vector<std::string>& addresses) {
    for (const std::string& address : addresses) state_->endpoints.push_back(state_->worker.connect(address));
    for (const Endpoint& endpoint : state_->endpoints) endpoint.wait(std::chrono::seconds(30));
  }

  std::unique_ptr<State> state_;
};

/// Collective over the communicator, after MPI_Init: joins its ranks by Thalweg. The job key is made by rank 0, unless the options
/// bring one, or a file of it (the same at all ranks). Returns when every rank is connected to every other. Throws at all ranks
/// when one of them fails. MPI's threads: called from one that may call MPI.
inline MpiPeers attach(MPI_Comm communicator, const tw_context_options& context_options = ContextOptions(),
                       const tw_worker_options& worker_options = WorkerOptions()) {
  const auto own = std::make_shared<MpiPeers::Communicator>(communicator);
  int rank = 0;
  MPI_Comm_rank(*own, &rank);
  MpiPeers::Hello mine{};
  std::exception_ptr failed;
  const auto attempt = [&](auto&& step) {  // all ranks call MPI as often, whatever one of them throws
    if (failed) return;
    try {
      step();
    } catch (const Error& error) {
      mine.status = error.status();
      failed = std::current_exception();
    } catch (...) {
      mine.status = TW_ERR_NO_MEMORY;
      failed = std::current_exception();
    }
  };
  std::array<unsigned char, 32> key{};
  attempt([&] {
    if (rank != 0) return;
    std::random_device random;
    std::generate(key.begin(), key.end(), [&] { return static_cast<unsigned char>(random()); });
  });
  MPI_Bcast(key.data(), static_cast<int>(key.size()), MPI_BYTE, 0, *own);
  tw_context_options options = context_options;
  if (options.job_key == nullptr && options.key_file == nullptr) {
    options.job_key = key.data();
    options.job_key_length = key.size();
  }
  std::unique_ptr<MpiPeers::State> state;
  std::string address;
  attempt([&] {
    Context context(options);
    Worker worker(context, worker_options);
    address = worker.address();
    mine.length = static_cast<uint32_t>(address.size());
    state.reset(new MpiPeers::State{own, rank, std::move(context), std::move(worker), {}});
  });
  const std::vector<MpiPeers::Hello> all = MpiPeers::meet(*own, mine, failed);
  MpiPeers peers(std::move(state));
  const std::vector<std::string> addresses = MpiPeers::gather(*own, all, address);
  attempt([&] { peers.connect_all(addresses); });
  MpiPeers::meet(*own, mine, failed);
  return peers;
}

}  // namespace thalweg
