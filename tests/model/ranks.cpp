// SPDX-License-Identifier: Apache-2.0
#include "model/ranks.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "base/clock.hpp"
#include "collectives/elements.hpp"
#include "model/job_call.hpp"
#include "model/rank_memory.hpp"
#include "unit/plans/window_ranks.hpp"

namespace thalweg::model {
namespace {

constexpr uint64_t kLimit = 10 * test::kSecond;
constexpr size_t kMostPending = 6;
constexpr size_t kSlot = 256;  // bytes of a put, each in its own

/// What all ranks share.
struct Shared {
  explicit Shared(const Program& the_program, Coverage* of) : program(the_program), coverage(of) {}
  const Program program;
  Coverage* coverage;
  std::vector<Job> jobs;  // by operation
  std::vector<CollectiveForm> forms;
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::condition_variable changed;
  std::string failure;
  bool done = false;
  void wrong(const std::string& what) {
    const std::lock_guard lock(mutex);
    if (failure.empty()) failure = what;
    failed = true;
    changed.notify_all();
  }
};

/// Something that is under way at a rank.
struct Pending {
  const Op* op = nullptr;
  const Job* job = nullptr;  // null: a message or a put
  uint32_t rank = 0;         // in the job's group
  Side own;                  // of a message or a put
  RankBuffer send, recv;
  tw_request request = TW_REQUEST_NONE;
  tw_plan* plan = nullptr;
  unsigned runs = 0;           // of the plan, behind this one
  uint64_t* passed = nullptr;  // its queue writes 1 there behind it
  std::atomic<bool> called{false};
  std::atomic<int> status{TW_IN_PROGRESS};  // by a callback or a queue
};

/// One rank, in its thread.
class OneRank {
 public:
  OneRank(Shared& shared, test::Rank& rank)
      : shared_(shared),
        rank_(rank),
        me_(rank.number),
        random_(shared.program.seed * 64 + rank.number),
        memory_(rank.context, rank.number) {}
  ~OneRank();
  OneRank(const OneRank&) = delete;
  OneRank& operator=(const OneRank&) = delete;
  /// Does not come back from a failure: all is in the middle of something, and the process is about to end.
  void run() {
    go_through();
    while (over()) std::this_thread::sleep_for(std::chrono::hours(1));
  }

 private:
  void go_through();
  void set_up();
  void do_op(const Op& op, size_t index);
  void collective(const Op& op, size_t index);
  void message(const Op& op);
  void put(const Op& op);
  void give_rooms(Pending& one, CollectiveForm form);
  tw_status start(Pending& one, CollectiveForm form, const tw_collective_options& options);
  tw_status begin_plan(Pending& one, const tw_collective_options& options);
  tw_status begin_on_queue(Pending& one, const tw_collective_options& options);
  tw_status test(Pending& one);
  void check(Pending& one);
  /// Goes on until no more than `most` are under way, and no plan if `plans` is false: what blocks progresses none.
  void finish(size_t most, bool plans = true);
  void check_puts();
  void rest(uint32_t yields);
  void wrong(const Pending& one, const std::string& what);
  void require(tw_status status, const char* what) {
    if (status != TW_OK) shared_.wrong("rank " + std::to_string(me_) + ": " + what + ": " + tw_last_error());
  }
  bool over() const { return shared_.failed; }
  tw_worker* worker() const { return rank_.worker->get(); }

