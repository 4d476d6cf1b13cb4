/* SPDX-License-Identifier: Apache-2.0
 * kv_blocks: rank 1 owns a pool of key-value cache blocks. Rank 0 writes finished blocks straight into it, one put with
 * signal for each layer; rank 1 sleeps on no message: it sees the signal and reads its own memory. */
#include "pair.h"

enum { BLOCK = 16 * 1024, POOL = 64, LAYERS = 12, BLOCKS_PER_LAYER = 5, ALL_READ = 1 };

static unsigned char byte_of(int layer, int block, int i) {
  return (unsigned char)(layer * 37 + block * 11 + i * 7 + (i >> 8));
}
static int slot_of(int layer, int block) { return (layer * BLOCKS_PER_LAYER + block) * 29 % POOL; }

/* Scattered blocks of the pool, as the table of the receiving cache names them. */
static tw_layout *blocks_of(int layer) {
  tw_piece pieces[BLOCKS_PER_LAYER];
  tw_layout *layout;
  for (int b = 0; b < BLOCKS_PER_LAYER; b++) pieces[b] = (tw_piece){(uint64_t)slot_of(layer, b) * BLOCK, BLOCK};
  must(tw_layout_pieces(pieces, BLOCKS_PER_LAYER, &layout), "tw_layout_pieces");
  return layout;
}

static void write_blocks(pair *p, const void *pool_key, size_t pool_length, const void *ready_key, size_t ready_length) {
  static unsigned char fresh[LAYERS][BLOCKS_PER_LAYER][BLOCK];
  tw_request requests[LAYERS];
  tw_layout *where[LAYERS];
  tw_remote_memory *pool;
  tw_remote_signal *ready;
  must(tw_memory_import(p->endpoint, pool_key, pool_length, &pool), "tw_memory_import");
  must(tw_signal_import(p->endpoint, ready_key, ready_length, &ready), "tw_signal_import");
  for (int layer = 0; layer < LAYERS; layer++) {
    for (int b = 0; b < BLOCKS_PER_LAYER; b++)
      for (int i = 0; i < BLOCK; i++) fresh[layer][b][i] = byte_of(layer, b, i);
    tw_op_options put = TW_OP_OPTIONS_INIT;
    put.remote_layout = where[layer] = blocks_of(layer);
    put.signal = ready;
    put.signal_op = TW_SIGNAL_ADD;
    put.signal_value = 1;
    must(tw_put(p->endpoint, fresh[layer], sizeof fresh[layer], pool, 0, &put, &requests[layer]), "tw_put");
  }
  must(tw_request_finish_all(requests, LAYERS), "tw_request_finish_all");
  for (int layer = 0; layer < LAYERS; layer++) tw_layout_destroy(where[layer]);
  pair_receive(p, NULL, 0, ALL_READ);
  tw_remote_signal_release(ready);
  tw_remote_memory_release(pool);
}

static void check_blocks(const unsigned char *pool) {
  for (int layer = 0; layer < LAYERS; layer++)
    for (int b = 0; b < BLOCKS_PER_LAYER; b++)
      for (int i = 0; i < BLOCK; i++)
        if (pool[(size_t)slot_of(layer, b) * BLOCK + (size_t)i] != byte_of(layer, b, i))
          fail("kv_blocks", "a wrong byte arrived");
}

int main(int argc, char **argv) {
  pair p;
  void *pool_key = NULL, *ready_key = NULL, *their_pool, *their_ready;
  size_t pool_length = 0, ready_length = 0, their_pool_length, their_ready_length;
  (void)argc;
  pair_open(&p, argv);
  tw_memory *pool = NULL;
  tw_signal *ready = NULL;
  if (p.rank == 1) {
    tw_signal_options kind = TW_SIGNAL_OPTIONS_INIT;
    kind.kind = TW_SIGNAL_ADD;
    must(tw_memory_allocate(p.context, (size_t)POOL * BLOCK, NULL, &pool), "tw_memory_allocate");
    must(tw_signal_create(p.worker, &kind, &ready), "tw_signal_create");
    must(tw_memory_export(pool, NULL, &pool_length), "tw_memory_export"); /* how much the keys take */
    must(tw_signal_export(ready, NULL, &ready_length), "tw_signal_export");
    pool_key = malloc(pool_length);
    ready_key = malloc(ready_length);
    if (pool_key == NULL || ready_key == NULL) fail("malloc", "no memory");
    must(tw_memory_export(pool, pool_key, &pool_length), "tw_memory_export");
    must(tw_signal_export(ready, ready_key, &ready_length), "tw_signal_export");
  }
  their_pool = pair_exchange(&p, pool_key, pool_length, &their_pool_length);
  their_ready = pair_exchange(&p, ready_key, ready_length, &their_ready_length);
  if (p.rank == 0) {
    write_blocks(&p, their_pool, their_pool_length, their_ready, their_ready_length);
  } else {
    must(tw_signal_wait(ready, LAYERS, TW_COMPARE_GE, 30000000000ull), "tw_signal_wait");
    check_blocks(tw_memory_address(pool));
    must(tw_send_blocking(p.endpoint, NULL, 0, ALL_READ), "tw_send_blocking");
    printf("kv_blocks: %d layers of %d blocks, %d KiB, put over %s, every byte right\n", LAYERS, BLOCKS_PER_LAYER,
           LAYERS * BLOCKS_PER_LAYER * BLOCK / 1024, tw_endpoint_transport(p.endpoint));
  }
  pair_meet(&p); /* rank 0 has let go of the pool */
  free(pool_key);
  free(ready_key);
  free(their_pool);
  free(their_ready);
  if (ready) must(tw_signal_destroy(ready), "tw_signal_destroy");
  if (pool) must(tw_memory_release(pool), "tw_memory_release");
  return pair_close(&p);
}
