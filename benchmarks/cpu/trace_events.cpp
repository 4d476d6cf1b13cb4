// SPDX-License-Identifier: Apache-2.0
// What an event of the timeline costs the thread that records it: bursts that fit its ring, while the writing thread empties it between
// them; and the question whether anything is recorded, which is all that is paid otherwise. Prints one JSON object, in nanoseconds.
// usage: thalweg-trace-events [FILE]   FILE: where the timeline goes; /dev/null without
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "base/clock.hpp"
#include "trace/ring.hpp"
#include "trace/trace.hpp"

using namespace thalweg::impl;

namespace {

constexpr int kBursts = 200, kBurst = 2000;

template <class Each>
double median_ns(const Each& each) {
  std::vector<double> times;
  for (int i = 0; i < kBursts; ++i) {
    const uint64_t begin = monotonic_ns();
    for (int k = 0; k < kBurst; ++k) each(k);
    times.push_back(double(monotonic_ns() - begin) / kBurst);
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  std::nth_element(times.begin(), times.begin() + kBursts / 2, times.end());
  return times[kBursts / 2];
}

void instant(int k) {
  if (!trace::on()) return;
  trace::Event event;
  event.what = trace::What::sent;
  event.bytes = static_cast<uint64_t>(k);
  event.flow = static_cast<uint64_t>(k) + 1;
  trace::record_now(event);
}

}  // namespace

int main(int argc, char** argv) {
  const double off = median_ns([](int k) {
    instant(k);
    asm volatile("" ::: "memory");
  });
  int owner = 0;
  if (trace::start(argc > 1 ? argv[1] : "/dev/null", &owner) != TW_OK) {
    std::fprintf(stderr, "%s\n", last_error());
    return 1;
  }
  const double events = median_ns(instant);
  const double spans = median_ns([](int k) {
    trace::Span span(trace::What::copy);
    span.bytes = static_cast<uint64_t>(k);
  });
  const trace::Recorded all = trace::recorded();
  if (trace::stop(&owner) != TW_OK) {
    std::fprintf(stderr, "%s\n", last_error());
    return 1;
  }
  std::printf("{\"off_ns\": %.2f, \"event_ns\": %.2f, \"span_ns\": %.2f, \"recorded\": %llu, \"dropped\": %llu}\n", off, events,
              spans, static_cast<unsigned long long>(all.events), static_cast<unsigned long long>(all.dropped));
  return all.dropped == 0 ? 0 : 1;
}
