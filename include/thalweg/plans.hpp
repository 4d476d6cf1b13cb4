// SPDX-License-Identifier: Apache-2.0
// plans.hpp: the C++ view of plans.h. Part of thalweg.hpp, whose conventions hold.
//
//   thalweg::Plan halo;
//   halo.recv(peer, to, face(0), channel).send(peer, from, face(1), channel);
//   halo.prepare();                          // both ends do
//   for (...) { kernel<<<..., stream>>>(...); thalweg::check(halo.trigger(stream)); }
//   thalweg::check(stream);                  // throws what failed on it
//
// Without a stream: for (...) { compute(); thalweg::check(halo.run()); }
#pragma once
#include <thalweg/plans.h>
#include <thalweg/views.h>
#include <thalweg/collective_forms.hpp>
#include <thalweg/options.hpp>

namespace thalweg {

namespace detail {
/// With a layout the buffer is what it lies in.
inline size_t length_of(size_t bytes, const tw_op_options* options) { return options->layout != nullptr ? 0 : bytes; }
inline size_t moved_bytes(size_t bytes, const tw_layout* layout) { return layout != nullptr ? tw_layout_bytes(layout) : bytes; }
}  // namespace detail

/// Captured work, to be launched any number of times.
class [[nodiscard]] Graph {
 public:
  Graph() = default;
  explicit Graph(tw_graph* graph) : handle_(graph) {}
  tw_graph* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<tw_graph, tw_graph_destroy> handle_;
};

/// A stream of a device, or a thread of the host, that runs what is enqueued in order.
class [[nodiscard]] Queue {
 public:
  /// One of the library's: "host", "cuda:1", "emulated:0". waits: TW_WAITS_*, how runs wait for their peers.
  explicit Queue(const Context& context, const char* place = "host", uint32_t waits = TW_WAITS_AUTO) {
    tw_queue* made = nullptr;
    const tw_queue_options options{sizeof options, waits};
    detail::check(tw_queue_create(context.get(), place, &options, &made));
    handle_ = detail::Handle<tw_queue, tw_queue_destroy>(made);
  }
  /// The caller's stream of that device, which must outlive the queue.
  static Queue wrap(const Context& context, void* stream, const char* place, uint32_t waits = TW_WAITS_AUTO) {
    tw_queue* made = nullptr;
    const tw_queue_options options{sizeof options, waits};
    detail::check(tw_queue_wrap(context.get(), stream, place, &options, &made));
    return Queue(made);
  }
  void* native() const noexcept { return tw_queue_native(get()); }
  /// On a host queue: runs fn(arg) in its order.
  [[nodiscard]] tw_status call(void (*fn)(void*), void* arg) const noexcept { return tw_queue_call(get(), fn, arg); }
  [[nodiscard]] tw_status synchronize() const noexcept { return tw_queue_synchronize(get()); }
  /// Throws the first failure of what ran here since the last check. Does not block.
  void check() const { detail::check(tw_queue_check(get())); }
  /// Whether operations of this queue that have not ended, or graphs, use a buffer that begins in this memory. Does not block.
  bool uses(ConstBytes memory) const {
    int in_use = 0;
    detail::check(tw_queue_uses(get(), memory.data(), memory.size(), &in_use));
    return in_use != 0;
  }
  /// What is enqueued from now on is captured instead of run.
  void begin_capture() const { detail::check(tw_queue_begin_capture(get())); }
  Graph end_capture() const {
    tw_graph* graph = nullptr;
    detail::check(tw_queue_end_capture(get(), &graph));
    return Graph(graph);
  }
  /// One operation after the queue's earlier work: a plan of one step, which is prepared at its first call and cached.
  [[nodiscard]] tw_status send(tw_endpoint* to, ConstBytes buffer, uint64_t channel,
                               const OpOptions& options = {}) const noexcept {
    const tw_op_options* const step = options;
    return tw_send_on(get(), to, buffer.data(), detail::length_of(buffer.size(), step), channel, step);
  }
  [[nodiscard]] tw_status recv(tw_endpoint* from, Bytes buffer, uint64_t channel,
                               const OpOptions& options = {}) const noexcept {
    const tw_op_options* const step = options;
    return tw_recv_on(get(), from, buffer.data(), detail::length_of(buffer.size(), step), channel, step);
  }
  [[nodiscard]] tw_status put(tw_endpoint* to, ConstBytes buffer, tw_remote_memory* remote, uint64_t offset,
                              const OpOptions& options = {}) const noexcept {
    const tw_op_options* const step = options;
    return tw_put_on(get(), to, buffer.data(), detail::length_of(buffer.size(), step), remote, offset, step);
  }
  [[nodiscard]] tw_status get(tw_endpoint* from, Bytes buffer, tw_remote_memory* remote, uint64_t offset,
                              const OpOptions& options = {}) const noexcept {
    const tw_op_options* const step = options;
    return tw_get_on(get(), from, buffer.data(), detail::length_of(buffer.size(), step), remote, offset, step);
  }
  [[nodiscard]] tw_status signal(const RemoteSignal& signal, uint64_t value) const noexcept {
    return tw_signal_on(get(), signal.get(), value, nullptr);
  }
  [[nodiscard]] tw_status wait(const Signal& signal, uint64_t value, uint32_t compare = TW_COMPARE_GE) const noexcept {
    return tw_wait_on(get(), signal.get(), value, compare, nullptr);
  }
  /// TW_ERR_INVALID: they are not of the same size.
  [[nodiscard]] tw_status copy(Bytes to, ConstBytes from) const noexcept {
    if (to.size() != from.size()) return TW_ERR_INVALID;
    return tw_copy_on(get(), to.data(), from.data(), from.size(), nullptr);
  }
  [[nodiscard]] tw_status reduce(void* to, const std::vector<tw_source>& sources, size_t count, uint32_t type,
                                 uint32_t op = TW_REDUCE_SUM) const noexcept {
    return tw_reduce_on(get(), to, sources.data(), sources.size(), count, type, op, nullptr);
  }
  /// Collectives of a group after the queue's earlier work (collectives.h). Parameters, defaults: those of thalweg::allreduce
  /// and its like, without the request. The first call with a buffer prepares it, together with the other ranks.
  template <class... Args>
  [[nodiscard]] tw_status barrier(tw_group* group, Args&&... args) const noexcept {
    return detail::barrier(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[nodiscard]] tw_status broadcast(tw_group* group, Args&&... args) const noexcept {
    return detail::broadcast(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[nodiscard]] tw_status reduce_to_root(tw_group* group, Args&&... args) const noexcept {
    return detail::reduce(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[nodiscard]] tw_status allreduce(tw_group* group, Args&&... args) const noexcept {
    return detail::allreduce(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[nodiscard]] tw_status reduce_scatter(tw_group* group, Args&&... args) const noexcept {
    return detail::reduce_scatter(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[nodiscard]] tw_status reduce_scatterv(tw_group* group, Args&&... args) const noexcept {
    return detail::reduce_scatterv(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[nodiscard]] tw_status allgather(tw_group* group, Args&&... args) const noexcept {
    return detail::allgather(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[nodiscard]] tw_status allgatherv(tw_group* group, Args&&... args) const noexcept {
    return detail::allgatherv(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[nodiscard]] tw_status gather(tw_group* group, Args&&... args) const noexcept {
    return detail::gather(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[nodiscard]] tw_status gatherv(tw_group* group, Args&&... args) const noexcept {
    return detail::gatherv(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[nodiscard]] tw_status scatter(tw_group* group, Args&&... args) const noexcept {
    return detail::scatter(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[nodiscard]] tw_status scatterv(tw_group* group, Args&&... args) const noexcept {
    return detail::scatterv(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[nodiscard]] tw_status alltoall(tw_group* group, Args&&... args) const noexcept {
    return detail::alltoall(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[nodiscard]] tw_status alltoallv(tw_group* group, Args&&... args) const noexcept {
    return detail::alltoallv(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[nodiscard]] tw_status scan(tw_group* group, Args&&... args) const noexcept {
    return detail::scan(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[nodiscard]] tw_status exclusive_scan(tw_group* group, Args&&... args) const noexcept {
    return detail::exclusive_scan(detail::OnQueue{get()}, group, std::forward<Args>(args)...);
  }
  [[nodiscard]] tw_status launch(const Graph& graph) const noexcept { return tw_graph_launch(graph.get(), get()); }
  tw_queue* get() const noexcept { return handle_.get(); }

 private:
  explicit Queue(tw_queue* queue) : handle_(queue) {}
  detail::Handle<tw_queue, tw_queue_destroy> handle_;
};

/// Throws the first failure of what ran on the queue or stream since the last check. Does not block.
inline void check(const Queue& queue) { queue.check(); }
inline void check(const void* stream) { detail::check(tw_stream_check(stream)); }

struct PlanOptions : tw_plan_options {
  PlanOptions() : tw_plan_options TW_PLAN_OPTIONS_INIT {}
};

/// Operations prepared once, triggered again and again. Steps are numbered in the order of the calls that add them, which may be
/// chained, and which throw; last() is the newest one's number. A plan made without a context takes that of its first endpoint.
/// The destructor cannot report a busy plan: that stays, and uses its buffers, until its context ends. If buffers end
/// before, call destroy().
class [[nodiscard]] Plan {
 public:
  explicit Plan(const tw_plan_options& options = PlanOptions()) : options_(options) { keep_place(); }
  explicit Plan(const Context& context, const tw_plan_options& options = PlanOptions()) : Plan(options) { make(context.get()); }

  Plan& send(tw_endpoint* to, const void* buffer, const Layout& layout, uint64_t channel, OpOptions options = {}) {
    const tw_op_options* const step = options.layout(layout);
    return added(tw_plan_send(of(to), to, buffer, 0, channel, step, &last_));
  }
  Plan& send(tw_endpoint* to, ConstBytes buffer, uint64_t channel, const OpOptions& options = {}) {
    const tw_op_options* const step = options;
    return added(tw_plan_send(of(to), to, buffer.data(), detail::length_of(buffer.size(), step), channel, step, &last_));
  }
  Plan& recv(tw_endpoint* from, void* buffer, const Layout& layout, uint64_t channel, OpOptions options = {}) {
    const tw_op_options* const step = options.layout(layout);
    return added(tw_plan_recv(of(from), from, buffer, 0, channel, step, &last_));
  }
  Plan& recv(tw_endpoint* from, Bytes buffer, uint64_t channel, const OpOptions& options = {}) {
    const tw_op_options* const step = options;
    return added(tw_plan_recv(of(from), from, buffer.data(), detail::length_of(buffer.size(), step), channel, step, &last_));
  }
  Plan& put(tw_endpoint* to, ConstBytes buffer, tw_remote_memory* remote, uint64_t offset, const OpOptions& options = {}) {
    const tw_op_options* const step = options;
    return added(tw_plan_put(of(to), to, buffer.data(), detail::length_of(buffer.size(), step), remote, offset, step, &last_));
  }
  Plan& get(tw_endpoint* from, Bytes buffer, tw_remote_memory* remote, uint64_t offset, const OpOptions& options = {}) {
    const tw_op_options* const step = options;
    return added(
        tw_plan_get(of(from), from, buffer.data(), detail::length_of(buffer.size(), step), remote, offset, step, &last_));
  }
  /// These need a plan that was made with a context, or has a step with an endpoint.
  Plan& signal(const RemoteSignal& signal, uint64_t value, const OpOptions& options = {}) {
    const tw_op_options* const step = options;
    return added(tw_plan_signal(get(), signal.get(), value, step, &last_));
  }
  Plan& wait(const Signal& signal, uint64_t value, uint32_t compare = TW_COMPARE_GE, const OpOptions& options = {}) {
    const tw_op_options* const step = options;
    return added(tw_plan_wait(get(), signal.get(), value, compare, step, &last_));
  }
  /// Both sides, or what their layouts name of them, have the same number of bytes.
  Plan& copy(Bytes to, ConstBytes from, const OpOptions& options = {}) {
    const tw_op_options* const step = options;
    if (detail::moved_bytes(to.size(), step->remote_layout) != detail::moved_bytes(from.size(), step->layout))
      throw Error(TW_ERR_INVALID, "both sides of a copy have the same number of bytes");
    return added(tw_plan_copy(get(), to.data(), from.data(), detail::length_of(from.size(), step), step, &last_));
  }
  /// to[i] = sources[0][i] op sources[1][i] ...: buffers of this process, of `count` elements. op: TW_REDUCE_*. T: float, double or an
  /// integer; other types, and memory of peers, go by reduce(to, span of tw_source, ...).
  template <class T>
  Plan& reduce(T* to, std::initializer_list<const T*> sources, size_t count, uint32_t op = TW_REDUCE_SUM,
               const OpOptions& options = {}) {
    std::vector<tw_source> all;
    for (const T* source : sources) all.push_back({source, nullptr, 0});
    return reduce(to, all, count, element_type<T>, op, options);
  }
  Plan& reduce(void* to, const std::vector<tw_source>& sources, size_t count, uint32_t type, uint32_t op,
               const OpOptions& options = {}) {
    return added(tw_plan_reduce(get(), to, sources.data(), sources.size(), count, type, op, options, &last_));
  }
  Plan& atomic(tw_endpoint* at, uint32_t op, tw_remote_memory* remote, uint64_t offset, size_t size, uint64_t operand,
               uint64_t compare = 0, void* result = nullptr, const OpOptions& options = {}) {
    const tw_op_options* const step = options;
    return added(tw_plan_atomic(of(at), at, op, remote, offset, size, operand, compare, result, step, &last_));
  }
  /// Collectives of a group as parts of the plan (collectives.h). Parameters and defaults: those of thalweg::allreduce and its
  /// like, without the request.
  template <class... Args>
  Plan& barrier(tw_group* group, Args&&... args) {
    return added(detail::barrier(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  template <class... Args>
  Plan& broadcast(tw_group* group, Args&&... args) {
    return added(detail::broadcast(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  template <class... Args>
  Plan& reduce_to_root(tw_group* group, Args&&... args) {
    return added(detail::reduce(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  template <class... Args>
  Plan& allreduce(tw_group* group, Args&&... args) {
    return added(detail::allreduce(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  template <class... Args>
  Plan& reduce_scatter(tw_group* group, Args&&... args) {
    return added(detail::reduce_scatter(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  template <class... Args>
  Plan& reduce_scatterv(tw_group* group, Args&&... args) {
    return added(detail::reduce_scatterv(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  template <class... Args>
  Plan& allgather(tw_group* group, Args&&... args) {
    return added(detail::allgather(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  template <class... Args>
  Plan& allgatherv(tw_group* group, Args&&... args) {
    return added(detail::allgatherv(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  template <class... Args>
  Plan& gather(tw_group* group, Args&&... args) {
    return added(detail::gather(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  template <class... Args>
  Plan& gatherv(tw_group* group, Args&&... args) {
    return added(detail::gatherv(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  template <class... Args>
  Plan& scatter(tw_group* group, Args&&... args) {
    return added(detail::scatter(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  template <class... Args>
  Plan& scatterv(tw_group* group, Args&&... args) {
    return added(detail::scatterv(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  template <class... Args>
  Plan& alltoall(tw_group* group, Args&&... args) {
    return added(detail::alltoall(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  template <class... Args>
  Plan& alltoallv(tw_group* group, Args&&... args) {
    return added(detail::alltoallv(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  template <class... Args>
  Plan& scan(tw_group* group, Args&&... args) {
    return added(detail::scan(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  template <class... Args>
  Plan& exclusive_scan(tw_group* group, Args&&... args) {
    return added(detail::exclusive_scan(detail::InPlan{of(group), &last_}, group, std::forward<Args>(args)...));
  }
  uint32_t last() const noexcept { return last_; }

  /// Collective over the channels' two ends; throws what is wrong, or TimedOut with the missing channel.
  void prepare(std::chrono::nanoseconds timeout = std::chrono::seconds(30)) {
    detail::check(tw_plan_prepare(get(), detail::nanoseconds(timeout)));
  }
  /// By the host: test() and finish() drive the run and end it.
  [[nodiscard]] tw_status trigger() const noexcept { return tw_plan_trigger(get(), nullptr); }
  [[nodiscard]] tw_status trigger(const Queue& queue) const noexcept { return tw_plan_trigger(get(), queue.get()); }
  /// A CUstream or cudaStream_t of the plan's device that is not wrapped.
  [[nodiscard]] tw_status trigger(void* stream) const noexcept { return tw_plan_trigger_stream(get(), stream); }
  [[nodiscard]] tw_status test() const noexcept { return tw_plan_test(get()); }
  [[nodiscard]] tw_status finish(std::optional<std::chrono::nanoseconds> timeout = {}) const noexcept {
    return tw_plan_finish(get(), detail::nanoseconds(timeout));
  }
  /// By the host, from start to end: trigger() and finish().
  [[nodiscard]] tw_status run(std::optional<std::chrono::nanoseconds> timeout = {}) const noexcept {
    return tw_plan_run(get(), detail::nanoseconds(timeout));
  }
  [[nodiscard]] tw_status update(uint32_t step, const void* address) const noexcept {
    return tw_plan_update(get(), step, address, nullptr);
  }
  [[nodiscard]] tw_status update(uint32_t step, uint64_t value) const noexcept {
    return tw_plan_update(get(), step, nullptr, &value);
  }
  [[nodiscard]] std::string explain() const {
    return detail::text_of([this](char* to, size_t* size) { return tw_plan_explain(get(), to, size); });
  }
  tw_plan* get() const noexcept { return handle_.get(); }
  /// TW_OK: it is destroyed, and its buffers are free. TW_ERR_BUSY: it still exists (tw_plan_destroy).
  [[nodiscard]] tw_status destroy() noexcept { return handle_.end(); }

 private:
  void keep_place() {
    if (options_.place != nullptr) place_ = std::make_unique<std::string>(options_.place);
    if (place_) options_.place = place_->c_str();
  }
  void make(tw_context* context) {
    tw_plan* made = nullptr;
    detail::check(tw_plan_create(context, &options_, &made));
    handle_ = detail::Handle<tw_plan, tw_plan_destroy>(made);
  }
  tw_plan* of(tw_endpoint* endpoint) {
    if (!handle_) make(tw_worker_context(tw_endpoint_worker(endpoint)));
    return get();
  }
  tw_plan* of(const tw_group* group) {
    if (!handle_) make(tw_group_context(group));
    return get();
  }
  Plan& added(tw_status status) {
    detail::check(status);
    return *this;
  }
  tw_plan_options options_;
  std::unique_ptr<std::string> place_;  // stays where it is when the plan moves
  uint32_t last_ = 0;
  detail::Handle<tw_plan, tw_plan_destroy> handle_;
};

}  // namespace thalweg
