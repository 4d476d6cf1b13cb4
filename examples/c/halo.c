/* SPDX-License-Identifier: Apache-2.0
 * halo: a field cut down the middle, each half in one process with a column of its neighbour's cells beside it (the halo).
 * Columns of a row-major array are strided: both sides say so with a layout, and nobody packs a buffer. */
#include "pair.h"

enum { ROWS = 300, COLUMNS = 200, STEPS = 25, TAG = 2 };
/* Columns 0 and COLUMNS + 1 are halo; only one of them has a neighbour, the other stays the border's value. */
static double field[ROWS][COLUMNS + 2];

static double cell(int rank, int row, int column, int step) { return rank * 1e6 + row * 1e3 + column + step * 0.5; }

/* The column that this rank gives away, or the one it fills with the neighbour's. */
static tw_layout *column_layout(size_t column) {
  uint64_t shape[2] = {ROWS, COLUMNS + 2}, extent[2] = {ROWS, 1}, start[2] = {0, column};
  tw_layout *layout;
  must(tw_layout_subarray(2, shape, extent, start, sizeof(double), TW_ORDER_C, &layout), "tw_layout_subarray");
  return layout;
}

static void exchange(pair *p, const tw_layout *edge, const tw_layout *halo) {
  tw_op_options send = TW_OP_OPTIONS_INIT, receive = TW_OP_OPTIONS_INIT;
  tw_request requests[2] = {TW_REQUEST_NONE, TW_REQUEST_NONE};
  send.layout = edge;
  receive.layout = halo;
  receive.source = p->endpoint; /* a receive from anybody would go on waiting when it is gone */
  must(tw_recv(p->worker, field, 0, TAG, UINT64_MAX, &receive, &requests[0]), "tw_recv");
  must(tw_send(p->endpoint, field, 0, TAG, &send, &requests[1]), "tw_send");
  must(tw_request_finish_all(requests, 2), "tw_request_finish_all");
}

int main(int argc, char **argv) {
  pair p;
  (void)argc;
  pair_open(&p, argv);
  int edge_column = p.rank == 0 ? COLUMNS : 1, halo_column = p.rank == 0 ? COLUMNS + 1 : 0;
  int border_column = p.rank == 0 ? 0 : COLUMNS + 1, their_edge = p.rank == 0 ? 1 : COLUMNS;
  tw_layout *edge = column_layout((size_t)edge_column), *halo = column_layout((size_t)halo_column);
  for (int row = 0; row < ROWS; row++) field[row][border_column] = -1;
  for (int step = 0; step < STEPS; step++) {
    for (int row = 0; row < ROWS; row++)
      for (int column = 1; column <= COLUMNS; column++) field[row][column] = cell(p.rank, row, column, step);
    exchange(&p, edge, halo);
    for (int row = 0; row < ROWS; row++) {
      if (field[row][halo_column] != cell(!p.rank, row, their_edge, step)) fail("halo", "a wrong cell arrived");
      if (field[row][border_column] != -1) fail("halo", "the border was touched");
      for (int column = 1; column <= COLUMNS; column++)
        if (field[row][column] != cell(p.rank, row, column, step)) fail("halo", "an inner cell was touched");
    }
  }
  if (p.rank == 0)
    printf("halo: %d exchanges of a %zu-byte column over %s, every cell right\n", STEPS, tw_layout_bytes(edge),
           tw_endpoint_transport(p.endpoint));
  tw_layout_destroy(edge);
  tw_layout_destroy(halo);
  return pair_close(&p);
}
