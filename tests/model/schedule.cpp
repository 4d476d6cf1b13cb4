// SPDX-License-Identifier: Apache-2.0
// When things happen: between two operations of a program, and until everything has come to rest.
#include "model/world.hpp"

namespace thalweg::model {

/// Tests what is pending. Each request ends once, and is dead when it was released.
void World::poll(Worker& worker) {
  for (size_t i = 0; i < worker.pending.size();) {
    Posted& posted = *worker.pending[i];
    const bool asks = !posted.ended && !posted.over && (posted.flags & kCallback) == 0;
    const Status status = asks ? Engine::test(posted.request) : TW_IN_PROGRESS;
    if (status == TW_IN_PROGRESS && !posted.ended) {
      ++i;
      continue;
    }
    worker.pending.erase(worker.pending.begin() + static_cast<std::ptrdiff_t>(i));
    if (posted.ended) continue;
    tw_recv_info info{};
    Engine::info(posted.request, &info);
    const tw_request request = posted.request;
    ended(posted, status, info);
    if (Engine::release(request) != TW_OK) wrong(posted, "its request could not be released");
    if (Engine::test(request) != TW_ERR_HANDLE) wrong(posted, "its request is alive behind its release");
  }
}

unsigned World::progress(Worker& worker) {
  ++clock_;
  const unsigned events = worker.engine->progress();
  // Killed in the middle of it, it has gone on to its end here: what it told the device is over before anyone learns of its
  // end.
  for (bool more = worker.port->dead; more;) more = device().step(0);
  if (!worker.port->dead) {
    look_at_stream(worker);
    poll(worker);
    look_at_stream(worker);
  }
  return events;
}

void World::event() {
  if (threads_ != nullptr) {
    threads_->breathe();
    if (threads_->failed() && failure_.empty()) return wrong(threads_->failure());
  }
  Worker& worker = workers_[random_.below(program_.workers)];
  switch (random_.below(14)) {
    case 12:
    case 13:
      device().step(random_.below(16));
      for (Worker& any : workers_) look_at_stream(any);
      return;
    case 0:
    case 1:
    case 2:
    case 3:
      net_.carry();
      return;
    case 4:
      if (worker.port->dead || asleep(worker)) return;
      worker.engine->arm();
      return;
    case 5:
      net_.answer_import();
      return;
    case 6:
      net_.tell_release();
      return;
    case 7:
      net_.make_room();
      return;
    default:
      if (worker.port->dead || asleep(worker)) return;
      progress(worker);
  }
}

void World::turns() {
  const unsigned n = random_.of({0u, 1u, 2u, 4u, 8u, 20u});
  for (unsigned i = 0; i < n && failure_.empty(); ++i) event();
}

/// Everything that comes from outside comes, and every worker works until it may sleep.
void World::settle() {
  std::unique_lock<std::shared_mutex> alone;
  if (threads_ != nullptr) {
    alone = threads_->pause();
    for (unsigned i = 0; i < program_.workers; ++i)
      stir(workers_[i]);  // a poster has to progress, wherever it was armed meanwhile
  }
  const uint32_t refuse = net_.refuse.exchange(0);
  for (Worker& worker : workers_) release_stream(worker);
  net_.burn();
  for (unsigned round = 0; failure_.empty(); ++round) {
    // What waits for credit that is not returned may keep a worker awake (a relay whose part waits does): not at the end.
    if (round == 2'000 && now_doing_ != nullptr) {
      net_.refuse = refuse;
      return;
    }
    if (round == 20'000) {
      std::string who;
      for (unsigned i = 0; i < program_.workers; ++i) {
        if (workers_[i].port->dead || asleep(workers_[i])) continue;
        who += " " + std::to_string(i) + " (" + status_text(workers_[i].engine->arm()) + ")";
      }
      wrong("the workers never come to rest:" + who + (net_.still() ? "" : " and something is on its way"));
      break;
    }
    net_.make_room();
    for (unsigned i = 0; i < 6; ++i) net_.carry();
    net_.answer_import();
    while (net_.tell_release() && threads_ != nullptr) continue;  // those beside release many
    bool rest = !device().step(round);
    for (Worker& any : workers_) look_at_stream(any);
    for (unsigned i = 0; i < program_.workers; ++i) {
      Worker& worker = workers_[i];
      if (worker.port->dead || asleep(worker)) continue;
      rest = false;
      if (progress(worker) == 0 && !worker.port->dead) worker.engine->arm();
    }
    if (rest && net_.still()) break;
  }
  if (failure_.empty()) check_asleep();
  net_.refuse = refuse;
}

/// All of them sleep and nothing is to come: so there is nothing to do.
void World::check_asleep() {
  for (unsigned i = 0; i < program_.workers; ++i) {
    Worker& worker = workers_[i];
    if (worker.port->dead) continue;
    if (progress(worker) != 0) wrong("worker " + std::to_string(i) + " slept, though there was something to do");
    if (!worker.port->dead) worker.engine->arm();
  }
}

}  // namespace thalweg::model
