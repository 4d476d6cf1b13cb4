// SPDX-License-Identifier: Apache-2.0
// groups.hpp: the C++ view of groups.h. Part of thalweg.hpp, whose conventions hold.
//
//   auto world = thalweg::init();
//   world.barrier();
//   thalweg::Group node = world.split_by(TW_SPLIT_HOST);
#pragma once
#include <thalweg/collectives.h>
#include <thalweg/groups.h>
#include <thalweg/views.h>
#include <thalweg/core.hpp>
#include <thalweg/windows.hpp>

#include <memory>
#include <utility>

namespace thalweg {

struct InitOptions : tw_init_options {
  InitOptions() : tw_init_options TW_INIT_OPTIONS_INIT {}
};
struct GroupOptions : tw_group_options {
  GroupOptions() : tw_group_options TW_GROUP_OPTIONS_INIT {}
};

/// Ranks that work together. The world of init() owns its context and worker, which what was made of it keeps until it ends itself.
/// Any other group ends before its worker, which the program has made. A destructor cannot report that collectives are under way:
/// end them before. destroy() tells.
class [[nodiscard]] Group {
 public:
  Group() = default;
  explicit Group(tw_group* group) : handle_(group) {}
  Group(Group&& other) noexcept = default;
  /// What it was ends first: the group, and where it was the world's last one its worker, its context.
  Group& operator=(Group&& other) noexcept {
    Group taken(std::move(other));
    std::swap(handle_, taken.handle_);
    std::swap(world_, taken.world_);
    return *this;
  }
  /// Collective: tw_group_create. endpoints has one entry a rank, the own one null; by: the exchange, null: arg is a tw_store.
  Group(const Worker& worker, std::span<tw_endpoint* const> endpoints, uint32_t rank, tw_exchange by, void* arg,
        const tw_group_options& options = GroupOptions()) {
    tw_group* made = nullptr;
    detail::check(tw_group_create(worker.get(), endpoints.data(), static_cast<uint32_t>(endpoints.size()), rank, by, arg,
                                  &options, &made));
    handle_ = detail::Handle<tw_group, tw_group_destroy>(made);
  }
  uint32_t rank() const noexcept { return tw_group_rank(get()); }
  uint32_t size() const noexcept { return tw_group_size(get()); }
  /// Of the world, and of what was made of it.
  const Context& context() const { return world().context; }
  const Worker& worker() const { return world().worker; }
  /// To a rank, connected when it is first asked for; the group's.
  [[nodiscard]] tw_endpoint* endpoint(uint32_t rank) const {
    tw_endpoint* endpoint = nullptr;
    detail::check(tw_group_endpoint(get(), rank, &endpoint));
    return endpoint;
  }
  /// values[i] becomes rank i's `mine`.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::vector<T> exchange(const T& mine) const {
    std::vector<T> values(size());
    detail::check(tw_group_exchange(get(), &mine, sizeof mine, values.data()));
    return values;
  }
  void barrier() const { detail::check(tw_barrier(get(), nullptr, nullptr)); }
  Group duplicate() const {
    tw_group* made = nullptr;
    detail::check(tw_group_duplicate(get(), &made));
    return part(made);
  }
  /// TW_UNDEFINED: an empty Group.
  Group split(uint32_t color, uint32_t key = 0) const {
    tw_group* made = nullptr;
    detail::check(tw_group_split(get(), color, key, &made));
    return part(made);
  }
  /// TW_SPLIT_HOST, ...
  Group split_by(uint32_t what, uint32_t key = 0) const {
    tw_group* made = nullptr;
    detail::check(tw_group_split_by(get(), what, key, &made));
    return part(made);
  }
  [[nodiscard]] std::vector<uint32_t> lost() const {
    uint32_t count = size();
    std::vector<uint32_t> ranks(count);
    detail::check(tw_group_lost(get(), ranks.data(), &count));
    ranks.resize(count);
    return ranks;
  }
  Group shrink() const {
    tw_group* made = nullptr;
    detail::check(tw_group_shrink(get(), &made));
    return part(made);
  }
  /// Ends before the group.
  Window window(const Memory& memory, const tw_window_options& options = WindowOptions()) const {
    tw_window* made = nullptr;
    detail::check(tw_group_window(get(), memory.get(), &options, &made));
    return Window(made);
  }
  /// Ends it, and with the last of a world and its parts the worker and context. TW_ERR_BUSY: it still exists (tw_group_destroy).
  [[nodiscard]] tw_status destroy() noexcept {
    const tw_status status = handle_ || !world_ ? handle_.end() : world_->group.end();
    if (status == TW_OK) world_.reset();
    return status;
  }
  explicit operator bool() const noexcept { return get() != nullptr; }
  tw_group* get() const noexcept { return handle_ || !world_ ? handle_.get() : world_->group.get(); }

 private:
  friend Group init(const tw_init_options&);
  struct World {
    Context context{static_cast<tw_context*>(nullptr)};
    Worker worker{static_cast<tw_worker*>(nullptr)};
    detail::Handle<tw_group, tw_group_destroy> group;  // ends first
  };
  const World& world() const {
    if (!world_) throw Error(TW_ERR_INVALID, "this group is not the world, nor made of it: the program has its worker");
    return *world_;
  }
  Group part(tw_group* made) const {
    Group group(made);
    if (made != nullptr) group.world_ = world_;
    return group;
  }
  std::shared_ptr<World> world_;                       // also its parts', behind which it ends
  detail::Handle<tw_group, tw_group_destroy> handle_;  // of any other group
};

/// The world: tw_init.
inline Group init(const tw_init_options& options = InitOptions()) {
  Group made;
  made.world_ = std::make_shared<Group::World>();
  Group::World& world = *made.world_;
  tw_group* group = nullptr;
  detail::check(tw_init(&options, &group));
  world.group = detail::Handle<tw_group, tw_group_destroy>(group);
  world.context = Context(tw_group_context(group));
  world.worker = Worker(tw_group_worker(group));
  tw_group_yield_worker(group);
  return made;
}

}  // namespace thalweg
