// SPDX-License-Identifier: Apache-2.0
// windows.hpp: the C++ view of windows.h. Part of thalweg.hpp, whose conventions hold.
#pragma once
#include <thalweg/collectives.h>
#include <thalweg/views.h>
#include <thalweg/windows.h>
#include <thalweg/core.hpp>
#include <thalweg/device/types.hpp>

#include <cstring>

namespace thalweg {

struct WindowOptions : tw_window_options {
  WindowOptions() : tw_window_options TW_WINDOW_OPTIONS_INIT {}
};

namespace detail {
/// Where the end that all ranks make cannot wait, this rank lets go alone.
inline tw_status end_window(tw_window* window) noexcept {
  const tw_status status = tw_window_destroy(window);
  if (status == TW_ERR_BUSY) tw_window_drop(window);
  return status;
}
}  // namespace detail

/// Symmetric memory over ranks. The destructor is collective; in a callback or a handler of messages, where nothing waits for other
/// ranks, a group's window ends on this rank alone (those that destroy theirs may wait for this one). The worker, the endpoints and the memory must outlive it.
class [[nodiscard]] Window {
 public:
  Window() = default;
  explicit Window(tw_window* window) : handle_(window) {}
  /// Collective: tw_window_create. endpoints has one entry a rank, the own one null; exchange null: arg is a tw_store.
  Window(const Worker& worker, std::span<tw_endpoint* const> endpoints, uint32_t rank, const Memory& memory,
         tw_exchange exchange, void* arg, const tw_window_options& options = WindowOptions()) {
    tw_window* made = nullptr;
    detail::check(tw_window_create(worker.get(), endpoints.data(), static_cast<uint32_t>(endpoints.size()), rank, memory.get(),
                                   exchange, arg, &options, &made));
    handle_ = detail::Handle<tw_window, detail::end_window>(made);
  }
  Window(const Worker& worker, std::span<tw_endpoint* const> endpoints, uint32_t rank, const Memory& memory, const Store& store,
         const tw_window_options& options = WindowOptions())
      : Window(worker, endpoints, rank, memory, nullptr, store.get(), options) {}
  uint32_t rank() const noexcept { return tw_window_rank(get()); }
  uint32_t size() const noexcept { return tw_window_size(get()); }
  size_t length() const noexcept { return tw_window_length(get()); }
  /// Where loads and stores of this process reach a rank's part.
  [[nodiscard]] void* address(uint32_t rank) const {
    void* address = nullptr;
    detail::check(tw_window_address(get(), rank, &address));
    return address;
  }
  /// For puts, gets and atomics; the window's.
  [[nodiscard]] tw_remote_memory* remote(uint32_t rank) const {
    tw_remote_memory* remote = nullptr;
    detail::check(tw_window_remote(get(), rank, &remote));
    return remote;
  }
  /// The endpoint that goes with it, also of the own rank; the window's.
  [[nodiscard]] tw_endpoint* endpoint(uint32_t rank) const {
    tw_endpoint* endpoint = nullptr;
    detail::check(tw_window_endpoint(get(), rank, &endpoint));
    return endpoint;
  }
  /// What kernels of "cuda:1", or their twins on "host", take by value.
  device::Window bind(const char* place) const {
    tw_device_window bound;
    detail::check(tw_window_bind(get(), place, &bound));
    device::Window window;
    static_assert(sizeof window == sizeof bound);
    std::memcpy(&window, &bound, sizeof window);
    return window;
  }
  /// Collective: the group's collectives on queues use buffers in it themselves (tw_window_register_on). queue: a Queue's get().
  void register_on(tw_queue* queue) const { detail::check(tw_window_register_on(get(), queue)); }
  /// Throws the failure: a lost peer, or a wait of device code that failed.
  void check() const { detail::check(tw_window_check(get())); }
  /// Collective: the end that the destructor makes too, and how it went. TW_ERR_BUSY: the window stays.
  [[nodiscard]] tw_status destroy() noexcept {
    const tw_status status = tw_window_destroy(get());
    if (status != TW_ERR_BUSY) static_cast<void>(handle_.release());
    return status;
  }
  tw_window* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<tw_window, detail::end_window> handle_;
};

}  // namespace thalweg
