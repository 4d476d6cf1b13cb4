// SPDX-License-Identifier: Apache-2.0
// thalweg.hpp: the C++ view of thalweg.h. Header only; all conventions of thalweg.h hold here.
//
//   Group, Context, Worker, Listener, Endpoint, Memory, RemoteMemory, Layout, Signal, RemoteSignal, Store own their handles.
//   The data path returns a tw_status, and what does so throws nothing (wait_any: std::bad_alloc). All else throws thalweg::Error: set-up,
//   and what gives another value, such as CompletionQueue::poll.
//   Buffers are spans: anything contiguous and trivially copyable converts.
//   Arguments come in C's order, but those with a default stand last: masks, comparisons, options.
//
//   auto world = thalweg::init();                       // the processes that were started together
//   if (tw_send_blocking(world.endpoint(1), ...) != TW_OK) ...
//   thalweg::Context context;                           // or by address
//   thalweg::Worker worker(context);
//   auto peer = worker.connect_to("10.0.0.2:4711");
//   if (peer.send_blocking(std::span(data), tag) != TW_OK) ...
#pragma once
#include <thalweg/core.hpp>
#if __cplusplus > 201703L  // else core.hpp has said what is needed
#include <thalweg/blocks.hpp>
#include <thalweg/channels.hpp>
#include <thalweg/collectives.hpp>
#include <thalweg/groups.hpp>
#include <thalweg/options.hpp>
#include <thalweg/plans.hpp>
#include <thalweg/topology.hpp>
#include <thalweg/windows.hpp>
#endif
