/* SPDX-License-Identifier: Apache-2.0
 *
 * groups.h: ranks that work together. A group has `size` ranks, numbered from 0; each has an endpoint to each other one, made when
 * it is first needed. Collectives (collectives.h), windows and plans go over a group. Part of thalweg.h, whose conventions hold.
 *
 * Threads: a group belongs to the user of its worker, which its functions progress where they wait.
 */
#ifndef THALWEG_GROUPS_H
#define THALWEG_GROUPS_H

#include <thalweg/types.h>
#include <thalweg/windows.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tw_group tw_group;

typedef struct tw_group_options {
  size_t size;
  uint64_t timeout_ns; /* until all ranks have come, and of each blocking collective; 0: 30 s */
} tw_group_options;
#define TW_GROUP_OPTIONS_INIT {sizeof(tw_group_options), 0}

/** Collective over the ranks: all call it, or none gets a group. endpoints[size]: to each rank, by this worker; the own entry is
 *  NULL (size 1: endpoints may be NULL). They stay the caller's and must outlive the group. exchange NULL: arg is a tw_store whose
 *  rank and count are these; the exchange is called once.
 *  TW_ERR_INVALID: sizes differ, or two ranks are equal; TW_ERR_TIMED_OUT: a rank is missing; TW_ERR_PEER_LOST.
 *  End with tw_group_destroy, before the worker. */
TW_CHECKED tw_status tw_group_create(tw_worker *worker, tw_endpoint *const *endpoints, uint32_t size, uint32_t rank,
                                     tw_exchange exchange, void *arg, const tw_group_options *options, tw_group **group);
/** Local: no collective of the group may be under way here (TW_ERR_BUSY, and the group still exists). NULL: nothing to do. */
TW_CHECKED tw_status tw_group_destroy(tw_group *group);
TW_API uint32_t tw_group_rank(const tw_group *group);
TW_API uint32_t tw_group_size(const tw_group *group);
TW_API tw_worker *tw_group_worker(const tw_group *group);
/** The endpoint to a rank, connected here if it was not yet; of the own rank one of the worker to itself. The group's: not to be
 *  closed. TW_ERR_PEER_LOST, TW_ERR_TIMED_OUT: with the rank. */
TW_CHECKED tw_status tw_group_endpoint(tw_group *group, uint32_t rank, tw_endpoint **endpoint);

#ifdef __cplusplus
}
#endif

#endif
