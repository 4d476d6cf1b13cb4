// SPDX-License-Identifier: Apache-2.0
#include "model/world.hpp"

#include <algorithm>
#include <utility>

#include "model/counters.hpp"
#include "model/groups.hpp"
#include "model/ranks.hpp"
#include "protocols/active.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::model {

std::string run(const Program& program, Coverage* coverage) {
  return program.over != Over::engines ? run_ranks(program, coverage) : World(program, coverage).run();
}

namespace {

Buffers& buffers() {
  thread_local Buffers all;
  return all;
}

/// What release_memory_of() left there.
bool is_all_released(const Exports::Memory& memory) {
  for (size_t i = 0; i < memory.length + kWords; ++i) {
    if (memory.plain[i] != std::byte{0xdb}) return false;
  }
  return true;
}

bool one_process(const Program& program) { return program.ways[0] == Way::process; }

}  // namespace

// ------------------------------------------------------------------------------------------------ life

World::World(const Program& program, Coverage* coverage)
    : program_(program), coverage_(coverage), random_(program.seed), net_(random_, *this), buffers_(buffers()), by_id_(4096) {
  net_.refuse = program.refuse;
  net_.one_process = one_process(program);
  net_.threads = program.threads != 0;
  set_up();
}

void World::set_up() {
  for (unsigned i = 0; i < program_.workers; ++i) {
    Worker& worker = workers_[i];
    worker.index = i;
    worker.world = this;
    worker.host = &host_of(i, net_.one_process);
    worker.host->rewind();
    worker.exports = &worker.host->exports(i);
    Host* const host = worker.host;
    host->on_release = [this, host](uint64_t segment) { net_.segment_released(*host, segment); };
    host->dropped = [this](uint64_t segment) { return net_.drop(segment); };
    for (unsigned m = 0; m < kMemories; ++m) {
      Exports::Memory& memory = worker.exports->memories[m];
      worker.orders[m] = Order(memory.length);
      fill_pattern(memory.address(), 0, 0, memory.length);
      std::memset(memory.words(), 0, kWords);
      for (unsigned w = 0; w < 6; ++w) {
        const bool narrow = w >= 3;
        const uint64_t first = worker.words[m][w].initial = first_word(program_, i, m, w, narrow);
        std::memcpy(memory.words() + (narrow ? 32 + 4 * (w - 3) : 8 * w), &first, narrow ? 4 : 8);
      }
    }
    for (unsigned s = 0; s < kSignals; ++s) {
      // Near the wrap of 64 bits: bits are told apart by the difference.
      worker.signals[s].initial = s == 0 ? 0 : ~uint64_t{0} - random_.below(8);
      signal_reset(*worker.exports->signals[s], worker.signals[s].initial);
    }
    EngineOptions options;
    options.registry = &worker.host->registry;
    options.incarnation = worker.host->registry.incarnation();
    options.unexpected_budget = program_.budget;
    options.multi_threaded = program_.threads != 0;
    options.owner = this;
    options.lost = lost;
    options.first = first_numbers(program_, i);
    if (program_.seed % 3 != 0) options.hidden_from = 200;
    // Small enough that most programs name pieces, several of a payload.
    options.bounces = {.from = 200, .host = 1024, .device = 2048, .by_cpu = 700, .shared_from = program_.seed % 2 * 3000};
    worker.engine = std::make_unique<Engine>(options);
    auto port = std::make_unique<ModelPort>(net_, *worker.engine, *worker.host, i);
    worker.port = port.get();
    worker.engine->add_port(std::move(port));
    set_handler(*worker.engine, 1, handler, &worker);
  }
  for (unsigned b = 1; b < program_.workers; ++b) {
    for (unsigned a = 0; a < b; ++a) {
      ends_[a][b] = std::make_unique<End>();
      ends_[b][a] = std::make_unique<End>();
      const Way way = net_.one_process ? Way::process : program_.ways[pair_of(a, b)];
      net_.connect(*workers_[a].port, *workers_[b].port, way, program_.copy_max, program_.fragment, &end(a, b).link,
                   &end(b, a).link);
      for (auto [worker, to] : {std::pair{a, b}, std::pair{b, a}}) {
        End& one = end(worker, to);
        one.worker = worker;
        one.to = to;
        one.peer.endpoint = &one.handle;
        start_numbers(program_, worker, to, one.peer);
        workers_[worker].engine->add(one.peer);
      }
      if ((program_.late >> pair_of(a, b) & 1) == 0) connect(a, b);
    }
  }
  const auto is_of_group = [](const Op& op) { return op.what == What::collective || op.what == What::join; };
  if (std::any_of(program_.ops.begin(), program_.ops.end(), is_of_group)) groups_ = std::make_unique<Groups>(*this);
}

