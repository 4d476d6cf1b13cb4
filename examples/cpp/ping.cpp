// SPDX-License-Identifier: Apache-2.0
// ping: two processes send a message back and forth and count its hops.
#include <array>

#include "pair.hpp"

int main(int, char** argv) {
  return examples::run(argv, [](examples::Pair& pair) {
    constexpr unsigned long rounds = 10000, tag = 1;
    std::array<unsigned long, 1> hops{};
    const auto start = std::chrono::steady_clock::now();
    for (unsigned long i = 0; i < rounds; ++i) {
      if (pair.rank == 0) {
        ++hops[0];
        examples::must(pair.endpoint.send_blocking(hops, tag));
        pair.receive(hops, tag);
      } else {
        pair.receive(hops, tag);
        ++hops[0];
        examples::must(pair.endpoint.send_blocking(hops, tag));
      }
    }
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    examples::expect(hops[0] == 2 * rounds, "a hop was lost");
    if (pair.rank == 0) {
      std::printf("ping: %lu hops over %s, %.3f us each\n", hops[0], pair.endpoint.transport().data(),
                  time.count() / static_cast<double>(hops[0]));
    }
  });
}
