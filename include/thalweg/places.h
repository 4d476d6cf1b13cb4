/* SPDX-License-Identifier: Apache-2.0
 *
 * places.h: kinds of memory, what a pointer points to, and copies between any two of them. Part of thalweg.h, whose
 * conventions hold.
 *
 * A place names where memory lives (tw_memory_options.place, tw_memory_info.place):
 *
 *   host             shared memory of the library; peers on this machine map it
 *   pinned           the same, page-locked for all devices: they read and write it at full speed. Needs a device.
 *   cuda[:N]         cuMemAlloc on GPU N of this process (0 when left out)
 *   managed[:N]      cuMemAllocManaged: moves between host and GPU on touch
 *   vmm[:N]          pieces of memory mapped contiguously, exported by descriptor
 *   pool[:N]         stream-ordered allocation
 *   emulated[:N]     of an emulated device (THALWEG_EMULATED), for tests; also emulated-managed, emulated-vmm, emulated-pool
 */
#ifndef THALWEG_PLACES_H
#define THALWEG_PLACES_H

#include <thalweg/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  TW_MEMORY_HOST = 0,   /* pageable, or shared memory of the library: no device knows it */
  TW_MEMORY_PINNED = 1, /* page-locked, allocated so or registered later */
  TW_MEMORY_DEVICE = 2, /* cuMemAlloc, cudaMalloc */
  TW_MEMORY_MANAGED = 3,
  TW_MEMORY_POOL = 4,
  TW_MEMORY_VMM = 5,
  TW_MEMORY_EMULATED = 6 /* ordinary memory of an emulated device */
};
/** The name of a kind, such as "managed"; "unknown" of any other number. */
TW_API const char *tw_memory_kind_name(uint32_t kind);

/* How another process can map it. */
enum { TW_SHARE_NONE = 0, TW_SHARE_HANDLE = 1, TW_SHARE_DESCRIPTOR = 2 };

typedef struct tw_memory_info {
  size_t size;             /* of this struct, set by the caller: TW_MEMORY_INFO_INIT */
  uint32_t kind;           /* TW_MEMORY_HOST, ... */
  uint32_t host_access;    /* 1: the host may load and store there */
  uint32_t exportable;     /* TW_SHARE_*, of memory that a device knows; for host memory see tw_memory_allocate */
  int32_t device;          /* ordinal in this process of where it lives or was pinned; -1: none */
  uint8_t device_uuid[16]; /* the same device in every process; zeros: none */
  char place[32];          /* "host", "cuda:1", ... */
  void *base;              /* of the allocation (of the piece around the address, if vmm); NULL: no device knows it */
  size_t length;
  uint64_t buffer_id; /* of the allocation; a freed and re-used address has another one; 0: no device knows it */
} tw_memory_info;
#define TW_MEMORY_INFO_INIT {sizeof(tw_memory_info), 0, 0, 0, -1, {0}, {0}, NULL, 0, 0}

/** What lies at an address. Any thread; costs some 100 ns, initialises no device library. */
TW_CHECKED tw_status tw_memory_query(const void *address, tw_memory_info *info);

/** Copies length bytes between any two memories of this process, and returns when they are there: for filling, checking and
 *  tools; messages and puts need it not. Orders itself after no stream: wait for work on the buffers first. May overlap in host
 *  memory only. Any thread; does not progress. TW_ERR_OUT_OF_BOUNDS: a range leaves its device allocation. */
TW_CHECKED tw_status tw_memory_copy(tw_context *context, void *to, const void *from, size_t length);

#ifdef __cplusplus
}
#endif
#endif
