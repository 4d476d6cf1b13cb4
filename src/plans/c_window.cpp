// SPDX-License-Identifier: Apache-2.0
// C interface: windows.
#include <thalweg/views.h>

#include <new>

#include "core/c_checks.hpp"
#include "plans/window.hpp"

using namespace thalweg::impl;

Status thalweg::impl::check(const tw_window* window) {
  if (window == nullptr) return fail(TW_ERR_INVALID, "the window is NULL");
  return window->born.check("window");
}

namespace {

constexpr tw_window_options kWindowDefaults = TW_WINDOW_OPTIONS_INIT;

Status check(const tw_window* window, uint32_t rank, const void* out) {
  if (Status s = thalweg::impl::check(window); is_error(s)) return s;
  if (out == nullptr) return fail(TW_ERR_INVALID, "the place for the answer is NULL");
  if (rank < window->ranks.size()) return TW_OK;
  return fail(TW_ERR_INVALID, "there is no rank %u: the window has %zu ranks", rank, window->ranks.size());
}

}  // namespace

extern "C" {

tw_status tw_window_create(tw_worker* worker, tw_endpoint* const* endpoints, uint32_t size, uint32_t rank, tw_memory* memory,
                           tw_exchange exchange, void* arg, const tw_window_options* given, tw_window** out) {
  const Enter enter(worker);
  if (is_error(enter.status())) return enter.status();
  if (out == nullptr) return fail(TW_ERR_INVALID, "the place for the window is NULL");
  *out = nullptr;
  if (rank >= size) return fail(TW_ERR_INVALID, "rank %u of %u: ranks are numbered from 0", rank, size);
  if (exchange == nullptr && arg == nullptr)
    return fail(TW_ERR_INVALID, "a window needs an exchange among its ranks: a function, or a store as its argument");
  Status so_far = check(memory);
  if (so_far == TW_OK && memory->registry != worker->context.registry.get())
    so_far = fail(TW_ERR_INVALID, "the memory belongs to another context than the worker");
  const Options<tw_window_options> options(given, kWindowDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  auto* window = new (std::nothrow) tw_window(*worker, memory, *options);
  if (window == nullptr) return fail(TW_ERR_NO_MEMORY, "no memory for a window");
  const Status status = window->create(so_far, endpoints, rank, size, exchange, arg);
  if (status == TW_OK) {
    *out = window;
    return TW_OK;
  }
  const std::string why = last_error();
  delete window;
  set_last_error(why);
  return status;
}

tw_status tw_window_destroy(tw_window* window) {
  if (Status s = check(window); is_error(s)) return s;
  const Enter enter(window->worker);
  if (is_error(enter.status())) return enter.status();
  if (window->group != nullptr) {
    if (Status s = window->worker.check_waits_for_ranks(); is_error(s)) return s;
  }
  const Status status = window->end();
  const std::string why = is_error(status) ? last_error() : "";
  delete window;
  if (is_error(status)) set_last_error(why);
  return status == TW_ERR_BUSY ? TW_ERR_INVALID : status;  // of the caller's exchange: busy is a window that is still there
}

void tw_window_drop(tw_window* window) {
  if (window == nullptr || is_error(check(window))) return;
  const Enter enter(window->worker);
  if (!is_error(enter.status())) delete window;
}

uint32_t tw_window_rank(const tw_window* window) { return window == nullptr ? 0 : window->rank; }
uint32_t tw_window_size(const tw_window* window) { return window == nullptr ? 0 : static_cast<uint32_t>(window->ranks.size()); }
size_t tw_window_length(const tw_window* window) { return window == nullptr ? 0 : window->memory->length; }

tw_status tw_window_address(tw_window* window, uint32_t rank, void** address) {
  if (Status s = check(window, rank, address); is_error(s)) return s;
  *address = nullptr;
  if (Status s = window->board->check(); is_error(s)) return s;
  uint64_t found = 0;
  const Status status = window->reach_host(rank, &found);
  *address = reinterpret_cast<void*>(found);
  return status;
}

tw_status tw_window_remote(tw_window* window, uint32_t rank, tw_remote_memory** remote) {
  if (Status s = check(window, rank, remote); is_error(s)) return s;
  const Enter enter(window->worker);
  if (is_error(enter.status())) return enter.status();
  tw_endpoint* endpoint = nullptr;
  return window->reach_imported(rank, &endpoint, remote);
}

tw_status tw_window_endpoint(tw_window* window, uint32_t rank, tw_endpoint** endpoint) {
  if (Status s = check(window, rank, endpoint); is_error(s)) return s;
  const Enter enter(window->worker);
  if (is_error(enter.status())) return enter.status();
  tw_remote_memory* remote = nullptr;
  return window->reach_imported(rank, endpoint, &remote);
}

tw_status tw_window_bind(tw_window* window, const char* place, tw_device_window* bound) {
  if (Status s = check(window, 0, bound); is_error(s)) return s;
  const Enter enter(window->worker);
  if (is_error(enter.status())) return enter.status();
  return window->bind(place, bound);
}

tw_status tw_window_check(tw_window* window) {
  const Status status = check(window);
  return is_error(status) ? status : window->check();
}

}  // extern "C"
