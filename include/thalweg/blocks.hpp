// SPDX-License-Identifier: Apache-2.0
// blocks.hpp: the C++ view of blocks.h. Part of thalweg.hpp, whose conventions hold.
#pragma once
#include <thalweg/blocks.h>
#include <thalweg/core.hpp>

namespace thalweg {

/// Prepared blocks of this process.
class [[nodiscard]] Blocks {
 public:
  Blocks(const Context& context, std::span<const tw_block_range> ranges, size_t length) {
    tw_blocks* made = nullptr;
    detail::check(tw_blocks_create(context.get(), ranges.data(), ranges.size(), length, &made));
    handle_ = detail::Handle<tw_blocks, tw_blocks_destroy>(made);
  }
  uint64_t count() const noexcept { return tw_blocks_count(get()); }
  size_t length() const noexcept { return tw_blocks_length(get()); }
  [[nodiscard]] std::string key(uint32_t access = 0) const {
    return detail::bytes_of([&](void* key, size_t* size) { return tw_blocks_export(get(), access, key, size); });
  }
  tw_blocks* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<tw_blocks, tw_blocks_destroy> handle_;
};

/// A peer's blocks.
class [[nodiscard]] RemoteBlocks {
 public:
  RemoteBlocks(const Endpoint& endpoint, std::string_view key) : endpoint_(endpoint.get()) {
    tw_remote_blocks* made = nullptr;
    detail::check(tw_blocks_import(endpoint_, key.data(), key.size(), &made));
    handle_ = detail::Handle<tw_remote_blocks, tw_remote_blocks_release>(made);
  }
  uint64_t count() const noexcept { return tw_remote_blocks_count(get()); }
  size_t length() const noexcept { return tw_remote_blocks_length(get()); }
  /// local[from[i]] to here[to[i]]; both have the same number of indices.
  [[nodiscard]] tw_status put_blocks(const Blocks& local, std::span<const uint64_t> from, std::span<const uint64_t> to,
                                     Request& request, const tw_blocks_options* options = nullptr) const noexcept {
    if (from.size() != to.size()) return TW_ERR_INVALID;
    return tw_put_blocks(endpoint_, local.get(), from.data(), get(), to.data(), to.size(), options, request.out());
  }
  /// here[from[i]] to local[to[i]].
  [[nodiscard]] tw_status get_blocks(const Blocks& local, std::span<const uint64_t> to, std::span<const uint64_t> from,
                                     Request& request, const tw_blocks_options* options = nullptr) const noexcept {
    if (from.size() != to.size()) return TW_ERR_INVALID;
    return tw_get_blocks(endpoint_, local.get(), to.data(), get(), from.data(), from.size(), options, request.out());
  }
  tw_remote_blocks* get() const noexcept { return handle_.get(); }

 private:
  tw_endpoint* endpoint_;
  detail::Handle<tw_remote_blocks, tw_remote_blocks_release> handle_;
};

}  // namespace thalweg
