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

namespace thalweg {

struct InitOptions : tw_init_options {
  InitOptions() : tw_init_options TW_INIT_OPTIONS_INIT {}
};
struct GroupOptions : tw_group_options {
  GroupOptions() : tw_group_options TW_GROUP_OPTIONS_INIT {}
};

/// Ranks that work together. The world of init() owns its context and worker; any other group ends before its worker.
class [[nodiscard]] Group {
 public:
  Group() = default;
  explicit Group(tw_group* group) : handle_(group) {}
  Group(Group&& other) noexcept = default;
  /// What it was ends first: the group, its worker, its context.
  Group& operator=(Group&& other) noexcept {
    if (this == &other) return *this;
    handle_ = std::move(other.handle_);
    owned_.reset();
    if (other.owned_) owned_.emplace(std::move(*other.owned_));
    other.owned_.reset();
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
  /// Of the world alone.
  const Context& context() const { return owned_.value().context; }
  const Worker& worker() const { return owned_.value().worker; }
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
    return Group(made);
  }
  /// TW_UNDEFINED: an empty Group.
  Group split(uint32_t color, uint32_t key = 0) const {
    tw_group* made = nullptr;
    detail::check(tw_group_split(get(), color, key, &made));
    return Group(made);
  }
  /// TW_SPLIT_HOST, ...
  Group split_by(uint32_t what, uint32_t key = 0) const {
    tw_group* made = nullptr;
    detail::check(tw_group_split_by(get(), what, key, &made));
    return Group(made);
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
    return Group(made);
  }
  /// Ends before the group.
  Window window(const Memory& memory, const tw_window_options& options = WindowOptions()) const {
    tw_window* made = nullptr;
    detail::check(tw_group_window(get(), memory.get(), &options, &made));
    return Window(made);
  }
  explicit operator bool() const noexcept { return get() != nullptr; }
  tw_group* get() const noexcept { return handle_.get(); }

 private:
  friend Group init(const tw_init_options&);
  struct Owned {
    Context context;
    Worker worker;
  };
  std::optional<Owned> owned_;  // ends behind the group
  detail::Handle<tw_group, tw_group_destroy> handle_;
};

/// The world: tw_init.
inline Group init(const tw_init_options& options = InitOptions()) {
  tw_group* made = nullptr;
  detail::check(tw_init(&options, &made));
  Group world(made);
  world.owned_.emplace(Group::Owned{Context(tw_group_context(made)), Worker(tw_group_worker(made))});
  tw_group_yield_worker(made);
  return world;
}

}  // namespace thalweg
