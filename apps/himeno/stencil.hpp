// SPDX-License-Identifier: Apache-2.0
// One point of Himeno's 19-point Jacobi iteration, the same text for CPU and GPU; 34 operations. Compiled without fused multiply-add in
// both, so that every decomposition, trigger and processor computes the same bits.
#pragma once

#if defined(__CUDACC__)
#define HIMENO_BOTH __host__ __device__
#else
#define HIMENO_BOTH
#endif

namespace himeno {

using Index = long long;

/// A rank's arrays, each [i][j][k] with a halo one wide: `stride_i`, `stride_j` elements to the next i, j.
struct Arrays {
  const float *a[4], *b[3], *c[3], *wrk1, *bnd;
  Index inside[3];  // own points
  Index stride_i, stride_j;
};

/// How much the equation is violated at point `at`; p += omega * residual is the iteration.
HIMENO_BOTH inline float residual(const Arrays& g, const float* p, Index at) {
  const Index i = g.stride_i, j = g.stride_j, k = 1;
  const float s = g.a[0][at] * p[at + i] + g.a[1][at] * p[at + j] + g.a[2][at] * p[at + k] +
                  g.b[0][at] * (p[at + i + j] - p[at + i - j] - p[at - i + j] + p[at - i - j]) +
                  g.b[1][at] * (p[at + j + k] - p[at + j - k] - p[at - j + k] + p[at - j - k]) +
                  g.b[2][at] * (p[at + i + k] - p[at + i - k] - p[at - i + k] + p[at - i - k]) + g.c[0][at] * p[at - i] +
                  g.c[1][at] * p[at - j] + g.c[2][at] * p[at - k] + g.wrk1[at];
  return (s * g.a[3][at] - p[at]) * g.bnd[at];
}

constexpr float kOmega = 0.8f;
constexpr double kOperations = 34;  // a point, as the benchmark counts

}  // namespace himeno
