// SPDX-License-Identifier: Apache-2.0
#include "model/groups.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "collectives/elements.hpp"
#include "collectives/group_wire.hpp"
#include "core/context.hpp"
#include "core/worker.hpp"
#include "groups/mailbox.hpp"
#include "groups/parts.hpp"
#include "model/job_call.hpp"
#include "model/world.hpp"

namespace thalweg::model {
namespace {

constexpr std::byte kBeside{0xa5};

/// Lives until exit: to make one takes longer than most programs.
tw_worker& core_worker(unsigned index) {
  static tw_context* const context = [] {
    auto* const made = new tw_context;
    made->registry = std::make_unique<Registry>(1);
    return made;
  }();
  thread_local tw_worker* all[kWorkers] = {};
  if (all[index] == nullptr) {
    const tw_worker_options options = TW_WORKER_OPTIONS_INIT;
    all[index] = new tw_worker(*context, options);
    all[index]->engine.reset();
  }
  return *all[index];
}

/// The model's endpoints of one worker, by the worker at the other side.
class ModelPeers final : public Peers {
 public:
  explicit ModelPeers(const std::vector<tw_endpoint*>& ends) : ends_(ends) {}
  Status endpoint(uint32_t rank, tw_endpoint** out) override {
    *out = ends_[rank];
    return *out != nullptr ? TW_OK : TW_ERR_UNSUPPORTED;  // to itself: no collective sends there
  }
  tw_endpoint* made(uint32_t rank) const override { return ends_[rank]; }
  uint64_t sender(uint32_t rank) const override { return ends_[rank] != nullptr ? sender_of(*ends_[rank]) : rank + 1; }

