// SPDX-License-Identifier: Apache-2.0
// ring: however many processes there are, whatever started them ("thalweg run -n 4 ./example_cpp_ring", mpirun, torchrun,
// nothing): one line makes them a group. A number goes around, and every rank adds its own.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <thalweg/thalweg.hpp>

int main() try {
  constexpr uint64_t kTag = 1;
  const auto world = thalweg::init();
  const uint32_t rank = world.rank(), size = world.size();
  uint64_t sum = 0;
  const auto receive = [&] { thalweg::check(world.worker().recv_blocking(std::span(&sum, 1), kTag)); };
  if (rank != 0) receive();
  sum += rank + 1;
  if (size > 1) thalweg::check(tw_send_blocking(world.endpoint((rank + 1) % size), &sum, sizeof sum, kTag));
  if (rank == 0) {
    if (size > 1) receive();
    if (sum != uint64_t{size} * (size + 1) / 2) throw thalweg::Error(TW_ERR_PROTOCOL, "the sum is wrong");
    std::printf("ring: %u ranks, each added its number: %llu\n", size, static_cast<unsigned long long>(sum));
  }
  world.barrier();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "ring: %s\n", error.what());
  return 1;
}
