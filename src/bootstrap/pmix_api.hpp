// SPDX-License-Identifier: Apache-2.0
// The part of PMIx's client interface (versions 2 to 5: its ABI keeps these) that a bootstrap needs, from libpmix.so.2 at run
// time.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/status.hpp"

namespace thalweg::impl::pmix {

constexpr uint32_t kEveryRank = UINT32_MAX - 1;  // PMIX_RANK_WILDCARD: the job itself
constexpr uint8_t kGlobal = 3;                   // PMIX_GLOBAL
constexpr uint16_t kBool = 1, kUint32 = 14, kByteObject = 27;
constexpr int kSucceeded = -157;  // PMIX_OPERATION_SUCCEEDED: done, and nobody is called back
constexpr char kJobSize[] = "pmix.job.size", kCollect[] = "pmix.collect";

struct Proc {
  char space[256];
  uint32_t rank;
};
struct ByteObject {
  char* bytes;
  size_t size;
};
struct Value {
  uint16_t type;
  union {
    bool flag;
    uint32_t number;
    ByteObject object;
    void* widest[3];  // pmix_envar_t is the largest
  } data;
};
static_assert(sizeof(Value) == 32);
struct Info {
  char key[512];
  uint32_t flags;
  Value value;
};
static_assert(sizeof(Info) == 552);

using Ended = void (*)(int status, void* data);

/// The library's functions. Statuses: 0 is success, others negative.
struct Api {
  int (*init)(Proc* self, Info* info, size_t count);
  int (*finalize)(const Info* info, size_t count);
  int (*put)(uint8_t scope, const char* key, Value* value);
  int (*commit)();
  /// Calls back on a thread of the library's, perhaps never; what it is given must live until then.
  int (*fence)(const Proc* among, size_t count, const Info* info, size_t infos, Ended ended, void* data);
  int (*get)(const Proc* of, const char* key, const Info* info, size_t count, Value** value);
  const char* (*text)(int status);
};

/// Loads it once. THALWEG_PMIX names the file; else it is found as libraries are, or where the launcher was installed.
Status load(const Api** out);

}  // namespace thalweg::impl::pmix
