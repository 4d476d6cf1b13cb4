/* SPDX-License-Identifier: Apache-2.0
 * gradient: training that is spread over however many processes there are ("thalweg run -n 4 ./example_c_gradient"). Each rank has
 * data of its own for the line y = 3 x - 1; an allreduce averages the gradients, so that all ranks keep the same weights. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <thalweg/thalweg.h>

enum { SAMPLES = 64, STEPS = 400 };

static void must(tw_status status, const char *what) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", what, *tw_last_error() ? tw_last_error() : tw_status_name(status));
  exit(1);
}

int main(void) {
  tw_group *world;
  must(tw_init(NULL, &world), "tw_init");
  unsigned rank = tw_group_rank(world), size = tw_group_size(world);
  double weights[2] = {0, 0};
  for (int step = 0; step < STEPS; ++step) {
    double gradient[2] = {0, 0};
    for (int i = 0; i < SAMPLES; ++i) {
      double x = (double)(i * (int)size + (int)rank) / (SAMPLES * (int)size) * 2 - 1;
      double wrong = weights[0] * x + weights[1] - (3 * x - 1);
      gradient[0] += 2 * wrong * x / SAMPLES;
      gradient[1] += 2 * wrong / SAMPLES;
    }
    must(tw_allreduce(world, TW_IN_PLACE, gradient, 2, TW_TYPE_FLOAT64, TW_REDUCE_AVERAGE, NULL, NULL), "tw_allreduce");
    weights[0] -= 0.3 * gradient[0];
    weights[1] -= 0.3 * gradient[1];
  }
  if (fabs(weights[0] - 3) > 1e-6 || fabs(weights[1] + 1) > 1e-6) must(TW_ERR_PROTOCOL, "the line is wrong");
  if (rank == 0) printf("gradient: %u ranks found y = %.3f x %+.3f\n", size, weights[0], weights[1]);
  must(tw_barrier(world, NULL, NULL), "tw_barrier");
  must(tw_group_destroy(world), "tw_group_destroy");
  return 0;
}
