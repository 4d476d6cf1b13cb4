// SPDX-License-Identifier: Apache-2.0
// One rank of a test of thalweg/mpi.hpp: messages of MPI and of Thalweg go round the same ring in turns and at once, a
// window lies over all ranks, and a failure at one rank is reported at every one. Exit code 0 at every rank, or a line that
// says what was wrong.
#include <thalweg/mpi.hpp>

#include <cstdio>

namespace {

using Payload = std::vector<unsigned char>;

void expect(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "mpi test: %s (%s)\n", what, tw_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

Payload random_bytes(size_t length) {
  static std::mt19937_64 generator(std::random_device{}());
  Payload bytes(length);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(generator());
  return bytes;
}

/// Every rank's sum of what it sent by one way is what its neighbour has by the other.
void go_round(const thalweg::MpiPeers& peers, size_t length) {
  const int size = peers.size(), next = (peers.rank() + 1) % size, before = (peers.rank() + size - 1) % size;
  const Payload mine = random_bytes(length);
  constexpr size_t kGuard = 16;
  Payload by_thalweg(length + 2 * kGuard, 0x5a), by_mpi(length + 2 * kGuard, 0xa5);
  thalweg::Request receive, send;
  MPI_Request requests[2];
  MPI_Irecv(by_mpi.data() + kGuard, static_cast<int>(length), MPI_BYTE, before, 7, MPI_COMM_WORLD, &requests[0]);
  expect(peers.worker().recv({by_thalweg.data() + kGuard, length}, 7, receive) >= 0, "a receive is refused");
  MPI_Isend(mine.data(), static_cast<int>(length), MPI_BYTE, next, 7, MPI_COMM_WORLD, &requests[1]);
  expect(peers[next].send(mine, 7, send) >= 0, "a send is refused");
  int over = 0;
  while (over == 0 || !receive.done() || !send.done()) {
    peers.worker().progress();
    if (over == 0) MPI_Testall(2, requests, &over, MPI_STATUSES_IGNORE);
  }
  expect(receive.test() == TW_OK && send.test() == TW_OK, "a message has failed");
  expect(receive.info().length == length && receive.info().endpoint == peers[before].get(),
         "a message of another rank or length");
  expect(std::equal(by_mpi.begin() + kGuard, by_mpi.end() - kGuard, by_thalweg.begin() + kGuard), "the two ways disagree");
  for (size_t i = 0; i < kGuard; ++i) {
    expect(by_thalweg[i] == 0x5a && by_thalweg[kGuard + length + i] == 0x5a, "bytes beside the buffer were written");
    expect(by_mpi[i] == 0xa5 && by_mpi[kGuard + length + i] == 0xa5, "bytes beside MPI's buffer were written");
  }
}

/// Each rank stores into everybody's part, and MPI tells what must be there.
void share_window(const thalweg::MpiPeers& peers) {
  constexpr size_t kPart = 1'003;
  const int size = peers.size();
  const thalweg::Memory memory = peers.context().allocate(kPart * static_cast<size_t>(size));
  thalweg::Window window = peers.window(memory);
  const Payload mine = random_bytes(kPart);
  Payload all(kPart * static_cast<size_t>(size));
  MPI_Allgather(mine.data(), kPart, MPI_BYTE, all.data(), kPart, MPI_BYTE, MPI_COMM_WORLD);
  const thalweg::device::Window bound = window.bind("host");
  for (int i = 0; i < size; ++i) std::memcpy(bound.bases[i] + static_cast<size_t>(peers.rank()) * kPart, mine.data(), kPart);
  MPI_Barrier(MPI_COMM_WORLD);
  expect(std::memcmp(memory.data(), all.data(), all.size()) == 0, "the window holds something else");
  window.check();
  expect(window.destroy() == TW_OK, "the window does not end");
}

/// A group of the same ranks, and its halves.
void make_group(const thalweg::MpiPeers& peers) {
  const thalweg::Group group = peers.group();
  expect(static_cast<int>(group.rank()) == peers.rank() && static_cast<int>(group.size()) == peers.size(),
         "another rank in the group");
  group.barrier();
  const thalweg::Group half = group.split(group.rank() % 2, 100 - group.rank());
  expect(half.size() == (group.size() + 1 - group.rank() % 2) / 2, "a half of another size");
  half.barrier();
}

/// A key that is too short at the last rank, or a file of it that is not there, is an error at all of them.
void fail_together(int rank, int size, bool by_file) {
  thalweg::ContextOptions options;
  if (rank == size - 1 && by_file) options.key_file = "/proc/self/no folder/key";
  if (rank == size - 1 && !by_file) {
    options.job_key = "short";
    options.job_key_length = 5;
  }
  bool refused = false;
  try {
    thalweg::attach(MPI_COMM_WORLD, options);
  } catch (const thalweg::Error& error) {
    refused = rank == size - 1 || std::string(error.what()).find("rank " + std::to_string(size - 1)) != std::string::npos;
  }
  expect(refused, "a rank has attached though another one could not");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  try {
    fail_together(rank, size, false);
    fail_together(rank, size, true);
    auto peers = thalweg::attach(MPI_COMM_WORLD);
    expect(peers.rank() == rank && peers.size() == size, "another rank than MPI's");
    expect(size == 1 || peers[(rank + 1) % size].transport() == "shm", "ranks of one machine are not connected by shm");
    for (const size_t length : {size_t{1}, size_t{4'097}, size_t{3'000'001}}) go_round(peers, length);
    share_window(peers);
    make_group(peers);
    auto again = thalweg::attach(MPI_COMM_WORLD);  // beside the first
    go_round(again, 12'345);
    go_round(peers, 12'345);
    MPI_Barrier(MPI_COMM_WORLD);
  } catch (const std::exception& error) {
    expect(false, error.what());
  }
  MPI_Finalize();
  return 0;
}
