// SPDX-License-Identifier: Apache-2.0
// Everything is read here, on the service thread, because it knows which workers are alive; no worker is asked.
#include "core/counters.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/cache_counts.hpp"
#include "base/clock.hpp"
#include "base/hex.hpp"
#include "base/json.hpp"
#include "base/platform/process.hpp"
#include "core/context.hpp"
#include "core/setup.hpp"
#include "core/worker.hpp"
#include "trace/trace.hpp"
#include "transports/link_count.hpp"

namespace thalweg::impl {
namespace {

void add_pair(Json& json, const char* name, const char* first, uint64_t a, const char* second, uint64_t b) {
  json.open(name, '{');
  json.add(first, a);
  json.add(second, b);
  json.close('}');
}

void add_moved(Json& json, const Moved::Counts& moved) {
  json.open("moved", '{');
  for (size_t i = static_cast<size_t>(Way::any) + 1; i < kWays; ++i) {
    add_pair(json, name_of(static_cast<Way>(i)), "operations", moved[i].operations, "bytes", moved[i].bytes);
  }
  json.close('}');
}

void add_counts(Json& json, const EndpointCounts& counts) {
  add_pair(json, "sent", "messages", counts.messages_sent(), "bytes", counts.bytes_sent());
  add_pair(json, "received", "messages", counts.received, "bytes", counts.bytes_received());
  const Moved::Count accesses = counts.accesses();
  add_pair(json, "accesses", "operations", accesses.operations, "bytes", accesses.bytes);
  json.add("retries", counts.retries);
  add_moved(json, counts.moved);
}

void add_endpoint(Json& json, const EndpointCounts& endpoint) {
  json.open(nullptr, '{');
  json.add("id", endpoint.id);
  json.add("peer", hex16(endpoint.peer.worker));
  json.add("pid", static_cast<uint64_t>(endpoint.peer.pid));
  json.add("host", hex16(endpoint.peer.host));
  json.add("transport", endpoint.transport);
  json.add("state", endpoint.state == TW_OK            ? "connected"
                    : endpoint.state == TW_IN_PROGRESS ? "connecting"
                                                       : status_name(endpoint.state));
  add_counts(json, endpoint);
  json.close('}');
}

uint64_t bytes_of(const EndpointCounts& counts) {
  return counts.bytes_sent() + counts.bytes_received() + counts.accesses().bytes;
}

void add_worker(Json& json, const tw_worker& worker, std::vector<EndpointCounts> endpoints, EndpointCounts sum) {
  const Receives::Held held = worker.engine->receives().held();
  json.open(nullptr, '{');
  json.add("id", hex16(worker.id));
  json.add("posted", held.posted);
  json.add("unexpected", held.unexpected);
  json.add("endpoints", static_cast<uint64_t>(endpoints.size()));
  for (const EndpointCounts& one : endpoints) sum += one;
  json.open("sum", '{');  // also of endpoints that are gone
  add_counts(json, sum);
  json.close('}');
  if (endpoints.size() > kMostListed) {
    std::partial_sort(endpoints.begin(), endpoints.begin() + kMostListed, endpoints.end(),
                      [](const EndpointCounts& a, const EndpointCounts& b) { return bytes_of(a) > bytes_of(b); });
    endpoints.resize(kMostListed);
  }
  json.open("listed", '[');
  for (const EndpointCounts& one : endpoints) add_endpoint(json, one);
  json.close(']');
  json.close('}');
}

void add_workers(Json& json, tw_context& context) {
  std::map<uint64_t, EndpointCounts> gone;
  std::map<uint64_t, std::vector<EndpointCounts>> of;
  for (const EndpointCounts& endpoint : context.traffic.endpoints(&gone)) of[endpoint.worker].push_back(endpoint);
  std::vector<const tw_worker*> workers = context.setup->workers();
  std::sort(workers.begin(), workers.end(), [](const tw_worker* a, const tw_worker* b) { return a->id < b->id; });
  json.open("workers", '[');
  for (const tw_worker* worker : workers) add_worker(json, *worker, std::move(of[worker->id]), gone[worker->id]);
  json.close(']');
}

void add_all(Json& json, tw_context& context) {
  for (size_t i = 0; i < size_t(Refusal::count_); ++i) {
    const auto cause = static_cast<Refusal>(i);
    if (cause != Refusal::none) json.add(refusal_name(cause), context.refusals.value(cause));
  }
  json.add("links", uint64_t{LinkCount::alive()});
  add_moved(json, context.traffic.sum());
  json.add("named", context.traffic.named());
  add_workers(json, context);
  json.open("caches", '{');
  for (size_t i = 0; i < static_cast<size_t>(Cache::count_); ++i) {
    const CacheCounts::Count count = CacheCounts::of(static_cast<Cache>(i));
    add_pair(json, kCacheNames[i], "hits", count.hits, "misses", count.misses);
  }
  json.close('}');
  const trace::Recorded traced = trace::recorded();
  add_pair(json, "traced", "events", traced.events, "dropped", traced.dropped);
}

}  // namespace

std::string counters_json(tw_context& context) {
  Json json;
  context.loop.call([&] {
    json.open(nullptr, '{');
    add_all(json, context);
    json.close('}');
  });
  return json.take();
}

std::string live_json(tw_context& context) {
  Json json;
  json.open(nullptr, '{');
  json.add("version", tw_version_string());
  json.add("pid", static_cast<uint64_t>(getpid()));
  json.add("program", program_name());
  json.add("context", context.setup->name());
  json.add("ranks", uint64_t{context.ranks.load(std::memory_order_relaxed)});  // 0: it is no rank of a world
  json.add("rank", uint64_t{context.rank.load(std::memory_order_relaxed)});
  json.add("host", hex16(context.host));
  json.add("time_ns", monotonic_ns());
  json.open("counters", '{');
  add_all(json, context);
  json.close('}');
  json.close('}');
  return json.take();
}

}  // namespace thalweg::impl