World::~World() {
  if (threads_ != nullptr) threads_->give_back();
  over_ = true;
  for (Worker& worker : workers_) {
    if (worker.held_stream != nullptr) worker.held_stream->open();
  }
  while (device().step(0)) {
  }
  for (unsigned i = 0; i < program_.workers; ++i) {
    for (unsigned j = 0; j < program_.workers; ++j) {
      if (i == j) continue;
      if (coverage_ != nullptr) coverage_->note_named(end(i, j).peer.tally.moved.named());
      for (RemoteRegion* region : end(i, j).regions) release_region(region);
      for (RemoteRegion* region : end(i, j).signals) release_region(region);
      workers_[i].engine->remove(end(i, j).peer);
    }
    workers_[i].host->on_release = nullptr;
    workers_[i].host->dropped = nullptr;
    for (unsigned n = 0; groups_ != nullptr && n < 8; ++n) workers_[i].engine->progress();  // collectives end with their peers
  }
  groups_.reset();
  for (Worker& worker : workers_) {
    worker.engine.reset();
    worker.held_stream.reset();
    worker.marks.reset();
  }
  buffers_.rewind();
}

void World::connect(unsigned a, unsigned b) {
  for (auto [worker, to] : {std::pair{a, b}, std::pair{b, a}}) {
    End& one = end(worker, to);
    if (one.attached || one.lost || dead(worker)) continue;
    one.attached = true;
    stir(workers_[worker]);
    if (one.broken && net_.is_broken(*one.link)) {
      workers_[worker].engine->fail(one.peer, TW_ERR_PEER_LOST, "nobody is there");
    } else {
      workers_[worker].engine->attach(one.peer, *one.link);
      const Engine::Guard guard(*workers_[worker].engine);  // other threads may have begun to post
      start_credits(program_, worker, to, one.peer);
    }
    poll(workers_[worker]);
  }
}

std::string World::run() {
  if (program_.threads != 0) threads_ = std::make_unique<Threads>(*this, program_.threads, program_.seed);
  if (threads_ != nullptr) threads_->start();
  for (const Op& op : program_.ops) {
    if (!failure_.empty()) break;
    now_doing_ = &op;
    random_ = Random(op.seed);
    ++clock_;
    do_op(op);
    turns();
  }
  if (threads_ != nullptr) threads_->join();
  now_doing_ = nullptr;
  random_ = Random(program_.seed + 1);
  if (failure_.empty()) end_phase();
  const Buffer* const touched = failure_.empty() ? buffers_.touched() : nullptr;
  for (const Posted& one : all_) {
    if (touched == nullptr || one.buffer != touched) continue;
    wrong(one, "its memory was touched after it had ended (" + std::string(status_text(one.status)) + "), or around it");
  }
  return failure_;
}

// ------------------------------------------------------------------------------------------------ operations

void World::do_op(const Op& op) {
  if (op.worker >= program_.workers || dead(op.worker)) return;
  if (op.peer != kAnyone && (op.peer >= program_.workers || op.peer == op.worker)) return;
  stir(workers_[op.worker]);
  switch (op.what) {
    case What::connect:
      return connect(op.worker, op.peer);
    case What::send:
      return send(op);
    case What::receive:
      return receive(op);
    case What::probe:
    case What::take:
      return probe(op);
    case What::take_receive:
      return take_receive(op);
    case What::cancel:
      return cancel(op);
    case What::active:
      return active(op);
    case What::active_receive:
      return active_receive(op);
    case What::active_release:
      return active_release(op);
    case What::bytes_send:
    case What::bytes_receive:
      return bytes(op);
    case What::put:
    case What::get:
      return put_or_get(op);
    case What::put_blocks:
    case What::get_blocks:
      return blocks(op);
    case What::notification:
      take_notification(op.worker);
      return;
    case What::atomic:
      return atomic(op);
    case What::signal:
      return signal(op);
    case What::fence:
      return fence(op);
    case What::flush:
    case What::flush_worker:
      return flush(op);
    case What::look:
      look(op.worker, op.memory);
      look_at_words(op.worker, op.memory);
      return look_at_signals(op.worker);
    case What::release_region:
      return release_region_of(op);
    case What::release_memory:
      return release_memory_of(op);
    case What::close:
      return close(op);
    case What::cut:
      return cut(op);
    case What::kill:
      return kill(op);
    case What::open:
      return release_stream(workers_[op.worker]);
    case What::before:
      return before(op);
    case What::collective:
      return groups_->begin(op);
    case What::join:
      return groups_->join(op);
    case What::turns:
      if (op.tag == 0) settle();
      return;
    default:
      return;
  }
}

