// SPDX-License-Identifier: Apache-2.0
// Tests of the machine itself: each runs in this process, or among processes that it forks, and talks to no other one through the
// library.
#pragma once
#include <string>

#include "options.hpp"

namespace perf {

/// Null: the test is none of these.
using AloneTest = void (*)(const Options&);
AloneTest find_alone(const std::string& test);

void run_floor(const Options& o);        // two processes without the library: cache line, memcpy, process_vm_readv, raw TCP
void run_memory(const Options& o);       // STREAM by NUMA nodes
void run_tiers(const Options& o);        // the same in DRAM, tmpfs and a file on disk; small synchronous writes
void run_sockets(const Options& o);      // unix and TCP sockets between two processes
void run_pages(const Options& o);        // first touches of pages, and what is there before one
void run_collaborate(const Options& o);  // host and device together: explicit copies against one shared memory
void run_copies(const Options& o);       // between host and GPUs: by engines, kernels, through the host
void run_flags(const Options& o);        // of host and kernels: flags, and what starts a kernel
void run_atomics(const Options& o);      // on one word, from host and GPU at once

}  // namespace perf
