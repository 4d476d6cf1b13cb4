// SPDX-License-Identifier: Apache-2.0
// Symmetric memory. A window is made in two exchanges: every rank's key and length, then whether all could import them
// (window_create.cpp). Bindings give a device, or the host, the addresses it needs, and the words that stop its code
// (window_bind.cpp).
//
// Life: a window counts itself in the users of every mapping that it hands addresses of, so that neither a lost peer nor a full
// cache unmaps them under a running kernel; the owner's release of device memory waits for that. Within one process nothing is
// mapped: there it holds the device memory that the library allocated for other ranks (Registry::hold_in_process), which is freed
// when the last of them lets go. Service threads notify its watches of losses.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/worker.hpp"
#include "devices/deferred_release.hpp"
#include "memory/device_allocation.hpp"
#include "memory/pinning.hpp"
#include "plans/window_list.hpp"
#include "plans/window_loss.hpp"
#include "protocols/one_sided.hpp"
#include "routes/prepared.hpp"

struct tw_group;

namespace thalweg::impl {

/// What code of one executor needs: in its memory the abort flag, then the addresses; in pinned memory failure and abort.
struct WindowBinding {
  Device* device = nullptr;                 // null: the host
  std::optional<KernelsWait> kernels_wait;  // a device's
  DeviceAllocation executor, pinned;
  std::vector<uint64_t> host_executor, host_pinned;  // of the host: the same in ordinary memory
  tw_device_window view{};
};

/// One rank as this one sees it.
struct WindowRank {
  tw_endpoint* endpoint = nullptr;  // null: this rank
  tw_remote_memory* remote = nullptr;
  std::byte* host = nullptr;  // where the host reaches it; null: it does not, because of why_not
  std::string why_not;
  std::shared_ptr<RankWatch> watch;
};

}  // namespace thalweg::impl

struct tw_window {
  using Status = thalweg::impl::Status;

  tw_window(tw_worker& owner, tw_memory* own, const tw_window_options& options);
  ~tw_window();  // no kernel uses it any more
  /// so_far: not TW_OK: only sends the others this rank's error.
  Status create(Status so_far, tw_endpoint* const* endpoints, uint32_t own_rank, uint32_t size, tw_exchange exchange,
                void* arg);
  Status bind(const char* place, tw_device_window* out);
  /// What bind() made for a device; null: it was not bound there.
  const tw_device_window* bound(const thalweg::impl::Device& device) const;
  Status check();
  Status reach_host(uint32_t of, uint64_t* address) const;
  /// By which endpoint a rank's part is reached as imported memory. The own rank's is one of this worker to itself, made when it
  /// is first asked for.
  Status reach_imported(uint32_t of, tw_endpoint** endpoint, tw_remote_memory** remote);
  /// Lets go of the peers' memory, then waits until all ranks have done so.
  Status end();

  thalweg::impl::BornHere born;
  tw_worker& worker;
  tw_memory* const memory;
  uint64_t timeout_ns;
  uint32_t rank = 0;
  std::vector<thalweg::impl::WindowRank> ranks;
  tw_group* group = nullptr;                                         // tw_group_window's; it outlives the window
  std::shared_ptr<void> exchanges;                                   // of a group's: what its exchange uses
  thalweg::impl::WindowList* listed = nullptr;                       // a group's
  const std::shared_ptr<char> alive = std::make_shared<char>('\0');  // for plans that use it
  const std::shared_ptr<thalweg::impl::LossBoard> board = std::make_shared<thalweg::impl::LossBoard>();

 private:
  Status exchange(const void* mine, size_t length, void* values);
  Status look_for_losses();
  Status join(uint32_t peer, const void* key, size_t key_length);
  void find_host_address(uint32_t of);
  void map_host_address(thalweg::impl::WindowRank& other);
  void hold(thalweg::impl::Mapping* mapping);
  void let_go();
  /// What src/routes is asked with of one rank's part; `device` null: for the host. *address: of memory of this process.
  Status describe(uint32_t of, thalweg::impl::Device* device, thalweg::impl::Prepared* out, uint64_t* address) const;
  Status reach_device(uint32_t of, thalweg::impl::Device& device, uint64_t* address);
  Status take_own(thalweg::impl::PreparedRoute route, const thalweg::impl::RemoteRegion* region, thalweg::impl::Device& device,
                  uint64_t address);
  Status take_remote(thalweg::impl::PreparedRoute route, thalweg::impl::RemoteRegion& region, thalweg::impl::Device& device,
                     uint64_t* address);
  Status pin(thalweg::impl::Device& device, uint64_t address);
  Status make_guard(thalweg::impl::WindowBinding& binding, const std::vector<uint64_t>& bases);
  Status clear(thalweg::impl::WindowBinding& binding);

  Status import_own();

  tw_exchange exchange_ = nullptr;
  void* arg_ = nullptr;
  uint64_t lost_at_ = 0;  // when an exchange saw first that a peer is lost, monotonic ns
  tw_endpoint* own_endpoint_ = nullptr;
  tw_remote_memory* own_remote_ = nullptr;
  std::vector<thalweg::impl::Mapping*> held_;
  std::vector<std::shared_ptr<void>> held_here_;  // of other ranks of this process
  std::vector<thalweg::impl::Pinning> pinnings_;
  std::mutex bindings_mutex_;  // check() may come from any thread
  std::vector<std::unique_ptr<thalweg::impl::WindowBinding>> bindings_;
};

namespace thalweg::impl {
/// Of a user's handle.
Status check(const tw_window* window);
/// Of a user's: an endpoint of this worker to each rank, each another one; null for the own rank. what: is made of them.
Status check_endpoints(const char* what, const tw_worker& worker, tw_endpoint* const* endpoints, uint32_t rank, uint32_t size);
}  // namespace thalweg::impl