  Shared& shared_;
  test::Rank& rank_;
  const uint32_t me_;
  Random random_;
  RankMemory memory_;
  tw_group* groups_[kGroups] = {};
  std::list<Pending> pending_;
  std::vector<tw_plan*> plans_;  // until all ranks are through
  tw_queue* queue_ = nullptr;
  tw_memory* slots_ = nullptr;
  std::vector<tw_remote_memory*> remotes_;
};

Bytes pattern(const Op& op, size_t length) {
  Bytes bytes(length);
  Random random(op.seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

// ------------------------------------------------------------------------------------------------ life

void OneRank::set_up() {
  tw_group_options options = TW_GROUP_OPTIONS_INIT;
  options.timeout_ns = 6 * kLimit;
  require(tw_group_create(worker(), rank_.handles.data(), rank_.size, me_, test::Rank::exchange, &rank_, &options, &groups_[0]),
          "no group");
  for (unsigned group = 1; group < kGroups && !over(); ++group) {
    const std::vector<unsigned> ranks = ranks_of(shared_.program, group);
    const auto own = std::find(ranks.begin(), ranks.end(), me_);
    const auto key = static_cast<uint32_t>(own - ranks.begin());
    require(tw_group_split(groups_[0], own == ranks.end() ? TW_UNDEFINED : group, key, &groups_[group]),
            "no part of the group");
  }
  const size_t length = kSlot * (shared_.program.ops.size() + 1);
  require(tw_memory_allocate(rank_.context.get(), length, nullptr, &slots_), "no memory");
  if (over()) return;
  std::memset(tw_memory_address(slots_), 0, length);
  std::string key(kKeyRoom, '\0');
  size_t key_length = key.size();
  require(tw_memory_export(slots_, key.data(), &key_length), "no key");
  std::string keys(key.size() * rank_.size, '\0');
  require(rank_.meeting.exchange(me_, key.data(), key.size(), keys.data()), "no keys");
  remotes_.resize(rank_.size);
  for (uint32_t to = 0; to < rank_.size && !over(); ++to) {
    if (to != me_)
      require(tw_memory_import(rank_.handles[to], keys.data() + to * key.size(), key_length, &remotes_[to]), "no import");
  }
}

OneRank::~OneRank() {
  for (tw_remote_memory* one : remotes_) tw_remote_memory_release(one);
  for (tw_plan* plan : plans_) require(tw_plan_destroy(plan), "a plan stays");
  if (queue_ != nullptr) tw_queue_destroy(queue_);
  for (unsigned group = kGroups; group-- > 0;) require(tw_group_destroy(groups_[group]), "a group stays");
  require(tw_memory_release(slots_), "memory stays");
}

void OneRank::go_through() {
  set_up();
  for (size_t i = 0; i < shared_.program.ops.size() && !over(); ++i) do_op(shared_.program.ops[i], i);
  finish(0);
  if (over()) return;
  tw_request flush = TW_REQUEST_NONE;
  const tw_status status = tw_worker_flush(worker(), &flush);
  require(status == TW_IN_PROGRESS ? tw_request_finish(flush) : status, "no flush");
  require(tw_barrier(groups_[0], nullptr, nullptr), "no barrier");
  if (!over()) check_puts();
  if (!over()) require(tw_barrier(groups_[0], nullptr, nullptr), "no second barrier");
}

void OneRank::do_op(const Op& op, size_t index) {
  switch (op.what) {
    case What::collective:
      return collective(op, index);
    case What::send:
      return message(op);
    case What::put:
      return put(op);
    case What::flush:
      return op.worker == me_ ? finish(op.size) : void();
    default:
      return op.worker == me_ ? rest(op.size) : void();
  }
}

void OneRank::rest(uint32_t yields) {
  for (uint32_t i = 0; i < yields; ++i) std::this_thread::yield();
}

// ------------------------------------------------------------------------------------------------ operations

void OneRank::message(const Op& op) {
  if (op.worker != me_ && op.peer != me_) return;
  Pending& one = pending_.emplace_back();
  one.op = &op;
  const bool sends = op.worker == me_;
  const Bytes bytes = pattern(op, op.size);
  Side& side = one.own;
  side.used = true;
  side.before = sends ? bytes : Bytes(op.size);
  side.after = bytes;
  one.send = memory_.take(side, 1);
  const tw_status status = sends ? tw_send(rank_.handles[op.peer], one.send.address, op.size, op.id, nullptr, &one.request)
                                 : tw_recv(worker(), one.send.address, op.size, op.id, ~uint64_t{0}, nullptr, &one.request);
  if (status == TW_OK) one.status = TW_OK;
  if (status != TW_OK && status != TW_IN_PROGRESS) wrong(one, std::string("it is refused: ") + tw_last_error());
}

void OneRank::put(const Op& op) {
  if (op.worker != me_) return;
  Pending& one = pending_.emplace_back();
  one.op = &op;
  one.own.used = true;
  one.own.before = one.own.after = pattern(op, op.size % kSlot);
  one.send = memory_.take(one.own, 1);
  const tw_status status = tw_put(rank_.handles[op.peer], one.send.address, op.size % kSlot, remotes_[op.peer], kSlot * op.id,
                                  nullptr, &one.request);
  if (status == TW_OK) one.status = TW_OK;
  if (status != TW_OK && status != TW_IN_PROGRESS) wrong(one, std::string("it is refused: ") + tw_last_error());
}

void OneRank::check_puts() {
  const auto* const bytes = static_cast<const std::byte*>(tw_memory_address(slots_));
  for (const Op& op : shared_.program.ops) {
    if (op.what != What::put || op.peer != me_) continue;
    Bytes expected = pattern(op, op.size % kSlot);
    expected.resize(kSlot);
    if (std::memcmp(bytes + kSlot * op.id, expected.data(), kSlot) != 0)
      shared_.wrong("rank " + std::to_string(me_) + ": the put of operation " + std::to_string(op.id) + " did not come");
  }
}

void OneRank::collective(const Op& op, size_t index) {
  const Job& job = shared_.jobs[index];
  const auto own = std::find(job.workers.begin(), job.workers.end(), me_);
  if (own == job.workers.end()) return;
  CollectiveForm form = shared_.forms[index];
  const bool blocks = form == CollectiveForm::blocking || form == CollectiveForm::direct;
  if (blocks || form == CollectiveForm::planned || form == CollectiveForm::queued) finish(kMostPending, false);
  if (over()) return;
  Pending& one = pending_.emplace_back();
  one.op = &op;
  one.job = &job;
  one.rank = static_cast<uint32_t>(own - job.workers.begin());
  give_rooms(one, form);
  tw_collective_options options = options_of(job);
  if (form == CollectiveForm::direct) options.algorithm = "direct";
  if (form == CollectiveForm::callback) {
    options.callback = [](void* arg, tw_request, tw_status status, const tw_recv_info*) {
      Pending& it = *static_cast<Pending*>(arg);
      it.status = status;
      if (it.called.exchange(true)) it.status = TW_ERR_PROTOCOL;  // twice
    };
    options.arg = &one;
  }
  const tw_status status = start(one, form, options);
  if (blocks && status == TW_OK) one.status = TW_OK;
  if (status != TW_OK && status != TW_IN_PROGRESS) return wrong(one, std::string("it ended with: ") + tw_last_error());
  finish(kMostPending);
}

void OneRank::give_rooms(Pending& one, CollectiveForm form) {
  Share share = one.job->shares[one.rank];
  if (form == CollectiveForm::planned)
    share.send.kind = share.recv.kind = static_cast<uint8_t>(one.op->seed % 2 * RankMemory::kLibrary);
  if (form == CollectiveForm::queued) share.send.kind = share.recv.kind = RankMemory::kDevice;
  const size_t element = impl::element_size(one.job->type);
  one.send = memory_.take(share.send, element);
  one.recv = memory_.take(share.recv, element);
  const bool apart = one.send.whole != nullptr && one.recv.whole != nullptr && one.send.on_device != one.recv.on_device;
  if (!combines(one.job->verb) || !apart) return;
  share.send.kind = share.recv.kind = 0;  // a device's memory is used up
  one.send = memory_.take(share.send, element);
  one.recv = memory_.take(share.recv, element);
}

tw_status OneRank::start(Pending& one, CollectiveForm form, const tw_collective_options& options) {
  if (form == CollectiveForm::planned) return begin_plan(one, options);
  if (form == CollectiveForm::queued) return begin_on_queue(one, options);
  Target target{groups_[one.job->group], options};
  if (form == CollectiveForm::request) target.request = &one.request;
  return call(target, *one.job, one.rank, one.send.address, one.recv.address);
}

tw_status OneRank::begin_plan(Pending& one, const tw_collective_options& options) {
  tw_plan_options how = TW_PLAN_OPTIONS_INIT;
  how.place = "host";
  how.timeout_ns = kLimit;
  if (tw_status s = tw_plan_create(rank_.context.get(), &how, &one.plan); s != TW_OK) return s;
  plans_.push_back(one.plan);
  one.runs = one.op->seed / 2 % 3;
  const Target target{groups_[one.job->group], options, nullptr, one.plan};
  if (tw_status s = call(target, *one.job, one.rank, one.send.address, one.recv.address); s != TW_OK) return s;
  if (tw_status s = tw_plan_prepare(one.plan, kLimit); s != TW_OK) return s;
  return tw_plan_trigger(one.plan, nullptr);
}

tw_status OneRank::begin_on_queue(Pending& one, const tw_collective_options& options) {
  if (queue_ == nullptr) {
    if (tw_status s = tw_queue_create(rank_.context.get(), memory_.device(), nullptr, &queue_); s != TW_OK) return s;
  }
  const Target target{groups_[one.job->group], options, nullptr, nullptr, queue_};
  if (tw_status s = call(target, *one.job, one.rank, one.send.address, one.recv.address); s != TW_OK) return s;
  one.passed = memory_.word();
  return tw_copy_on(queue_, one.passed, memory_.one(), sizeof(uint64_t), nullptr);
}

// ------------------------------------------------------------------------------------------------ ends

tw_status OneRank::test(Pending& one) {
  if (one.plan != nullptr) return tw_plan_test(one.plan);
  if (one.passed != nullptr) {
    const bool passed = __atomic_load_n(one.passed, __ATOMIC_ACQUIRE) != 0;  // also behind a run that failed
    const tw_status status = tw_queue_check(queue_);
    return status == TW_OK && !passed ? TW_IN_PROGRESS : status;
  }
  if (one.request == TW_REQUEST_NONE) return one.status;
  const tw_status status = tw_request_test(one.request);
  if (status == TW_IN_PROGRESS) return status;
  const std::string why = status == TW_OK ? "" : tw_request_message(one.request);
  if (tw_request_release(std::exchange(one.request, TW_REQUEST_NONE)) != TW_OK) wrong(one, "its request stays");
  if (status != TW_OK) wrong(one, "it ended with: " + why);
  one.status = status;
  return status;
}

void OneRank::finish(size_t most, bool plans) {
  const auto waits = [&] {
    if (pending_.size() > most) return true;
    return !plans && std::any_of(pending_.begin(), pending_.end(), [](const Pending& one) { return one.plan != nullptr; });
  };
  const uint64_t deadline = impl::monotonic_ns() + 4 * kLimit;  // the library's own limits, which tell more, come before
  unsigned idle = 0;
  bool once = true;
  while (!over() && (once || waits())) {
    once = false;
    (void)tw_worker_progress(worker());
    for (auto one = pending_.begin(); one != pending_.end() && !over();) {
      const tw_status status = random_.percent(30) ? TW_IN_PROGRESS : test(*one);
      if (status == TW_IN_PROGRESS) {
        ++one;
        continue;
      }
      if (status != TW_OK) return wrong(*one, std::string("it ended with: ") + tw_last_error());
      check(*one);
      if (one->runs != 0 && !over()) {  // of a plan: once more, with the same
        --one->runs;
        one->send.store();
        one->recv.store();
        require(tw_plan_trigger(one->plan, nullptr), "a plan does not run again");
        ++one;
      } else {
        one = pending_.erase(one);
      }
    }
    if (impl::monotonic_ns() > deadline && waits()) return wrong(pending_.front(), "it never ends");
    if (++idle < 200) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));  // the others need the core
    }
  }
}

void OneRank::check(Pending& one) {
  if (one.job == nullptr) {
    if (!one.send.holds(one.own.after)) wrong(one, "its bytes are wrong");
    return;
  }
  const Share& share = one.job->shares[one.rank];
  if (!one.recv.holds(share.recv.after)) wrong(one, "what it received is wrong");
  if (!one.send.holds(share.send.after)) wrong(one, "what it sends was changed");
  if (shared_.coverage == nullptr) return;
  const std::lock_guard lock(shared_.mutex);
  const CollectiveForm form = shared_.forms[static_cast<size_t>(one.job - shared_.jobs.data())];
  shared_.coverage->note(one.job->verb, form);
}

void OneRank::wrong(const Pending& one, const std::string& what) {
  std::string name = "operation " + std::to_string(one.op->id) + " at rank " + std::to_string(me_);
  if (one.job != nullptr) {
    const size_t index = static_cast<size_t>(one.job - shared_.jobs.data());
    name += std::string(", ") + name_of(shared_.forms[index]) + " " + text_of(*one.job) + ", rank " + std::to_string(one.rank);
  }
  shared_.wrong(name + ": " + what);
}

/// What the job and the transport allow.
CollectiveForm form_of(const Program& program, const Op& op, const Job& job) {
  const bool plans = !combines(job.verb) || (job.type <= TW_TYPE_UINT8 && job.op <= TW_REDUCE_XOR);
  if ((op.flags & kPlanned) != 0) return plans ? CollectiveForm::planned : CollectiveForm::request;
  if ((op.flags & kQueued) != 0) return plans ? CollectiveForm::queued : CollectiveForm::request;
  if ((op.flags & kDirect) != 0) {
    const bool can = program.over == Over::shm && !(job.repeatable && combines(job.verb));
    return can ? CollectiveForm::direct : CollectiveForm::blocking;
  }
  if ((op.flags & kBlocking) != 0) return CollectiveForm::blocking;
  return (op.flags & kCallback) != 0 ? CollectiveForm::callback : CollectiveForm::request;
}

}  // namespace

