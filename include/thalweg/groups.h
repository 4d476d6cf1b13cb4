/* SPDX-License-Identifier: Apache-2.0
 *
 * groups.h: ranks that work together. A group has `size` ranks, numbered from 0; each has an endpoint to each other one, made when
 * it is first needed. Collectives (collectives.h), windows and plans go over a group. Part of thalweg.h, whose conventions hold.
 *
 *   tw_group *world;
 *   tw_init(NULL, &world);   started by `thalweg run`, torchrun, mpirun, srun, or by nothing: a group of one
 *
 * Threads: a group belongs to the user of its worker, which its functions progress where they wait. What is called "collective" is
 * called by all ranks, in the same order. A rank that is lost ends a collective of the others with TW_ERR_PEER_LOST; the text has
 * its number. Callbacks and handlers run inside progress: what waits for other ranks is TW_ERR_BUSY there (tw_group_exchange, _split,
 * _split_by, _shrink, _window, the end of its window; _endpoint of a rank that is not connected), was not made, and is called again behind them.
 *
 * Parts (_split, _split_by), a group's windows and their registration are made on all ranks or on none: a rank that comes when another's
 * time is over fails, too. In the call's last step ranks hear from each other that they have what they need; a rank that is lost or
 * interrupted in that step, or hears nothing there for the group's time, may fail alone.
 */
#ifndef THALWEG_GROUPS_H
#define THALWEG_GROUPS_H

#include <thalweg/types.h>
#include <thalweg/windows.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tw_group_options {
  size_t size;
  uint64_t timeout_ns; /* until all ranks have come, and of each blocking collective; 0: 30 s */
} tw_group_options;
#define TW_GROUP_OPTIONS_INIT {sizeof(tw_group_options), 0}

typedef struct tw_init_options {
  size_t size;
  /* Instead of a launcher's environment: a store (tw_store_open), and this process's place. TW_STORE_ENVIRONMENT: THALWEG_RANK and
     THALWEG_SIZE, else 0 of 1; one of the two without the other is refused. */
  const char *store;
  uint32_t rank, count;
  const struct tw_context_options *context; /* NULL: all defaults. Its job_key NULL: the launcher's (docs/security.md) */
  const struct tw_worker_options *worker;
  uint64_t timeout_ns; /* until all ranks have come; then of each connection and each blocking collective; 0: 60 s */
} tw_init_options;
#define TW_INIT_OPTIONS_INIT {sizeof(tw_init_options), NULL, TW_STORE_ENVIRONMENT, TW_STORE_ENVIRONMENT, NULL, NULL, 0}

/** The world: all processes that were started together, as a group with a context and a worker of its own. Collective; returns when
 *  all ranks have given their addresses. Connections are made when they are first needed, by either side.
 *  Who started them, first that is there: options->store or THALWEG_STORE, THALWEG_RANK, THALWEG_SIZE (`thalweg run`); torchrun's RANK,
 *  WORLD_SIZE, MASTER_ADDR and MASTER_PORT: rank 0 serves a store at the port behind that; a server of PMIx (PMIX_NAMESPACE,
 *  PMIX_RANK: mpirun, prterun, srun --mpi=pmix), for which libpmix.so.2 is loaded; none: a group of one.
 *  TW_ERR_INVALID: a variable is missing or senseless; TW_ERR_UNSUPPORTED: a launcher that tells this process that it is one of
 *  several, but gives no way to find the others; TW_ERR_TIMED_OUT: a rank is missing.
 *  End with tw_group_destroy, behind all that uses the worker or the context. */
TW_CHECKED tw_status tw_init(const tw_init_options *options, tw_group **world);

/** Collective over the ranks: all call it, or none gets a group. endpoints[size]: to each rank, by this worker; the own entry is
 *  NULL (size 1: endpoints may be NULL). They stay the caller's and must outlive the group. exchange NULL: arg is a tw_store whose
 *  rank and count are these; the exchange is called once.
 *  TW_ERR_INVALID: sizes differ, two ranks are equal, or one gives an endpoint twice; TW_ERR_TIMED_OUT: a rank is missing;
 *  TW_ERR_PEER_LOST.
 *  End with tw_group_destroy, before the worker. */