Posted& World::fresh(uint32_t id, What what, uint32_t flags, unsigned worker, unsigned peer) {
  Posted& posted = all_.emplace_back();
  posted.world = this;
  posted.id = id;
  posted.what = what;
  posted.flags = flags;
  posted.worker = worker;
  posted.peer = peer;
  posted.access.id = id;
  posted.access.posted = ++clock_;
  if (id >= by_id_.size()) by_id_.resize(id * 2);
  by_id_[id] = &posted;
  return posted;
}
Posted& World::post(const Op& op) {
  Posted& posted = fresh(op.id, op.what, op.flags, op.worker, op.peer);
  posted.tag = op.tag;
  posted.mask = mask_of(op);
  return posted;
}

uint64_t World::mask_of(const Op& op) const {
  if ((op.flags & kMasked) == 0) return ~uint64_t{0};
  return (op.tag == 0 ? 0 : 1) | (threads_ != nullptr ? kTheirs : 0);
}

Completion World::completion(Posted& posted) {
  if ((posted.flags & kDetached) != 0 && (posted.flags & kCallback) == 0) return {};
  Completion completion = (posted.flags & kCallback) != 0 ? calls(called_back, &posted) : Completion{};
  completion.request = &posted.request;
  return completion;
}

void World::called_back(void* arg, tw_request, tw_status status, const tw_recv_info* info) {
  Posted& posted = *static_cast<Posted*>(arg);
  World& world = *posted.world;
  if (world.over_ || world.dead(posted.worker)) return;
  if (posted.ended) return world.wrong(posted, "its callback was called twice");
  world.ended(posted, status, *info);
}

void World::lost(void* owner, Peer& peer, Status) {
  World& world = *static_cast<World*>(owner);
  if (world.over_) return;
  End& one = End::of(peer.endpoint);
  if (!one.broken) world.wrong("an endpoint ended though nothing happened to it: " + peer.why);
  one.lost = true;
  world.workers_[one.worker].matching.lose(one.to);
}

void World::posted(Posted& posted, Status status) {
  posted.at_once = status == TW_OK;
  if (posted.peer != kAnyone) {
    posted.unconnected = !end(posted.worker, posted.peer).attached;
    posted.refused = net_.is_refused(*end(posted.worker, posted.peer).link);
  }
  show(posted.request);
  if (dead(posted.worker)) {
    posted.over = true;
    return;
  }
  if (status == TW_IN_PROGRESS) {
    if ((posted.flags & kDetached) == 0) workers_[posted.worker].pending.push_back(&posted);
    if ((posted.flags & kCallback) == 0) poll(workers_[posted.worker]);
    return;
  }
  ended(posted, status, tw_recv_info{});
}

/// It was not taken: nothing of it may ever be seen.
void World::drop(Posted& posted) {
  posted.over = posted.ended = true;
  posted.status = TW_AGAIN;
  if (posted.buffer != nullptr) buffers_.retire(*posted.buffer);
}

void World::ended(Posted& posted, Status status, const tw_recv_info& info) {
  posted.ended = true;
  posted.status = status;
  ++clock_;
  switch (posted.what) {
    case What::receive:
    case What::take_receive:
    case What::active_receive:
      end_receive(posted, status, info);
      break;
    case What::bytes_receive:
      end_bytes(posted, status, info);
      break;
    case What::send:
    case What::active:
    case What::bytes_send:
      end_send(posted, status);
      break;
    case What::collective:
      groups_->ended(posted, status);
      break;
    default:
      end_one_sided(posted, status);
  }
  cover(posted);
  if (posted.buffer != nullptr) buffers_.retire(*posted.buffer);
}