std::string run_ranks(const Program& program, Coverage* coverage) {
  setenv("THALWEG_EMULATED", "devices=9", 1);  // one for each rank, before the first context looks for them
  auto shared = std::make_unique<Shared>(program, coverage);
  for (const Op& op : program.ops) {
    shared->jobs.push_back(job_of(program, op));
    shared->forms.push_back(form_of(program, op, shared->jobs.back()));
  }
  std::thread ranks([all = shared.get()] {
    test::RankOptions options;
    options.one_context = all->program.over == Over::one_context;
    options.transport = all->program.over == Over::tcp ? "tcp" : nullptr;
    test::run_ranks(all->program.workers, [all](test::Rank& rank) { OneRank(*all, rank).run(); }, options);
    const std::lock_guard lock(all->mutex);
    all->done = true;
    all->changed.notify_all();
  });
  {
    std::unique_lock lock(shared->mutex);
    shared->changed.wait(lock, [&] { return shared->done || shared->failed; });
  }
  if (!shared->failed) {
    ranks.join();
    return "";
  }
  ranks.detach();
  return shared.release()->failure;  // what the ranks' threads refer to stays
}

Program generate_ranks(uint64_t seed, unsigned workers, bool queued) {
  Random random(~seed);
  Program program;
  program.seed = seed;
  program.workers = static_cast<uint8_t>(workers != 0 ? workers : random.of({2u, 2u, 3u, 3u, 4u, 5u}));
  program.over = random.of({Over::shm, Over::shm, Over::shm, Over::tcp, Over::one_context});
  const unsigned count = 20 + random.below(60);
  for (unsigned i = 0; i < count; ++i) {
    Op& op = program.ops.emplace_back();
    const unsigned what = random.below(100);
    op.what = what < 68   ? What::collective
              : what < 80 ? What::send
              : what < 90 ? What::put
              : what < 95 ? What::turns
                          : What::flush;
    op.id = i + 1;
    op.seed = static_cast<uint32_t>(random.next());
    op.worker = static_cast<uint8_t>(random.below(program.workers));
    op.peer = static_cast<uint8_t>((op.worker + 1 + random.below(program.workers - 1u)) % program.workers);
    op.tag = static_cast<uint8_t>(random.below(kGroups));
    op.size = op.what == What::turns ? random.below(200) : op.what == What::flush ? random.below(4) : random.below(40'000);
    if (op.what != What::collective) continue;
    fill_collective(op, random, program.workers, true);
    constexpr uint32_t kForms[] = {kBlocking, kBlocking, kDirect, kDirect, 0, 0, 0, kCallback, kPlanned, kQueued};
    const uint32_t form = random.of(kForms);
    op.flags |= form != kQueued || queued ? form : kPlanned;
  }
  return program;
}

}  // namespace thalweg::model
