// SPDX-License-Identifier: Apache-2.0
// collectives.hpp: the C++ view of collectives.h. Part of thalweg.hpp, whose conventions hold.
//
//   std::vector<float> gradient = ...;
//   if (thalweg::allreduce(group, gradient) != TW_OK) ...                      // in place
//   tw_request request;
//   ... = thalweg::alltoall(group, out, in, nullptr, &request);
//   ... = queue.allreduce(group, gradient);              // plans.hpp: after the queue's earlier work
//   plan.allreduce(group, gradient);                     // plans.hpp: a part of a plan
//
// Each has the type of its elements from its buffers; other types (float16, bfloat16, float8) go by the functions of collectives.h.
#pragma once
#include <thalweg/collectives.h>
#include <thalweg/collective_forms.hpp>
#include <thalweg/core.hpp>
#include <thalweg/plans.hpp>

namespace thalweg {

struct CollectiveOptions : tw_collective_options {
  CollectiveOptions() : tw_collective_options TW_COLLECTIVE_OPTIONS_INIT {}
};

[[nodiscard]] inline tw_status barrier(tw_group* group, const tw_collective_options* options = nullptr,
                                       tw_request* request = nullptr) noexcept {
  return detail::barrier(detail::Called{request}, group, options);
}
template <detail::Elements R>
[[nodiscard]] tw_status broadcast(tw_group* group, R&& buffer, uint32_t root, const tw_collective_options* options = nullptr,
                                  tw_request* request = nullptr) noexcept {
  return detail::broadcast(detail::Called{request}, group, buffer, root, options);
}
/// In place.
template <detail::Elements R>
[[nodiscard]] tw_status allreduce(tw_group* group, R&& buffer, uint32_t op = TW_REDUCE_SUM,
                                  const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  return detail::allreduce(detail::Called{request}, group, buffer, op, options);
}
/// TW_ERR_INVALID, also of those below: the lengths do not fit together.
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status allreduce(tw_group* group, const S& send, R&& recv, uint32_t op = TW_REDUCE_SUM,
                                  const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  return detail::allreduce(detail::Called{request}, group, send, recv, op, options);
}
/// recv is root's; elsewhere it may be empty.
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status reduce(tw_group* group, const S& send, R&& recv, uint32_t root, uint32_t op = TW_REDUCE_SUM,
                               const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  return detail::reduce(detail::Called{request}, group, send, recv, root, op, options);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status reduce_scatter(tw_group* group, const S& send, R&& recv, uint32_t op = TW_REDUCE_SUM,
                                       const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  return detail::reduce_scatter(detail::Called{request}, group, send, recv, op, options);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status allgather(tw_group* group, const S& send, R&& recv, const tw_collective_options* options = nullptr,
                                  tw_request* request = nullptr) noexcept {
  return detail::allgather(detail::Called{request}, group, send, recv, options);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status gather(tw_group* group, const S& send, R&& recv, uint32_t root,
                               const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  return detail::gather(detail::Called{request}, group, send, recv, root, options);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status scatter(tw_group* group, const S& send, R&& recv, uint32_t root,
                                const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  return detail::scatter(detail::Called{request}, group, send, recv, root, options);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status alltoall(tw_group* group, const S& send, R&& recv, const tw_collective_options* options = nullptr,
                                 tw_request* request = nullptr) noexcept {
  return detail::alltoall(detail::Called{request}, group, send, recv, options);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status scan(tw_group* group, const S& send, R&& recv, uint32_t op = TW_REDUCE_SUM,
                             const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  return detail::scan(detail::Called{request}, group, send, recv, op, options);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status exclusive_scan(tw_group* group, const S& send, R&& recv, uint32_t op = TW_REDUCE_SUM,
                                       const tw_collective_options* options = nullptr, tw_request* request = nullptr) noexcept {
  return detail::exclusive_scan(detail::Called{request}, group, send, recv, op, options);
}
// The v forms. counts (and offsets, where they are not empty: elements) have an entry for each rank, and fit the buffers.

template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status reduce_scatterv(tw_group* group, const S& send, R&& recv, std::span<const size_t> counts,
                                        uint32_t op = TW_REDUCE_SUM, const tw_collective_options* options = nullptr,
                                        tw_request* request = nullptr) noexcept {
  return detail::reduce_scatterv(detail::Called{request}, group, send, recv, counts, op, options);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status allgatherv(tw_group* group, const S& send, R&& recv, std::span<const size_t> counts,
                                   std::span<const size_t> offsets = {}, const tw_collective_options* options = nullptr,
                                   tw_request* request = nullptr) noexcept {
  return detail::allgatherv(detail::Called{request}, group, send, recv, counts, offsets, options);
}
/// recv, counts and offsets are root's; elsewhere they may be empty.
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status gatherv(tw_group* group, const S& send, R&& recv, std::span<const size_t> counts, uint32_t root,
                                std::span<const size_t> offsets = {}, const tw_collective_options* options = nullptr,
                                tw_request* request = nullptr) noexcept {
  return detail::gatherv(detail::Called{request}, group, send, recv, counts, root, offsets, options);
}
/// send, counts and offsets are root's; elsewhere they may be empty.
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status scatterv(tw_group* group, const S& send, R&& recv, std::span<const size_t> counts, uint32_t root,
                                 std::span<const size_t> offsets = {}, const tw_collective_options* options = nullptr,
                                 tw_request* request = nullptr) noexcept {
  return detail::scatterv(detail::Called{request}, group, send, recv, counts, root, offsets, options);
}
template <detail::Elements S, detail::Elements R>
[[nodiscard]] tw_status alltoallv(tw_group* group, const S& send, std::span<const size_t> send_counts, R&& recv,
                                  std::span<const size_t> recv_counts, std::span<const size_t> send_offsets = {},
                                  std::span<const size_t> recv_offsets = {}, const tw_collective_options* options = nullptr,
                                  tw_request* request = nullptr) noexcept {
  return detail::alltoallv(detail::Called{request}, group, send, send_counts, recv, recv_counts, send_offsets, recv_offsets,
                           options);
}
/// tw_alltoallv_counted_on: counts and offsets are rows of `row` elements, in memory that the queue's device reads; of every type.
template <std::ranges::contiguous_range S, std::ranges::contiguous_range R>
[[nodiscard]] tw_status alltoallv_counted_on(tw_queue* queue, tw_group* group, const S& send,
                                             std::span<const uint64_t> send_counts, R&& recv, std::span<uint64_t> recv_counts,
                                             size_t row, std::span<const uint64_t> send_offsets = {},
                                             std::span<const uint64_t> recv_offsets = {},
                                             const tw_collective_options* options = nullptr) noexcept {
  using Sent = std::ranges::range_value_t<S>;
  static_assert(std::is_same_v<Sent, std::remove_cv_t<std::ranges::range_value_t<R>>> && std::is_trivially_copyable_v<Sent>,
                "what is sent and what is received have different types");
  const size_t ranks = tw_group_size(group);
  const auto whole = [ranks](std::span<const uint64_t> offsets) { return offsets.empty() || offsets.size() == ranks; };
  if (row == 0 || send_counts.size() != ranks || recv_counts.size() != ranks || !whole(send_offsets) || !whole(recv_offsets))
    return TW_ERR_INVALID;
  return tw_alltoallv_counted_on(
      queue, group, std::ranges::data(send), send_counts.data(), send_offsets.empty() ? nullptr : send_offsets.data(),
      std::ranges::size(send) / row, std::ranges::data(recv), recv_counts.data(),
      recv_offsets.empty() ? nullptr : recv_offsets.data(), std::ranges::size(recv) / row, row * sizeof(Sent), options);
}
/// tw_group_explain.
[[nodiscard]] inline std::string explain(tw_group* group, const char* collective, size_t count, uint32_t type = TW_TYPE_FLOAT32,
                                         const tw_collective_options* options = nullptr) {
  return detail::text_of(
      [&](char* to, size_t* size) { return tw_group_explain(group, collective, count, type, options, to, size); });
}
/// tw_group_explain_on: of a call on the queue.
[[nodiscard]] inline std::string explain_on(const Queue& queue, tw_group* group, const char* collective, size_t count,
                                            uint32_t type = TW_TYPE_FLOAT32, const tw_collective_options* options = nullptr) {
  return detail::text_of([&](char* to, size_t* size) {
    return tw_group_explain_on(queue.get(), group, collective, count, type, options, to, size);
  });
}
/// ... of one in a plan.
[[nodiscard]] inline std::string explain_planned(tw_group* group, const char* collective, size_t count,
                                                 uint32_t type = TW_TYPE_FLOAT32,
                                                 const tw_collective_options* options = nullptr) {
  return detail::text_of(
      [&](char* to, size_t* size) { return tw_group_explain_on(nullptr, group, collective, count, type, options, to, size); });
}

}  // namespace thalweg