void World::cover(const Posted& posted, What what) {
  if (coverage_ == nullptr) return;
  const unsigned peer = posted.peer != kAnyone ? posted.peer : posted.partner != 0 ? by_id_[posted.partner]->worker : kAnyone;
  if (peer == kAnyone) return;
  const Way way = net_.one_process ? Way::process : program_.ways[pair_of(posted.worker, peer)];
  const auto note = [&](Happening happening) { coverage_->note(what, way, happening); };
  if (posted.status == TW_OK) {
    if (posted.buffer != nullptr) coverage_->note_kind(what, posted.buffer->info.kind);
    note(posted.at_once ? Happening::at_once : Happening::later);
    if (posted.unconnected) note(Happening::before_connect);
    if (posted.refused) note(Happening::refused);
    if (posted.access.epoch != 0) note(Happening::behind_fence);
  } else if (posted.status == TW_ERR_PEER_LOST) {
    note(Happening::lost);
  } else if (posted.status == TW_ERR_CLOSED) {
    note(Happening::closed);
  } else if (posted.status == TW_ERR_CANCELED) {
    note(Happening::canceled);
  } else if (posted.status == TW_ERR_STALE) {
    note(Happening::stale);
  } else if (posted.status == TW_ERR_TRUNCATED) {
    note(Happening::truncated);
  }
}

bool World::may_be_lost(const Posted& posted, unsigned from) const {
  return from != kAnyone && ends_[posted.worker][from]->broken;
}

void World::wrong(const Posted& posted, const std::string& what) {
  if (!failure_.empty()) return;
  const std::string peer = posted.peer == kAnyone ? "anyone" : std::to_string(posted.peer);
  wrong("operation " + std::to_string(posted.id) + " (" + name_of(posted.what) + " at " + std::to_string(posted.worker) +
        ", with " + peer + "): " + what);
}
void World::fail(const char* what) {
  if (beside.is) return threads_->wrong(what);
  wrong(what);
}
void World::wrong(const std::string& what) {
  if (!failure_.empty()) return;
  failure_ = what;
  failure_ += now_doing_ != nullptr ? ", behind operation " + std::to_string(now_doing_->id) : ", at the end";
}

// ------------------------------------------------------------------------------------------------ the end

void World::end_phase() {
  net_.refuse = 0;
  for (unsigned b = 1; b < program_.workers; ++b) {
    for (unsigned a = 0; a < b; ++a) connect(a, b);
  }
  settle();
  for (unsigned round = 0; round < 60 && failure_.empty(); ++round) {
    const bool theirs = threads_ != nullptr && threads_->finish();
    const bool together = groups_ != nullptr && groups_->call_the_rest();
    if (!receive_the_rest() && !theirs && !together) break;
    settle();
  }
  for (unsigned i = 0; i < program_.workers && failure_.empty(); ++i) {
    for (unsigned j = 0; j < program_.workers; ++j) {
      if (i == j || dead(i) || end(i, j).lost) continue;
      Op op;
      op.what = What::flush;
      op.worker = static_cast<uint8_t>(i);
      op.peer = static_cast<uint8_t>(j);
      op.id = extra_id_++;
      flush(op);
    }
  }
  settle();
  if (failure_.empty()) check_pending();
  if (failure_.empty()) settle();  // streams that wait for what was canceled
  for (Worker& worker : workers_) {
    if (failure_.empty() && worker.engine != nullptr) check_stream(worker);
  }
  if (failure_.empty()) check_the_end();
  if (failure_.empty() && threads_ != nullptr) threads_->check();
}

