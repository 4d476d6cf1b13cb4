// SPDX-License-Identifier: Apache-2.0
// kv_blocks: rank 1 owns a pool of key-value cache blocks. Rank 0 writes finished blocks straight into it, one put with
// signal for each layer; rank 1 waits for the signal and reads its own memory.
#include <array>
#include <vector>

#include "pair.hpp"

namespace {

constexpr size_t kBlock = 16 * 1024, kPool = 64, kLayers = 12, kBlocksPerLayer = 5;
constexpr uint64_t kAllRead = 1;

unsigned char byte_of(size_t layer, size_t block, size_t i) {
  return static_cast<unsigned char>(layer * 37 + block * 11 + i * 7 + (i >> 8));
}
size_t slot_of(size_t layer, size_t block) { return (layer * kBlocksPerLayer + block) * 29 % kPool; }

/// Scattered blocks of the pool, as the table of the receiving cache names them.
thalweg::Layout blocks_of(size_t layer) {
  std::array<tw_piece, kBlocksPerLayer> pieces;
  for (size_t b = 0; b < kBlocksPerLayer; ++b) pieces[b] = {slot_of(layer, b) * kBlock, kBlock};
  return thalweg::Layout::pieces(pieces);
}

void write_blocks(examples::Pair& pair) {
  const thalweg::RemoteMemory pool = pair.endpoint.import_memory(pair.start.exchange(""));
  const thalweg::RemoteSignal ready = pair.endpoint.import_signal(pair.start.exchange(""));
  std::vector<std::vector<unsigned char>> fresh(kLayers, std::vector<unsigned char>(kBlocksPerLayer * kBlock));
  std::vector<thalweg::Layout> where;
  std::vector<thalweg::Request> requests(kLayers);
  for (size_t layer = 0; layer < kLayers; ++layer) {
    for (size_t i = 0; i < fresh[layer].size(); ++i) fresh[layer][i] = byte_of(layer, i / kBlock, i % kBlock);
    where.push_back(blocks_of(layer));
    const auto put = thalweg::OpOptions().remote_layout(where.back()).signal(ready, 1, TW_SIGNAL_ADD);
    examples::must(pair.endpoint.put(fresh[layer], pool, 0, requests[layer], put));
  }
  for (thalweg::Request& request : requests) examples::must(request.wait());
  pair.receive({}, kAllRead);
}

void read_blocks(examples::Pair& pair) {
  const thalweg::Memory pool = pair.context.allocate(kPool * kBlock);
  const thalweg::Signal ready = pair.worker.signal(TW_SIGNAL_ADD);
  pair.start.exchange(pool.key());
  pair.start.exchange(ready.key());
  examples::must(ready.wait(kLayers, TW_COMPARE_GE, std::chrono::seconds(30)));
  const auto bytes = pool.as<unsigned char>();
  for (size_t layer = 0; layer < kLayers; ++layer)
    for (size_t b = 0; b < kBlocksPerLayer; ++b)
      for (size_t i = 0; i < kBlock; ++i)
        examples::expect(bytes[slot_of(layer, b) * kBlock + i] == byte_of(layer, b, i), "kv_blocks: a wrong byte arrived");
  examples::must(pair.endpoint.send_blocking({}, kAllRead));
  std::printf("kv_blocks: %zu layers of %zu blocks, %zu KiB, put over %s, every byte right\n", kLayers, kBlocksPerLayer,
              kLayers * kBlocksPerLayer * kBlock / 1024, pair.endpoint.transport().data());
}

}  // namespace

int main(int, char** argv) {
  return examples::run(argv, [](examples::Pair& pair) { pair.rank == 0 ? write_blocks(pair) : read_blocks(pair); });
}
