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

/** What the calling thread's blocking calls ask while they wait, every 10 ms or so: not 0 ends the call with TW_ERR_CANCELED.
 *  asked NULL, the default: nothing. It may not call the library. An interpreter looks there for signals that it has to handle.
 *  Calls of stores, plans and queues, binds of channels and the exchanges of windows ask. */
typedef int (*tw_interrupt)(void *arg);
TW_API void tw_set_interrupt(tw_interrupt asked, void *arg);

#ifdef __cplusplus
}
#endif

#endif
