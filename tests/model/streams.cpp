// SPDX-License-Identifier: Apache-2.0
// Streams of users that wait for requests (tw_request_before), and what the reference says of it: what is enqueued behind such a wait
// runs when the request has ended, well or not, and never earlier.
#include "model/world.hpp"
#include "protocols/stream_waits.hpp"

namespace thalweg::model {
namespace {

constexpr size_t kMostGates = 8;  // as StreamWaits::kMost

bool in_progress(const Posted& posted) { return !posted.ended && Engine::test(posted.request) == TW_IN_PROGRESS; }

}  // namespace

/// How many requests have streams that wait for them still.
size_t World::awaited(const Worker& worker) const {
  std::set<const Posted*> requests;
  for (const AwaitedBefore& one : worker.awaited) {
    if (!one.posted->over && in_progress(*one.posted)) requests.insert(one.posted);
  }
  return requests.size();
}

void World::before(const Op& op) {
  Worker& worker = workers_[op.worker];
  Posted* const posted = op.of < by_id_.size() ? by_id_[op.of] : nullptr;
  const bool has_request = posted != nullptr && posted->worker == op.worker && !posted->ended && !posted->over &&
                           posted->request != TW_REQUEST_NONE && (posted->flags & (kDetached | kCallback)) == 0;
  if (!has_request) return;
  if (worker.marks == nullptr) worker.marks = std::make_unique<Marks>();
  const bool full = awaited(worker) >= kMostGates;
  const Status status = hold_stream(*worker.engine, posted->request, worker.marks->stream());
  if (status == TW_ERR_LIMIT && full) return;
  if (status != TW_OK) return wrong(*posted, std::string("no stream may wait for it: ") + last_error());
  worker.awaited.push_back({posted, worker.marks->mark()});
}

/// What the worker's stream has come past.
void World::look_at_stream(Worker& worker) {
  if (worker.marks == nullptr || worker.port->dead) return;
  const uint64_t passed = worker.marks->passed();
  while (!worker.awaited.empty() && worker.awaited.front().mark <= passed) {
    const Posted& posted = *worker.awaited.front().posted;
    if (!posted.over && in_progress(posted)) return wrong(posted, "a stream that waits for it went on before it had ended");
    if (!posted.ended && !posted.over) return;  // the worker is told of it in a moment
    if (posted.ended) cover(posted, What::before);
    worker.awaited.pop_front();
  }
}

/// Everything has come to rest.
void World::check_stream(const Worker& worker) {
  if (worker.marks == nullptr || worker.port->dead || worker.awaited.empty()) return;
  const Posted& posted = *worker.awaited.front().posted;
  if (!in_progress(posted)) wrong(posted, "it has ended, and a stream that waits for it never goes on");
}

}  // namespace thalweg::model
