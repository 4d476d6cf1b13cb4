/* SPDX-License-Identifier: Apache-2.0
 *
 * views.h: what the C++ view, and views in other languages, ask of handles beside thalweg.h.
 */
#ifndef THALWEG_VIEWS_H
#define THALWEG_VIEWS_H

#include <thalweg/thalweg.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The context that the worker was made with; NULL of NULL. Any thread. */
TW_API tw_context *tw_worker_context(tw_worker *worker);

#ifdef __cplusplus
}
#endif

#endif
