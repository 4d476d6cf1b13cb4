// SPDX-License-Identifier: Apache-2.0
// Reductions by the C interface: what is refused, and that every trigger does the same. Types and operations: tests/gpu/reduce_test.cpp.
#include <cmath>

#include "pair.hpp"

namespace thalweg::tests {
namespace {

class Reduce : public Pair {};
INSTANTIATE_TEST_SUITE_P(Ways, Reduce, testing::ValuesIn(kWays), [](const auto& info) { return info.param.name; });

constexpr size_t kCount = 1003, kBytes = kCount * sizeof(float);

Bytes random_floats() {
  Bytes bytes(kBytes);
  static std::mt19937 random(std::random_device{}());
  for (size_t i = 0; i < kCount; ++i) {
    const float value = std::uniform_real_distribution<float>(-1, 1)(random);
    std::memcpy(&bytes[i * sizeof value], &value, sizeof value);
  }
  return bytes;
}

Bytes sum_of(const std::vector<Bytes>& sources) {
  Bytes out(kBytes);
  for (size_t i = 0; i < kCount; ++i) {
    float sum = 0, next = 0;
    std::memcpy(&sum, &sources[0][i * sizeof sum], sizeof sum);
    for (size_t s = 1; s < sources.size(); ++s) {
      std::memcpy(&next, &sources[s][i * sizeof next], sizeof next);
      sum += next;
    }
    std::memcpy(&out[i * sizeof sum], &sum, sizeof sum);
  }
  return out;
}

TEST_P(Reduce, EveryTriggerGivesTheSum) {
  unsigned char *x = memory(a, kBytes), *y = memory(a, kBytes), *to = memory(a, kBytes);
  const tw_source sources[] = {{x, nullptr, 0}, {y, nullptr, 0}, {to, nullptr, 0}};
  tw_plan* const prepared = plan(a);
  ASSERT_EQ(tw_plan_reduce(prepared, to, sources, 3, kCount, TW_TYPE_FLOAT32, TW_REDUCE_SUM, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_prepare(prepared, kLong), TW_OK) << tw_last_error();
  EXPECT_NE(explain(prepared).find("source 2"), std::string::npos) << explain(prepared);
  tw_queue* const on = queue(a);
  for (int turn = 0; turn < 6; ++turn) {
    const std::vector<Bytes> data = {random_floats(), random_floats(), random_floats()};
    a.store(x, data[0]);
    a.store(y, data[1]);
    a.store(to, data[2]);
    if (turn % 3 == 0) {
      ASSERT_EQ(tw_plan_run(prepared, kLong), TW_OK) << tw_last_error();
    } else if (turn % 3 == 1) {
      ASSERT_EQ(tw_plan_trigger(prepared, on), TW_OK) << tw_last_error();
    } else {
      ASSERT_EQ(tw_reduce_on(on, to, sources, 3, kCount, TW_TYPE_FLOAT32, TW_REDUCE_SUM, nullptr), TW_OK) << tw_last_error();
    }
    ASSERT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
    EXPECT_TRUE(a.load(to, kBytes) == sum_of(data)) << turn;
    ASSERT_EQ(tw_copy_on(on, y, to, kBytes, nullptr), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(on), TW_OK);
    EXPECT_TRUE(a.load(y, kBytes) == sum_of(data)) << turn;
  }
}

TEST_P(Reduce, WhatMakesNoSenseIsRefused) {
  unsigned char *x = memory(a, kBytes + 16), *to = memory(a, kBytes);
  tw_plan* const one = plan(a);
  const auto add = [&](void* target, std::vector<tw_source> sources, size_t count, uint32_t type, uint32_t op) {
    return tw_plan_reduce(one, target, sources.data(), sources.size(), count, type, op, nullptr, nullptr);
  };
  const tw_source source{x, nullptr, 0};
  EXPECT_EQ(add(to, {}, 4, TW_TYPE_INT32, TW_REDUCE_SUM), TW_ERR_INVALID);
  EXPECT_EQ(add(to, {source}, 4, TW_TYPE_UINT8 + 1, TW_REDUCE_SUM), TW_ERR_INVALID);
  EXPECT_EQ(add(to, {source}, 4, TW_TYPE_INT32, TW_REDUCE_XOR + 1), TW_ERR_INVALID);
  EXPECT_EQ(add(to, {source}, 4, TW_TYPE_FLOAT64, TW_REDUCE_AND), TW_ERR_INVALID);
  EXPECT_EQ(add(nullptr, {source}, 4, TW_TYPE_INT32, TW_REDUCE_SUM), TW_ERR_INVALID);
  EXPECT_EQ(add(to, {{nullptr, nullptr, 0}}, 4, TW_TYPE_INT32, TW_REDUCE_SUM), TW_ERR_INVALID);
  EXPECT_EQ(add(to + 1, {source}, 4, TW_TYPE_INT32, TW_REDUCE_SUM), TW_ERR_MISALIGNED);
  EXPECT_EQ(add(to, {{x + 2, nullptr, 0}}, 4, TW_TYPE_INT32, TW_REDUCE_SUM), TW_ERR_MISALIGNED);
  EXPECT_EQ(add(x + 8, {source}, 4, TW_TYPE_INT32, TW_REDUCE_SUM), TW_ERR_INVALID) << "they overlap";
  EXPECT_EQ(add(to, {source}, SIZE_MAX / 2, TW_TYPE_INT32, TW_REDUCE_SUM), TW_ERR_INVALID);
  EXPECT_EQ(add(to, {source}, 0, TW_TYPE_INT32, TW_REDUCE_SUM), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_prepare(one, kLong), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_run(one, kLong), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_update(one, 0, x, nullptr), TW_ERR_INVALID) << "it has several buffers";
}

/// What a key forbids is refused when a step is added, for puts and gets as for sources.
TEST_P(Reduce, KeysAreAskedWhenAStepIsAdded) {
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.place = GetParam().place;
  tw_memory* handle = nullptr;
  memory(b, 4096, &handle);
  const auto import = [&](uint32_t access, uint64_t length) {
    size_t size = kKeyRoom;
    std::vector<unsigned char> key(size);
    EXPECT_EQ(tw_memory_export_range(handle, 0, length, access, key.data(), &size), TW_OK) << tw_last_error();
    tw_remote_memory* remote = nullptr;
    EXPECT_EQ(tw_memory_import(a.endpoint, key.data(), size, &remote), TW_OK) << tw_last_error();
    return remote;
  };
  tw_remote_memory* const reads = import(TW_MEMORY_READ, 4096);
  tw_remote_memory* const writes = import(TW_MEMORY_WRITE, 64);
  unsigned char* const mine = memory(a, 4096);
  tw_plan* const one = plan(a);
  EXPECT_EQ(tw_plan_put(one, a.endpoint, mine, 8, reads, 0, nullptr, nullptr), TW_ERR_PERMISSION);
  EXPECT_EQ(tw_plan_get(one, a.endpoint, mine, 8, writes, 0, nullptr, nullptr), TW_ERR_PERMISSION);
  EXPECT_EQ(tw_plan_put(one, a.endpoint, mine, 65, writes, 0, nullptr, nullptr), TW_ERR_OUT_OF_BOUNDS);
  const tw_source forbidden{nullptr, writes, 0}, beyond{nullptr, reads, 4092}, both{mine, reads, 0};
  const auto reduce = [&](const tw_source& source) {
    return tw_plan_reduce(one, mine, &source, 1, 2, TW_TYPE_INT32, TW_REDUCE_SUM, nullptr, nullptr);
  };
  EXPECT_EQ(reduce(forbidden), TW_ERR_PERMISSION);
  EXPECT_EQ(reduce(beyond), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(reduce(both), TW_ERR_INVALID);
  tw_remote_memory_release(reads);
  tw_remote_memory_release(writes);
}

}  // namespace
}  // namespace thalweg::tests
