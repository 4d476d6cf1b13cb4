// SPDX-License-Identifier: Apache-2.0
// collective_forms.hpp: what the forms of a collective share (a call, one on a queue, a part of a plan): the parameters of each
// with their defaults, and how its buffers' lengths fit together. Part of thalweg.hpp, for collectives.hpp and plans.hpp.
#pragma once
#include <thalweg/collectives.h>
#include <thalweg/core.hpp>

#include <algorithm>
#include <ranges>
#include <span>
#include <type_traits>

namespace thalweg {

/// TW_TYPE_* of a C++ type.
template <class T>
inline constexpr uint32_t element_type = UINT32_MAX;
template <>
inline constexpr uint32_t element_type<float> = TW_TYPE_FLOAT32;
template <>
inline constexpr uint32_t element_type<double> = TW_TYPE_FLOAT64;
template <>
inline constexpr uint32_t element_type<int8_t> = TW_TYPE_INT8;
template <>
inline constexpr uint32_t element_type<int16_t> = TW_TYPE_INT16;
template <>
inline constexpr uint32_t element_type<int32_t> = TW_TYPE_INT32;
template <>
inline constexpr uint32_t element_type<int64_t> = TW_TYPE_INT64;
template <>
inline constexpr uint32_t element_type<uint8_t> = TW_TYPE_UINT8;
template <>
inline constexpr uint32_t element_type<bool> = TW_TYPE_BOOL;

namespace detail {

using Counts = std::span<const size_t>;

template <class R>
concept Elements = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                   element_type<std::remove_cv_t<std::ranges::range_value_t<R>>> != UINT32_MAX;
template <Elements R>
inline constexpr uint32_t type_of = element_type<std::remove_cv_t<std::ranges::range_value_t<R>>>;

/// A form takes the three functions of a collective, and calls its own. refuse(): the lengths do not fit together.
struct Called {
  tw_request* request;
  template <class Call, class On, class Planned, class... Args>
  [[nodiscard]] tw_status operator()(Call call, On, Planned, tw_group* group, Args... args) const noexcept {
    return call(group, args..., request);
  }
  static tw_status refuse() noexcept { return TW_ERR_INVALID; }
};
struct OnQueue {
  tw_queue* queue;
  template <class Call, class On, class Planned, class... Args>
  [[nodiscard]] tw_status operator()(Call, On on, Planned, tw_group* group, Args... args) const noexcept {
    return on(queue, group, args...);
  }
  static tw_status refuse() noexcept { return TW_ERR_INVALID; }
};
struct InPlan {
  tw_plan* plan;
  uint32_t* step;
  template <class Call, class On, class Planned, class... Args>
  [[nodiscard]] tw_status operator()(Call, On, Planned planned, tw_group* group, Args... args) const noexcept {
    return planned(plan, group, args..., step);
  }
  [[noreturn]] static tw_status refuse() {
    throw Error(TW_ERR_INVALID, "the buffers of a collective do not have the lengths, or the counts, that fit together");
  }
};

/// Both have the same elements, and as many of them as the collective says.
template <Elements S, Elements R>
bool fit(size_t sent, size_t received) {
  static_assert(type_of<S> == type_of<R>, "what is sent and what is received have different types");
  return sent == received;
}
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

template <class Form>
tw_status barrier(const Form& form, tw_group* group, const tw_collective_options* options = nullptr) {
  return form(tw_barrier, tw_barrier_on, tw_plan_barrier, group, options);
}
template <class Form, Elements R>
tw_status broadcast(const Form& form, tw_group* group, R&& buffer, uint32_t root,
                    const tw_collective_options* options = nullptr) {
  return form(tw_broadcast, tw_broadcast_on, tw_plan_broadcast, group, std::ranges::data(buffer), std::ranges::size(buffer),
              type_of<R>, root, options);
}
/// In place.
template <class Form, Elements R>
tw_status allreduce(const Form& form, tw_group* group, R&& buffer, uint32_t op = TW_REDUCE_SUM,
                    const tw_collective_options* options = nullptr) {
  return form(tw_allreduce, tw_allreduce_on, tw_plan_allreduce, group, TW_IN_PLACE, std::ranges::data(buffer),
              std::ranges::size(buffer), type_of<R>, op, options);
}
template <class Form, Elements S, Elements R>
tw_status allreduce(const Form& form, tw_group* group, const S& send, R&& recv, uint32_t op = TW_REDUCE_SUM,
                    const tw_collective_options* options = nullptr) {
  if (!fit<S, R>(std::ranges::size(send), std::ranges::size(recv))) return Form::refuse();
  return form(tw_allreduce, tw_allreduce_on, tw_plan_allreduce, group, std::ranges::data(send), std::ranges::data(recv),
              std::ranges::size(send), type_of<R>, op, options);
}
/// recv is root's; elsewhere it may be empty.
template <class Form, Elements S, Elements R>
tw_status reduce(const Form& form, tw_group* group, const S& send, R&& recv, uint32_t root, uint32_t op = TW_REDUCE_SUM,
                 const tw_collective_options* options = nullptr) {
  const bool here = tw_group_rank(group) == root;
  if (!fit<S, R>(std::ranges::size(send), here ? std::ranges::size(recv) : std::ranges::size(send))) return Form::refuse();
  return form(tw_reduce, tw_reduce_to_root_on, tw_plan_reduce_to_root, group, std::ranges::data(send), std::ranges::data(recv),
              std::ranges::size(send), type_of<R>, op, root, options);
}
template <class Form, Elements S, Elements R>
tw_status reduce_scatter(const Form& form, tw_group* group, const S& send, R&& recv, uint32_t op = TW_REDUCE_SUM,
                         const tw_collective_options* options = nullptr) {
  if (!fit<S, R>(std::ranges::size(send), std::ranges::size(recv) * tw_group_size(group))) return Form::refuse();
  return form(tw_reduce_scatter, tw_reduce_scatter_on, tw_plan_reduce_scatter, group, std::ranges::data(send),
              std::ranges::data(recv), std::ranges::size(recv), type_of<R>, op, options);
}
template <class Form, Elements S, Elements R>
tw_status allgather(const Form& form, tw_group* group, const S& send, R&& recv,
                    const tw_collective_options* options = nullptr) {
  if (!fit<S, R>(std::ranges::size(send) * tw_group_size(group), std::ranges::size(recv))) return Form::refuse();
  return form(tw_allgather, tw_allgather_on, tw_plan_allgather, group, std::ranges::data(send), std::ranges::data(recv),
              std::ranges::size(send), type_of<R>, options);
}
template <class Form, Elements S, Elements R>
tw_status gather(const Form& form, tw_group* group, const S& send, R&& recv, uint32_t root,
                 const tw_collective_options* options = nullptr) {
  const size_t whole = std::ranges::size(send) * tw_group_size(group);
  if (!fit<S, R>(whole, tw_group_rank(group) == root ? std::ranges::size(recv) : whole)) return Form::refuse();
  return form(tw_gather, tw_gather_on, tw_plan_gather, group, std::ranges::data(send), std::ranges::data(recv),
              std::ranges::size(send), type_of<R>, root, options);
}
template <class Form, Elements S, Elements R>
tw_status scatter(const Form& form, tw_group* group, const S& send, R&& recv, uint32_t root,
                  const tw_collective_options* options = nullptr) {
  const size_t whole = std::ranges::size(recv) * tw_group_size(group);
  if (!fit<S, R>(tw_group_rank(group) == root ? std::ranges::size(send) : whole, whole)) return Form::refuse();
  return form(tw_scatter, tw_scatter_on, tw_plan_scatter, group, std::ranges::data(send), std::ranges::data(recv),
              std::ranges::size(recv), type_of<R>, root, options);
}
template <class Form, Elements S, Elements R>
tw_status alltoall(const Form& form, tw_group* group, const S& send, R&& recv, const tw_collective_options* options = nullptr) {
  const size_t count = std::ranges::size(send) / std::max<size_t>(1, tw_group_size(group));
  if (!fit<S, R>(std::ranges::size(send), std::ranges::size(recv)) || count * tw_group_size(group) != std::ranges::size(send))
    return Form::refuse();
  return form(tw_alltoall, tw_alltoall_on, tw_plan_alltoall, group, std::ranges::data(send), std::ranges::data(recv), count,
              type_of<R>, options);
}
template <class Form, Elements S, Elements R>
tw_status scan(const Form& form, tw_group* group, const S& send, R&& recv, uint32_t op = TW_REDUCE_SUM,
               const tw_collective_options* options = nullptr) {
  if (!fit<S, R>(std::ranges::size(send), std::ranges::size(recv))) return Form::refuse();
  return form(tw_scan, tw_scan_on, tw_plan_scan, group, std::ranges::data(send), std::ranges::data(recv),
              std::ranges::size(send), type_of<R>, op, options);
}
template <class Form, Elements S, Elements R>
tw_status exclusive_scan(const Form& form, tw_group* group, const S& send, R&& recv, uint32_t op = TW_REDUCE_SUM,
                         const tw_collective_options* options = nullptr) {
  if (!fit<S, R>(std::ranges::size(send), std::ranges::size(recv))) return Form::refuse();
  return form(tw_exclusive_scan, tw_exclusive_scan_on, tw_plan_exclusive_scan, group, std::ranges::data(send),
              std::ranges::data(recv), std::ranges::size(send), type_of<R>, op, options);
}

// The v forms. counts (and offsets, where they are not empty: elements) have an entry for each rank, and fit the buffers.

template <class Form, Elements S, Elements R>
tw_status reduce_scatterv(const Form& form, tw_group* group, const S& send, R&& recv, Counts counts,
                          uint32_t op = TW_REDUCE_SUM, const tw_collective_options* options = nullptr) {
  if (!reaches(group, counts, {}, std::ranges::size(send)) || !fit<S, R>(counts[tw_group_rank(group)], std::ranges::size(recv)))
    return Form::refuse();
  return form(tw_reduce_scatterv, tw_reduce_scatterv_on, tw_plan_reduce_scatterv, group, std::ranges::data(send),
              std::ranges::data(recv), counts.data(), type_of<R>, op, options);
}
template <class Form, Elements S, Elements R>
tw_status allgatherv(const Form& form, tw_group* group, const S& send, R&& recv, Counts counts, Counts offsets = {},
                     const tw_collective_options* options = nullptr) {
  if (!reaches(group, counts, offsets, std::ranges::size(recv)) ||
      !fit<S, R>(std::ranges::size(send), counts[tw_group_rank(group)]))
    return Form::refuse();
  return form(tw_allgatherv, tw_allgatherv_on, tw_plan_allgatherv, group, std::ranges::data(send), std::ranges::data(recv),
              counts.data(), offsets_or_null(offsets), type_of<R>, options);
}
/// recv, counts and offsets are root's; elsewhere they may be empty.
template <class Form, Elements S, Elements R>
tw_status gatherv(const Form& form, tw_group* group, const S& send, R&& recv, Counts counts, uint32_t root, Counts offsets = {},
                  const tw_collective_options* options = nullptr) {
  const bool here = tw_group_rank(group) == root;
  if (here && !reaches(group, counts, offsets, std::ranges::size(recv))) return Form::refuse();
  if (!fit<S, R>(std::ranges::size(send), here ? counts[root] : std::ranges::size(send))) return Form::refuse();
  return form(tw_gatherv, tw_gatherv_on, tw_plan_gatherv, group, std::ranges::data(send), std::ranges::size(send),
              std::ranges::data(recv), counts.data(), offsets_or_null(offsets), type_of<R>, root, options);
}
/// send, counts and offsets are root's; elsewhere they may be empty.
template <class Form, Elements S, Elements R>
tw_status scatterv(const Form& form, tw_group* group, const S& send, R&& recv, Counts counts, uint32_t root,
                   Counts offsets = {}, const tw_collective_options* options = nullptr) {
  const bool here = tw_group_rank(group) == root;
  if (here && !reaches(group, counts, offsets, std::ranges::size(send))) return Form::refuse();
  if (!fit<S, R>(here ? counts[root] : std::ranges::size(recv), std::ranges::size(recv))) return Form::refuse();
  return form(tw_scatterv, tw_scatterv_on, tw_plan_scatterv, group, std::ranges::data(send), counts.data(),
              offsets_or_null(offsets), std::ranges::data(recv), std::ranges::size(recv), type_of<R>, root, options);
}
template <class Form, Elements S, Elements R>
tw_status alltoallv(const Form& form, tw_group* group, const S& send, Counts send_counts, R&& recv, Counts recv_counts,
                    Counts send_offsets = {}, Counts recv_offsets = {}, const tw_collective_options* options = nullptr) {
  static_assert(type_of<S> == type_of<R>, "what is sent and what is received have different types");
  if (!reaches(group, send_counts, send_offsets, std::ranges::size(send))) return Form::refuse();
  if (!reaches(group, recv_counts, recv_offsets, std::ranges::size(recv))) return Form::refuse();
  return form(tw_alltoallv, tw_alltoallv_on, tw_plan_alltoallv, group, std::ranges::data(send), send_counts.data(),
              offsets_or_null(send_offsets), std::ranges::data(recv), recv_counts.data(), offsets_or_null(recv_offsets),
              type_of<R>, options);
}

}  // namespace detail

}  // namespace thalweg
