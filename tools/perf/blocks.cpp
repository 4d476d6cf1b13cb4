// SPDX-License-Identifier: Apache-2.0
// Put of many equal blocks chosen by index, in one operation. The blocks are taken in random order, so none is its
// neighbour's neighbour on the wire as well. With small blocks the time of one is what the library costs.
#include <algorithm>
#include <numeric>
#include <random>

#include "rounds.hpp"
#include "tests.hpp"

namespace perf {
namespace {

constexpr size_t kBytes = size_t{256} << 20, kMost = 65536;  // of one operation

/// One side's blocks, and the counterpart's.
struct BlockSides {
  BlockSides(Pair& pair, const Buffers& pool, size_t count, size_t size) {
    const tw_block_range range = {pool.memory(), nullptr, 0, size, count};
    must(tw_blocks_create(pair.context, &range, 1, size, &local), "tw_blocks_create");
    char mine[512], theirs[512];
    size_t length = sizeof mine;
    must(tw_blocks_export(local, 0, mine, &length), "tw_blocks_export");
    const tw_request r = pair.post_receive(theirs, length, kControlTag);
    pair.send(mine, length, kControlTag);
    pair.wait(r);
    must(tw_blocks_import(pair.endpoint, theirs, length, &remote), "tw_blocks_import");
  }
  ~BlockSides() {
    tw_remote_blocks_release(remote);
    tw_blocks_destroy(local);
  }
  BlockSides(const BlockSides&) = delete;
  BlockSides& operator=(const BlockSides&) = delete;
  tw_blocks* local = nullptr;
  tw_remote_blocks* remote = nullptr;
};

}  // namespace

Sample blocks_window(Pair& p, const Order& order) {
  Sample s;
  const size_t n = std::clamp<size_t>(kBytes / order.size, 2, kMost);
  Order whole = order;  // one pool of n blocks
  whole.size = n * order.size;
  whole.layout = {};
  Buffers pool(p.context, whole, 1, p.rank);
  Rounds rounds = one_way(order, p.rank, pool, 1);
  std::vector<uint64_t> chosen(n);
  std::iota(chosen.begin(), chosen.end(), uint64_t{0});
  std::shuffle(chosen.begin(), chosen.end(), std::mt19937_64(order.seed));
  s.route = std::string(tw_endpoint_transport(p.endpoint)) + " put_blocks";
  {
    BlockSides sides(p, pool, n, order.size);
    p.sync();
    tw_blocks_options o = TW_BLOCKS_OPTIONS_INIT;
    o.flags = TW_OP_REMOTE;
    s.seconds = time_one_sided(p, order, rounds, [&] {
      rounds.before_send();
      tw_request r = TW_REQUEST_NONE;
      must(tw_put_blocks(p.endpoint, sides.local, chosen.data(), sides.remote, chosen.data(), n, &o, &r), "tw_put_blocks");
      p.wait(r);
    });
    p.sync();
  }
  s.messages = n;
  s.verified = rounds.verified();
  return s;
}

}  // namespace perf
