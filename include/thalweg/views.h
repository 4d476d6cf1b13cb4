/* SPDX-License-Identifier: Apache-2.0
 *
 * views.h: what the C++ view, and views in other languages, ask of handles beside thalweg.h.
 */
#ifndef THALWEG_VIEWS_H
#define THALWEG_VIEWS_H

#include <thalweg/groups.h>
#include <thalweg/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The context that the worker was made with; NULL of NULL. Any thread. */
TW_API tw_context *tw_worker_context(tw_worker *worker);

/** The world's worker and context are the caller's from now on: it ends them behind the group. A view has objects for them. */
TW_API void tw_group_yield_worker(tw_group *world);

/** For a view whose objects end when nobody uses them: as tw_window_destroy, but of this rank alone. It waits for no other rank; those
 *  that destroy the window may wait for this one until their time is over. NULL: nothing to do. */
TW_API void tw_window_drop(tw_window *window);

/** What the calling thread's blocking calls ask while they wait, every 10 ms or so: not 0 ends the call with TW_ERR_CANCELED. asked
 *  NULL, the default: nothing. It is asked under no lock but that of a queue whose operation the call prepares, and may use the library, but
 *  not what the call uses: an interpreter handles signals and messages there. Calls of stores, plans and queues, maps, binds of channels
 *  and exchanges of windows ask. */
typedef int (*tw_interrupt)(void *arg);
TW_API void tw_set_interrupt(tw_interrupt asked, void *arg);

/** For a view whose calls poll by themselves while they wait: this moment, from which the calling thread waits in the timeline
 *  (tw_context_trace), as it would in the C functions. 0 where none is recorded. Any thread; neither waits nor fails. */
TW_API uint64_t tw_wait_began(void);
/** It waits no longer: one `wait` of this thread's line, as of the blocking C functions. began: from tw_wait_began(), of this thread; 0:
 *  nothing is recorded. */
TW_API void tw_wait_ended(uint64_t began);

#ifdef __cplusplus
}
#endif

#endif