/// Unexpected messages.
bool World::receive_the_rest() {
  const size_t before = all_.size();
  bool any = false;
  for (unsigned i = 0; i < program_.workers && failure_.empty(); ++i) {
    Worker& worker = workers_[i];
    if (dead(i)) continue;
    Op op;
    op.worker = static_cast<uint8_t>(i);
    op.peer = kAnyone;
    op.size = 70'000;
    const auto next = [&](What what, unsigned peer) -> const Op& {
      op.what = what;
      op.peer = static_cast<uint8_t>(peer);
      op.id = extra_id_++;
      return op;
    };
    while (take_notification(i)) any = true;
    for (size_t n = worker.matching.unmatched().size(); n != 0 && !dead(i); --n) {
      if (worker.matching.unmatched().empty()) break;
      op.tag = static_cast<uint8_t>(worker.matching.unmatched().front().tag);
      receive(next(What::receive, kAnyone));
    }
    while (!worker.taken.empty()) take_receive(next(What::take_receive, kAnyone));
    while (!worker.kept.empty()) active_release(next(What::active_release, kAnyone));
    for (unsigned j = 0; j < program_.workers; ++j) {
      if (i == j || end(i, j).lost || end(j, i).stream_unknown) continue;
      const bool waits = !end(i, j).stream_receives.empty() && !end(i, j).stream_receives.back()->ended;
      if (!waits && stream_left(j, i) != 0) bytes(next(What::bytes_receive, j));
    }
  }
  return any || all_.size() != before;
}

void World::check_pending() {
  for (Posted& one : all_) {
    if (one.ended || one.over || dead(one.worker) || (one.flags & kDetached) != 0) continue;
    const bool waits = one.what == What::receive && workers_[one.worker].matching.posted(one.id);
    if (one.what == What::bytes_receive) {
      const uint64_t left = stream_left(one.peer, one.worker);
      const bool enough = left >= ((one.flags & kWaitAll) != 0 ? one.length : 1);
      const bool first = end(one.worker, one.peer).stream_receives.front() == &one;
      if (enough && first && !end(one.worker, one.peer).stream_unknown) return wrong(one, "it has its bytes and never ends");
      if ((one.flags & kCallback) != 0) continue;
      workers_[one.worker].engine->cancel(one.request);
      one.over = true;
      continue;
    }
    if (!waits) return wrong(one, "it never ends");
    if ((one.flags & kCallback) != 0) continue;  // its number is not to be used
    workers_[one.worker].matching.withdraw(one.id);
    if (workers_[one.worker].engine->cancel(one.request) != TW_OK)
      return wrong(one, "it is not matched, and cannot be canceled");
    one.over = true;
  }
  for (Worker& worker : workers_) {
    if (worker.engine == nullptr || worker.port->dead) continue;
    for (const Posted* one : worker.pending) {
      if (one->over && one->what != What::bytes_receive && Engine::test(one->request) != TW_ERR_CANCELED)
        return wrong(*one, "it was canceled, and did not end so");
    }
  }
}

void World::check_the_end() {
  if (net_.keeps_lost_links()) return wrong("a link whose loss was told is never closed");
  for (unsigned i = 0; i < program_.workers; ++i) {
    for (unsigned j = 0; j < program_.workers; ++j) {
      if (i == j || !end(i, j).attached || end(i, j).broken || dead(i) || dead(j)) continue;
      const std::string what = check_credits(end(i, j).peer, end(j, i).peer);
      if (!what.empty()) return wrong("from " + std::to_string(i) + " to " + std::to_string(j) + ": " + what);
    }
  }
  for (Posted& one : all_) {
    const bool message = one.what == What::send || one.what == What::active;
    if (!message || one.over || one.arrived || one.status != TW_OK) continue;
    const End& to = end(one.worker, one.peer);
    const bool kept = !to.broken || (to.graceful && !end(one.peer, one.worker).closed);
    if (kept && !dead(one.peer) && !dead(one.worker)) return wrong(one, "it ended well, and its message never came");
  }
  for (unsigned i = 0; i < program_.workers && failure_.empty(); ++i) {
    if (dead(i)) continue;
    for (unsigned m = 0; m < kMemories; ++m) {
      const Exports::Memory& memory = workers_[i].exports->memories[m];
      if (workers_[i].released[m] && memory.plain != nullptr && !is_all_released(memory)) {
        return wrong("memory of worker " + std::to_string(i) + " was written to after its release");
      }
      if (workers_[i].used[m]) look(i, m);
      look_at_words(i, m);
    }
    look_at_signals(i);
    for (unsigned j = 0; j < program_.workers && failure_.empty(); ++j) {
      if (i != j && !dead(j)) check_notices(j, i);
    }
  }
}

}  // namespace thalweg::model