TW_CHECKED tw_status tw_group_create(tw_worker *worker, tw_endpoint *const *endpoints, uint32_t size, uint32_t rank,
                                     tw_exchange exchange, void *arg, const tw_group_options *options, tw_group **group);
/** Local: no collective of the group may be under way here (TW_ERR_BUSY, and the group still exists). NULL: nothing to do.
 *  The world also ends its connections, worker and context: what was posted arrives, if the peers progress within 2 s. TW_ERR_BUSY
 *  while groups that were made of it exist. */
TW_CHECKED tw_status tw_group_destroy(tw_group *group);
TW_API uint32_t tw_group_rank(const tw_group *group);
TW_API uint32_t tw_group_size(const tw_group *group);
TW_API tw_worker *tw_group_worker(const tw_group *group);
TW_API tw_context *tw_group_context(const tw_group *group);
/** The endpoint to a rank, connected here if it was not yet; of the own rank one of the worker to itself. The group's: not to be
 *  closed. A receive from a rank alone (tw_op_options.source) names it by this endpoint, too. Waits for the connection, and progresses.
 *  TW_ERR_PEER_LOST, TW_ERR_TIMED_OUT: with the rank. TW_ERR_BUSY: in a callback or a handler, which cannot wait, and the rank is not
 *  connected yet: the connection begins, and the call is made again behind them; or it is made once before. */
TW_CHECKED tw_status tw_group_endpoint(tw_group *group, uint32_t rank, tw_endpoint **endpoint);
/** Collective, a tw_exchange whose argument is the tw_group: values[i * length] becomes rank i's `mine`. For set-up: at most 16 MiB in
 *  all; each rank uses a few connections. */
TW_CHECKED tw_status tw_group_exchange(void *group, const void *mine, size_t length, void *values);

/** Collective: the same ranks, whose collectives are apart from those of `group`. */
TW_CHECKED tw_status tw_group_duplicate(tw_group *group, tw_group **duplicate);
#define TW_UNDEFINED UINT32_MAX
/** Collective: ranks that give the same colour are a group, ordered by key, and by rank where keys are equal. TW_UNDEFINED: in no
 *  group; *part is NULL. */
TW_CHECKED tw_status tw_group_split(tw_group *group, uint32_t color, uint32_t key, tw_group **part);
enum {
  TW_SPLIT_HOST = 0, /* ranks under one running kernel */
  TW_SPLIT_NUMA = 1, /* ... whose calling thread runs at one NUMA node: bind it first */
  TW_SPLIT_DEVICES =
      2 /* ... whose first device is joined with the others' by NVLink; all of a host where a rank has no device, or
                          does not see the others' (CUDA_VISIBLE_DEVICES) */
};
/** Collective: the ranks that have TW_SPLIT_* in common. */
TW_CHECKED tw_status tw_group_split_by(tw_group *group, uint32_t what, uint32_t key, tw_group **part);

/** The ranks whose connection with this one was made and is over, in order: they have died, or destroyed their world. *count: capacity
 *  in, number out (TW_ERR_TRUNCATED when short); ranks NULL asks for the number. Local; what a progress has seen. */
TW_CHECKED tw_status tw_group_lost(tw_group *group, uint32_t *ranks, uint32_t *count);
/** Collective over the ranks that are left: they agree on who they are, and get a group in their order. Connects each to each.
 *  TW_ERR_PEER_LOST: others have lost this rank; TW_ERR_LIMIT, TW_ERR_TIMED_OUT: a rank is there and not heard, with its number. */
TW_CHECKED tw_status tw_group_shrink(tw_group *group, tw_group **left);

/** Collective: tw_window_create over the group, which must outlive the window. tw_window_register_on lets collectives use it. */
TW_CHECKED tw_status tw_group_window(tw_group *group, tw_memory *memory, const tw_window_options *options, tw_window **window);

#ifdef __cplusplus
}
#endif

#endif
