// SPDX-License-Identifier: Apache-2.0
#include "machine/stream_team.hpp"

#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "machine/numa.hpp"
#include "report.hpp"

namespace perf {
namespace {

constexpr double kFactor = 3;

void copy(double* __restrict z, const double* __restrict x, size_t from, size_t to) {
  for (size_t i = from; i < to; ++i) z[i] = x[i];
}
void scale(double* __restrict z, const double* __restrict x, size_t from, size_t to) {
  for (size_t i = from; i < to; ++i) z[i] = kFactor * x[i];
}
void add(double* __restrict z, const double* __restrict x, const double* __restrict y, size_t from, size_t to) {
  for (size_t i = from; i < to; ++i) z[i] = x[i] + y[i];
}
void triad(double* __restrict z, const double* __restrict x, const double* __restrict y, size_t from, size_t to) {
  for (size_t i = from; i < to; ++i) z[i] = x[i] + kFactor * y[i];
}
void write(double* z, size_t from, size_t to) {
  for (size_t i = from; i < to; ++i) z[i] = kFactor;
}
/// As words: their sum may be taken in any order, so that the compiler makes wide loops of it.
uint64_t read(const double* x, size_t from, size_t to) {
  uint64_t sum = 0;
  for (size_t i = from; i < to; ++i) sum += __builtin_bit_cast(uint64_t, x[i]);
  return sum;
}

double result_of(StreamKind operation, double x, double y) {
  switch (operation) {
    case StreamKind::copy:
      return x;
    case StreamKind::scale:
      return kFactor * x;
    case StreamKind::add:
      return x + y;
    case StreamKind::triad:
      return x + kFactor * y;
    default:
      return kFactor;
  }
}

}  // namespace

const StreamOperation kStreamOperations[6] = {{StreamKind::copy, "copy", 2}, {StreamKind::scale, "scale", 2},
                                              {StreamKind::add, "add", 3},   {StreamKind::triad, "triad", 3},
                                              {StreamKind::read, "read", 1}, {StreamKind::write, "write", 1}};

uint64_t fresh_seed() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

StreamTeam::StreamTeam(const std::vector<unsigned>& processors, unsigned threads) : times_(threads) {
  for (unsigned t = 0; t < threads; ++t)
    threads_.emplace_back([this, t, processor = processors[t % processors.size()]] { work(t, processor); });
}

StreamTeam::~StreamTeam() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool StreamTeam::bound() {
  (void)run(0, [](unsigned, size_t, size_t) {});  // all have tried then
  return bound_;
}

double StreamTeam::run(size_t count, const Part& part) {
  std::unique_lock lock(mutex_);
  count_ = count;
  part_ = &part;
  ended_ = 0;
  ready_.store(0);
  ++turn_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return ended_ == threads(); });
  uint64_t begin = std::numeric_limits<uint64_t>::max(), end = 0;
  for (const Times& t : times_) {
    begin = std::min(begin, t.begin);
    end = std::max(end, t.end);
  }
  return static_cast<double>(end - begin) / 1e9;
}

void StreamTeam::work(unsigned thread, unsigned processor) {
  const bool bound = run_on(processor);
  const auto all = static_cast<unsigned>(times_.size());
  std::unique_lock lock(mutex_);
  bound_ = bound_ && bound;
  for (uint64_t turn = 1;; ++turn) {
    changed_.wait(lock, [&] { return over_ || turn_ == turn; });
    if (over_) return;
    const size_t each = (count_ / all + 7) / 8 * 8, from = std::min(count_, thread * each),
                 to = thread + 1 == all ? count_ : std::min(count_, from + each);
    const Part& part = *part_;
    lock.unlock();
    ready_.fetch_add(1);
    while (ready_.load() < all) std::this_thread::yield();  // others may have to share this processor
    times_[thread].begin = now_ns();
    part(thread, from, to);
    times_[thread].end = now_ns();
    lock.lock();
    if (++ended_ == all) changed_.notify_all();
  }
}

void StreamArrays::fill(StreamTeam& team) {
  (void)team.run(count_, [this](unsigned, size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      x_[i] = static_cast<double>(random_at(seed_, i));
      y_[i] = static_cast<double>(random_at(~seed_, i));
      z_[i] = -1;
    }
  });
}

template <class Wrong>
uint64_t StreamArrays::count_wrong(StreamTeam& team, Wrong wrong) const {
  std::vector<uint64_t> each(team.threads());
  (void)team.run(count_, [&](unsigned thread, size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      const auto x = static_cast<double>(random_at(seed_, i)), y = static_cast<double>(random_at(~seed_, i));
      each[thread] += x_[i] != x || y_[i] != y || wrong(z_[i], x, y);
    }
  });
  return std::accumulate(each.begin(), each.end(), uint64_t{0});
}

uint64_t StreamArrays::wrong(StreamTeam& team, StreamKind operation) const {
  return count_wrong(team, [&](double z, double x, double y) { return z != result_of(operation, x, y); });
}

bool StreamArrays::right_operands(StreamTeam& team) const {
  return count_wrong(team, [](double, double, double) { return false; }) == 0;
}

StreamResult StreamArrays::measure(StreamTeam& team, StreamKind operation, double seconds) {
  std::vector<uint64_t> sums(8 * team.threads());  // on lines of their own
  const StreamTeam::Part part = [&](unsigned thread, size_t from, size_t to) {
    switch (operation) {
      case StreamKind::copy:
        return copy(z_, x_, from, to);
      case StreamKind::scale:
        return scale(z_, x_, from, to);
      case StreamKind::add:
        return add(z_, x_, y_, from, to);
      case StreamKind::triad:
        return triad(z_, x_, y_, from, to);
      case StreamKind::write:
        return write(z_, from, to);
      case StreamKind::read:
        sums[8 * thread] = read(x_, from, to);
    }
  };
  if (operation != StreamKind::read) {  // what the operation does not write is seen
    (void)team.run(count_, [this](unsigned, size_t from, size_t to) {
      for (size_t i = from; i < to; ++i) z_[i] = -1;
    });
  }
  const std::vector<double> took = repeat(seconds, [&] { return team.run(count_, part); });
  StreamResult result{best_of(took), percentile(took, 50), false};
  if (operation != StreamKind::read) {
    result.verified = wrong(team, operation) == 0;
  } else {
    uint64_t expected = 0;
    for (size_t i = 0; i < count_; ++i) expected += __builtin_bit_cast(uint64_t, static_cast<double>(random_at(seed_, i)));
    result.verified = std::accumulate(sums.begin(), sums.end(), uint64_t{0}) == expected;
  }
  return result;
}

}  // namespace perf
