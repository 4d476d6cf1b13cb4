// SPDX-License-Identifier: Apache-2.0
// collectives.hpp: the C++ view of collectives.h. Part of thalweg.hpp, whose conventions hold.
//
//   std::vector<float> gradient = ...;
//   if (thalweg::allreduce(group, gradient) != TW_OK) ...                      // in place
//   tw_request request;
//   ... = thalweg::alltoall(group, out, in, nullptr, &request);
//
// Each has the type of its elements from its buffers; other types (float16, bfloat16, float8) go by the functions of collectives.h.
#pragma once
#include <thalweg/collectives.h>
#include <thalweg/core.hpp>
#include <thalweg/plans.hpp>

#include <algorithm>
#include <ranges>
#include <span>
#include <type_traits>

namespace thalweg {

struct CollectiveOptions : tw_collective_options {
  CollectiveOptions() : tw_collective_options TW_COLLECTIVE_OPTIONS_INIT {}
};

template <>
inline constexpr uint32_t element_type<bool> = TW_TYPE_BOOL;

namespace detail {
template <class R>
concept Elements = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                   element_type<std::remove_cv_t<std::ranges::range_value_t<R>>> != UINT32_MAX;
template <Elements R>
inline constexpr uint32_t type_of = element_type<std::remove_cv_t<std::ranges::range_value_t<R>>>;
template <class R>
size_t share(const R& whole, const tw_group* group) {
  return std::ranges::size(whole) / std::max<size_t>(1, tw_group_size(group));
}
/// Both have the same elements, and as many of them as the collective says.
template <Elements S, Elements R>
bool fit(size_t sent, size_t received) {
  static_assert(type_of<S> == type_of<R>, "what is sent and what is received have different types");
  return sent == received;
}
}  // namespace detail

[[nodiscard]] inline tw_status barrier(tw_group* group, const tw_collective_options* options = nullptr,
                                       tw_request* request = nullptr) noexcept {
  return tw_barrier(group, options, request);
}
template <detail::Elements R>
[[nodiscard]] tw_status broadcast(tw_group* group, R&& buffer, uint32_t root, const tw_collective_options* options = nullptr,
                                  tw_request* request = nullptr) noexcept {
  return tw_broadcast(group, std::ranges::data(buffer), std::ranges::size(buffer), detail::type_of<R>, root, options, request);
}
/// In place.
template <detail::Elements R>
[[nodiscard]] tw_status allreduce(tw_group* group, R&& buffer, uint32_t op = TW_REDUCE_SUM,
                                  const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  return tw_allreduce(group, TW_IN_PLACE, std::ranges::data(buffer), std::ranges::size(buffer), detail::type_of<R>, op, options,
                      request);
}
/// TW_ERR_INVALID, also of those below: the lengths do not fit together.
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status allreduce(tw_group* group, const S& send, R&& recv, uint32_t op = TW_REDUCE_SUM,
                                  const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  if (!detail::fit<S, R>(std::ranges::size(send), std::ranges::size(recv))) return TW_ERR_INVALID;
  return tw_allreduce(group, std::ranges::data(send), std::ranges::data(recv), std::ranges::size(send), detail::type_of<R>, op,
                      options, request);
}
/// recv is root's; elsewhere it may be empty.
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status reduce(tw_group* group, const S& send, R&& recv, uint32_t root, uint32_t op = TW_REDUCE_SUM,
                               const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  const bool here = tw_group_rank(group) == root;
  if (!detail::fit<S, R>(std::ranges::size(send), here ? std::ranges::size(recv) : std::ranges::size(send)))
    return TW_ERR_INVALID;
  return tw_reduce(group, std::ranges::data(send), std::ranges::data(recv), std::ranges::size(send), detail::type_of<R>, op,
                   root, options, request);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status reduce_scatter(tw_group* group, const S& send, R&& recv, uint32_t op = TW_REDUCE_SUM,
                                       const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  if (!detail::fit<S, R>(std::ranges::size(send), std::ranges::size(recv) * tw_group_size(group))) return TW_ERR_INVALID;
  return tw_reduce_scatter(group, std::ranges::data(send), std::ranges::data(recv), std::ranges::size(recv), detail::type_of<R>,
                           op, options, request);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status allgather(tw_group* group, const S& send, R&& recv, const tw_collective_options* options = nullptr,
                                  tw_request* request = nullptr) noexcept {
  if (!detail::fit<S, R>(std::ranges::size(send) * tw_group_size(group), std::ranges::size(recv))) return TW_ERR_INVALID;
  return tw_allgather(group, std::ranges::data(send), std::ranges::data(recv), std::ranges::size(send), detail::type_of<R>,
                      options, request);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status gather(tw_group* group, const S& send, R&& recv, uint32_t root,
                               const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  const size_t whole = std::ranges::size(send) * tw_group_size(group);
  if (!detail::fit<S, R>(whole, tw_group_rank(group) == root ? std::ranges::size(recv) : whole)) return TW_ERR_INVALID;
  return tw_gather(group, std::ranges::data(send), std::ranges::data(recv), std::ranges::size(send), detail::type_of<R>, root,
                   options, request);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status scatter(tw_group* group, const S& send, R&& recv, uint32_t root,
                                const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  const size_t whole = std::ranges::size(recv) * tw_group_size(group);
  if (!detail::fit<S, R>(tw_group_rank(group) == root ? std::ranges::size(send) : whole, whole)) return TW_ERR_INVALID;
  return tw_scatter(group, std::ranges::data(send), std::ranges::data(recv), std::ranges::size(recv), detail::type_of<R>, root,
                    options, request);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status alltoall(tw_group* group, const S& send, R&& recv, const tw_collective_options* options = nullptr,
                                 tw_request* request = nullptr) noexcept {
  const size_t count = detail::share(send, group);
  if (!detail::fit<S, R>(std::ranges::size(send), std::ranges::size(recv)) ||
      count * tw_group_size(group) != std::ranges::size(send))
    return TW_ERR_INVALID;
  return tw_alltoall(group, std::ranges::data(send), std::ranges::data(recv), count, detail::type_of<R>, options, request);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status scan(tw_group* group, const S& send, R&& recv, uint32_t op = TW_REDUCE_SUM,
                             const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  if (!detail::fit<S, R>(std::ranges::size(send), std::ranges::size(recv))) return TW_ERR_INVALID;
  return tw_scan(group, std::ranges::data(send), std::ranges::data(recv), std::ranges::size(send), detail::type_of<R>, op,
                 options, request);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status exclusive_scan(tw_group* group, const S& send, R&& recv, uint32_t op = TW_REDUCE_SUM,
                                       const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  if (!detail::fit<S, R>(std::ranges::size(send), std::ranges::size(recv))) return TW_ERR_INVALID;
  return tw_exclusive_scan(group, std::ranges::data(send), std::ranges::data(recv), std::ranges::size(send), detail::type_of<R>,
                           op, options, request);
}
// The v forms. counts (and offsets, where they are not empty: elements) have an entry for each rank, and fit the buffers.

namespace detail {
using Counts = std::span<const size_t>;
inline const size_t* offsets_or_null(Counts offsets) noexcept { return offsets.empty() ? nullptr : offsets.data(); }
/// Entries for each rank, which reach no further than the buffer does.
inline bool reaches(const tw_group* group, Counts counts, Counts offsets, size_t room) noexcept {
  if (counts.size() != tw_group_size(group) || (!offsets.empty() && offsets.size() != counts.size())) return false;
  for (size_t i = 0, at = 0; i < counts.size(); at += counts[i++]) {
    if (!offsets.empty()) at = offsets[i];
    if (counts[i] != 0 && (at > room || counts[i] > room - at)) return false;
  }
  return true;
}
}  // namespace detail

template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status reduce_scatterv(tw_group* group, const S& send, R&& recv, std::span<const size_t> counts,
                                        uint32_t op = TW_REDUCE_SUM, const tw_collective_options* options = nullptr,
                                        tw_request* request = nullptr) noexcept {
  if (!detail::reaches(group, counts, {}, std::ranges::size(send))) return TW_ERR_INVALID;
  if (!detail::fit<S, R>(counts[tw_group_rank(group)], std::ranges::size(recv))) return TW_ERR_INVALID;
  return tw_reduce_scatterv(group, std::ranges::data(send), std::ranges::data(recv), counts.data(), detail::type_of<R>, op,
                            options, request);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status allgatherv(tw_group* group, const S& send, R&& recv, std::span<const size_t> counts,
                                   std::span<const size_t> offsets = {}, const tw_collective_options* options = nullptr,
                                   tw_request* request = nullptr) noexcept {
  if (!detail::reaches(group, counts, offsets, std::ranges::size(recv))) return TW_ERR_INVALID;
  if (!detail::fit<S, R>(std::ranges::size(send), counts[tw_group_rank(group)])) return TW_ERR_INVALID;
  return tw_allgatherv(group, std::ranges::data(send), std::ranges::data(recv), counts.data(), detail::offsets_or_null(offsets),
                       detail::type_of<R>, options, request);
}
/// recv, counts and offsets are root's; elsewhere they may be empty.
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status gatherv(tw_group* group, const S& send, R&& recv, std::span<const size_t> counts, uint32_t root,
                                std::span<const size_t> offsets = {}, const tw_collective_options* options = nullptr,
                                tw_request* request = nullptr) noexcept {
  const bool here = tw_group_rank(group) == root;
  if (here && !detail::reaches(group, counts, offsets, std::ranges::size(recv))) return TW_ERR_INVALID;
  if (!detail::fit<S, R>(std::ranges::size(send), here ? counts[root] : std::ranges::size(send))) return TW_ERR_INVALID;
  return tw_gatherv(group, std::ranges::data(send), std::ranges::size(send), std::ranges::data(recv), counts.data(),
                    detail::offsets_or_null(offsets), detail::type_of<R>, root, options, request);
}
/// send, counts and offsets are root's; elsewhere they may be empty.
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status scatterv(tw_group* group, const S& send, R&& recv, std::span<const size_t> counts, uint32_t root,
                                 std::span<const size_t> offsets = {}, const tw_collective_options* options = nullptr,
                                 tw_request* request = nullptr) noexcept {
  const bool here = tw_group_rank(group) == root;
  if (here && !detail::reaches(group, counts, offsets, std::ranges::size(send))) return TW_ERR_INVALID;
  if (!detail::fit<S, R>(here ? counts[root] : std::ranges::size(recv), std::ranges::size(recv))) return TW_ERR_INVALID;
  return tw_scatterv(group, std::ranges::data(send), counts.data(), detail::offsets_or_null(offsets), std::ranges::data(recv),
                     std::ranges::size(recv), detail::type_of<R>, root, options, request);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status alltoallv(tw_group* group, const S& send, std::span<const size_t> send_counts, R&& recv,
                                  std::span<const size_t> recv_counts, std::span<const size_t> send_offsets = {},
                                  std::span<const size_t> recv_offsets = {}, const tw_collective_options* options = nullptr,
                                  tw_request* request = nullptr) noexcept {
  static_assert(detail::type_of<S> == detail::type_of<R>, "what is sent and what is received have different types");
  if (!detail::reaches(group, send_counts, send_offsets, std::ranges::size(send))) return TW_ERR_INVALID;
  if (!detail::reaches(group, recv_counts, recv_offsets, std::ranges::size(recv))) return TW_ERR_INVALID;
  return tw_alltoallv(group, std::ranges::data(send), send_counts.data(), detail::offsets_or_null(send_offsets),
                      std::ranges::data(recv), recv_counts.data(), detail::offsets_or_null(recv_offsets), detail::type_of<R>,
                      options, request);
}
/// tw_group_explain.
[[nodiscard]] inline std::string explain(tw_group* group, const char* collective, size_t count, uint32_t type = TW_TYPE_FLOAT32,
                                         const tw_collective_options* options = nullptr) {
  return detail::text_of(
      [&](char* to, size_t* size) { return tw_group_explain(group, collective, count, type, options, to, size); });
}

}  // namespace thalweg
