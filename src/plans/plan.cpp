// SPDX-License-Identifier: Apache-2.0
// The life of a plan: steps are added, it is prepared, and released.
#include "plans/plan.hpp"

#include "core/c_checks.hpp"
#include "plans/queue.hpp"

using namespace thalweg::impl;

tw_plan::tw_plan(Proxy& of, const PlanOptions& options)
    : proxy(of),
      place_(options.place),
      resolved_(list_),
      pieces_(list_, resolved_, options.chunk_bytes),
      program_(list_, resolved_, pieces_, options.blocks),
      versions_(&runs_),
      failure_(
          list_, resolved_, program_, [this](Status status, const std::string& why) { channels_.fail_ends(status, why); },
          [this] { return runs_.runs_over_now(); }),
      carried_(of, list_, resolved_, pieces_, failure_),
      channels_(of, list_, resolved_, runs_, options.kept),
      runs_(of, list_, resolved_, program_, failure_, carried_, channels_, versions_, options.timeout_ns, options.kept) {
  proxy.users_.fetch_add(1);
  proxy.context.traffic.add(runs_.moved());
}

tw_plan::~tw_plan() {
  channels_.abandon();
  list_.clear();
  // A peer that has not given a buffer back may still store there.
  for (const Scratch& one : scratch_) {
    if (channels_.owed().empty()) one.near->shared().free(one.address, one.length);
  }
  proxy.context.traffic.remove(runs_.moved());
  proxy.users_.fetch_sub(1);
}

Status tw_plan::check_open() const {
  if (Status s = born.check("plan"); is_error(s)) return s;
  if (prepared_) return fail(TW_ERR_INVALID, "the plan is prepared: steps are added before that; make another plan");
  return TW_OK;
}

Status tw_plan::add(PlanStep&& step, const tw_op_options& options, uint32_t* number) {
  if (Status s = check_open(); is_error(s)) return s;
  return list_.add(std::move(step), options, number);
}

Status tw_plan::executor_for(Device* device, Executor** out) {
  if (Status s = choose_executor(list_, place_, proxy, out); is_error(s)) return s;
  const bool chosen = !place_.empty() || (*out)->device() != nullptr;
  return chosen || device == nullptr ? Status{TW_OK} : proxy.executor(device, out);
}

Status tw_plan::take_scratch(Executor& near, size_t length, uint64_t* address) {
  *address = 0;
  if (length == 0) return TW_OK;
  if (Status s = near.shared().allocate(length, address); is_error(s)) return s;
  scratch_.push_back({&near, *address, length});
  return TW_OK;
}

Status tw_plan::prepare(uint64_t limit_ns) {
  if (Status s = born.check("plan"); is_error(s)) return s;
  if (list_.empty()) return fail(TW_ERR_INVALID, "the plan has no steps");
  if (prepared_) {
    if (Status s = at_rest(); is_error(s)) return s;
    // Whatever the two ends think of their channels, they begin anew; once, where several plans use them.
    channels_.fail_ends(TW_ERR_STALE, "a plan that uses the channel was prepared again");
  }
  const Deadline deadline(limit_ns == 0 ? 30 * kSecond : limit_ns);
  tw_queue::forget(*this);  // other threads may ask queues how their plans are
  if (Status s = release(); is_error(s)) return s;
  if (Status s = choose_executor(list_, place_, proxy, &executor_); is_error(s)) return s;
  if (executor_->device() != nullptr && !kernels_wait_) kernels_wait_.emplace();
  if (const Status status = prepare_parts(deadline); is_error(status)) {
    const std::string why = last_error();
    release();
    set_last_error(why);
    return status;
  }
  prepared_ = true;
  return TW_OK;
}

Status tw_plan::prepare_parts(const Deadline& deadline) {
  if (Status s = program_.part(); is_error(s)) return s;
  if (Status s = failure_.allocate(*executor_); is_error(s)) return s;
  failure_.watch_ranks();
  if (Status s = resolved_.resolve(*executor_, deadline); is_error(s)) return s;
  if (Status s = channels_.open(*executor_, deadline); is_error(s)) return s;
  if (Status s = divide(); is_error(s)) return s;
  if (Status s = carried_.make(*executor_, deadline); is_error(s)) return s;
  if (Status s = program_.build(*executor_); is_error(s)) return s;
  runs_.begin(*executor_);
  resolved_.name_peers();
  return TW_OK;
}

Status tw_plan::divide() {
  pieces_.divide(*executor_);
  for (size_t i = 0; i < list_.size(); ++i) {
    if (list_[i].op.verb != Verb::reduce || !pieces_.cut(i)) continue;
    std::vector<uint64_t> offsets;
    for (uint32_t k = 0; k < pieces_.count(i); ++k) offsets.push_back(pieces_.range(i, k).offset);
    if (Status s = resolved_.cut_sources(i, offsets); is_error(s)) return s;
  }
  return TW_OK;
}

Status tw_plan::release() {
  if (prepared_) failure_.tell();
  if (Status s = carried_.unwatch(); is_error(s)) return s;
  for (const Resolved& one : resolved_) {
    if (one.channel != nullptr && one.recv_buffer >= 0) channels_.owe(one.channel, static_cast<uint16_t>(one.recv_buffer));
  }
  for (const Outdated& one : versions_.outdated()) {
    if (one.channel != nullptr) channels_.owe(one.channel, one.recv_buffer);
  }
  runs_.forget_owner_words();
  channels_.leave(prepared_);
  channels_.take_back();
  resolved_.release();
  pieces_.release();
  program_.release();
  for (const Outdated& one : versions_.outdated()) {
    executor_->own().free(one.placed.first, one.placed.second);
    executor_->own().free(one.table.first, one.table.second);
  }
  failure_.release();
  prepared_ = false;
  carried_.release();
  runs_.release();
  versions_.release();
  return TW_OK;
}