 private:
  std::vector<tw_endpoint*> ends_;
};

}  // namespace

Groups::Groups(World& world) : world_(world), groups_(kGroups) {
  for (unsigned i = 0; i < world_.program_.workers; ++i) {
    tw_worker& worker = core_worker(i);
    (void)worker.engine.release();  // of the last program
    worker.engine.reset(world_.workers_[i].engine.get());
    worker.multi = world_.program_.threads != 0;
  }
  for (unsigned i = 0; i < kGroups; ++i) make_group(i);
}

Groups::~Groups() {
  for (Group& group : groups_) {
    for (auto& one : group.ranks) {
      if (one->running != 0) (void)one.release();  // of a process that has ended in the middle of something
    }
    group.ranks.clear();
  }
  for (unsigned i = 0; i < world_.program_.workers; ++i) core_worker(i).mailbox.reset();
}

void Groups::make_group(unsigned index) {
  Group& group = groups_[index];
  const unsigned all = world_.program_.workers;
  group.workers = ranks_of(world_.program_, index);
  group.called.resize(group.workers.size());
  group.under_way.resize(group.workers.size());
  for (uint32_t rank = 0; rank < group.workers.size(); ++rank) {
    const unsigned worker = group.workers[rank];
    std::unique_ptr<tw_group>& made = group.ranks.emplace_back();
    if (index == 0) {
      made = std::make_unique<tw_group>(core_worker(worker), rank, all, kSecond);
      std::vector<tw_endpoint*> ends(all);
      for (unsigned to = 0; to < all; ++to) ends[to] = to != worker ? &world_.end(worker, to).handle : nullptr;
      made->peers = std::make_shared<ModelPeers>(ends);
      made->id = 1;
      made->hosts.assign(all, 1);
      made->costs.message_ns = 400;  // choices do not depend on the machine
      made->costs.byte_ns = 0.1;
      made->costs.host_message_ns = 4000;
      made->costs.host_byte_ns = 0.1;
    } else if (is_error(make_part(*groups_[0].ranks[worker], group.workers, index, &made))) {
      std::abort();
    }
    if ((world_.program_.counters & kCountCollectives) != 0) made->started = kLastNumber - 1 - world_.program_.seed / 64 % 4;
  }
}

// ------------------------------------------------------------------------------------------------ calls

void Groups::begin(const Op& op) {
  Group& group = groups_[op.tag % kGroups];
  group.jobs.push_back(job_of(world_.program_, op));
  const auto own = std::find(group.workers.begin(), group.workers.end(), op.worker);
  if (own == group.workers.end()) return;
  const auto rank = static_cast<uint32_t>(own - group.workers.begin());
  while (group.called[rank] + 1 < group.jobs.size() && call_next(group, rank, 0)) {
  }
  if (group.called[rank] < group.jobs.size() && !world_.dead(op.worker)) call(group, rank, op.id, op.flags);
}

void Groups::join(const Op& op) {
  Group& group = groups_[op.tag % kGroups];
  const auto own = std::find(group.workers.begin(), group.workers.end(), op.worker);
  if (own != group.workers.end()) call_next(group, static_cast<uint32_t>(own - group.workers.begin()), op.flags);
}

bool Groups::call_the_rest() {
  bool any = false;
  for (Group& group : groups_) {
    for (uint32_t rank = 0; rank < group.workers.size(); ++rank) {
      while (world_.failure_.empty() && call_next(group, rank, 0)) any = true;
    }
  }
  return any;
}

bool Groups::call_next(Group& group, uint32_t rank, uint32_t flags) {
  const unsigned worker = group.workers[rank];
  if (group.called[rank] == group.jobs.size() || world_.dead(worker)) return false;
  world_.stir(world_.workers_[worker]);
  call(group, rank, world_.extra_id_++, flags);
  return true;
}

Groups::Room Groups::room(unsigned worker, const Side& side, uint32_t flags, size_t element) {
  if (!side.used || side.placed) return {};
  Host* const library = (flags & kLibrary) != 0 ? world_.workers_[worker].host : nullptr;
  Room made{&world_.buffers_.take(library, Shape(side.before.size() + element - 1, false), kKinds[side.kind]), 0};
  made.at = (0 - reinterpret_cast<uintptr_t>(made.buffer->address())) % element;
  std::memset(made.buffer->data(), std::to_integer<int>(kBeside), made.buffer->length());
  if (!side.before.empty()) std::memcpy(made.buffer->data() + made.at, side.before.data(), side.before.size());
  return made;
}

void Groups::call(Group& group, uint32_t rank, uint32_t id, uint32_t flags) {
  const unsigned worker = group.workers[rank];
  const Job& job = group.jobs[group.called[rank]++];
  Posted& posted = world_.fresh(id, What::collective, flags & ~uint32_t{kDetached}, worker, kAnyone);
  posted.collective = static_cast<uint32_t>(calls_.size());
  Call& call = calls_.emplace_back();
  call.group = &group;
  call.job = &job;
  call.rank = rank;
  call.element = impl::element_size(job.type);
  call.send = room(worker, job.shares[rank].send, flags, call.element);
  call.recv = room(worker, job.shares[rank].recv, flags, call.element);
  const auto on_device = [](const Room& one) { return one.buffer != nullptr && one.buffer->info.device != nullptr; };
  if (combines(job.verb) && call.recv.buffer != nullptr && call.send.buffer != nullptr &&
      on_device(call.send) != on_device(call.recv)) {
    Side send = job.shares[rank].send, recv = job.shares[rank].recv;  // the device's memory is used up
    send.kind = recv.kind = 0;
    call.send = room(worker, send, flags, call.element);
    call.recv = room(worker, recv, flags, call.element);
  }
  call.among = group.under_way[rank] != 0;
  call.wraps = group.ranks[rank]->started >= kLastNumber;
  tw_collective_options options = options_of(job);
  if ((posted.flags & kCallback) != 0) {
    options.callback = World::called_back;
    options.arg = &posted;
  }
  ++group.under_way[rank];
  const auto place = [](const Side& side, const Room& room) -> void* {
    if (side.placed) return TW_IN_PLACE;
    return room.buffer != nullptr ? room.buffer->address() + room.at : nullptr;
  };
  const Share& share = job.shares[rank];
  const Status status = model::call({group.ranks[rank].get(), options, &posted.request, nullptr, nullptr}, job, rank,
                                    place(share.send, call.send), place(share.recv, call.recv));
  if (status == TW_OK) return world_.wrong(posted, "it returned ok, and goes on in progress");
  world_.posted(posted, status);
}

// ------------------------------------------------------------------------------------------------ ends

bool Groups::is_broken(const Group& group) const {
  for (const unsigned a : group.workers) {
    for (const unsigned b : group.workers) {
      if (a != b && world_.ends_[a][b]->broken) return true;
    }
  }
  return false;
}

bool Groups::names_a_broken_rank(const Group& group, const std::string& text) const {
  for (uint32_t rank = 0; rank < group.workers.size(); ++rank) {
    const auto is_to = [&](unsigned other) {
      return other != group.workers[rank] && world_.ends_[group.workers[rank]][other]->broken;
    };
    const bool broken = std::any_of(group.workers.begin(), group.workers.end(), is_to);
    if (broken && text.find("rank " + std::to_string(rank)) != std::string::npos) return true;
  }
  return false;
}

bool Groups::check_side(const Side& side, const Room& room, const Bytes& bytes) const {
  if (room.buffer == nullptr) return true;
  const std::byte* const begin = room.buffer->data();
  for (uint64_t i = 0; i < room.buffer->length(); ++i) {
    const bool inside = i >= room.at && i < room.at + side.before.size();
    if (!inside && begin[i] != kBeside) return false;
  }
  return bytes.empty() || std::memcmp(begin + room.at, bytes.data(), bytes.size()) == 0;
}

void Groups::ended(Posted& posted, Status status) {
  Call& call = calls_[posted.collective];
  const Group& group = *call.group;
  const Share& share = call.job->shares[call.rank];
  --call.group->under_way[call.rank];
  const std::string what = text_of(*call.job) + ", rank " + std::to_string(call.rank);
  if (is_error(status)) {
    const std::string text = posted.request != TW_REQUEST_NONE ? Engine::message(posted.request) : last_error();
    if (status != TW_ERR_PEER_LOST || !is_broken(group)) {
      world_.wrong(posted, what + ": it ended with: " + status_text(status) + " (" + text + ")");
    } else if (!names_a_broken_rank(group, text)) {
      world_.wrong(posted, what + ": it names no rank that is lost: " + text);
    }
  } else if (!check_side(share.recv, call.recv, share.recv.after)) {
    world_.wrong(posted, what + ": what it received is wrong");
  }
  if (!check_side(share.send, call.send, share.send.after)) world_.wrong(posted, what + ": what it sends was changed");
  cover(posted, call, status);
  if (call.send.buffer != nullptr) world_.buffers_.retire(*call.send.buffer);
  if (call.recv.buffer != nullptr) world_.buffers_.retire(*call.recv.buffer);
}

void Groups::cover(const Posted& posted, const Call& call, Status status) {
  if (world_.coverage_ == nullptr) return;
  const Job& job = *call.job;
  const Share& share = job.shares[call.rank];
  const auto note = [&](CollectiveHappening happening) { world_.coverage_->note(job.verb, happening); };
  using enum CollectiveHappening;
  if (is_error(status)) return note(posted.request == TW_REQUEST_NONE ? at_once_lost : lost_later);
  world_.coverage_->note(job.verb, job.algorithm, job.type_class(), static_cast<unsigned>(call.group->workers.size()));
  note(ended_well);
  if (is_broken(*call.group)) note(though_lost);
  if (share.send.placed || share.recv.placed) note(in_place);
  if (call.among) note(among_others);
  if (job.repeatable) note(repeatable);
  if (call.wraps) note(behind_wrap);
  for (const Room& room : {call.send, call.recv}) {
    if (room.buffer != nullptr && room.buffer->length() >= call.element && room.buffer->info.device != nullptr) {
      note(of_device);
      break;
    }
  }
}

}  // namespace thalweg::model
