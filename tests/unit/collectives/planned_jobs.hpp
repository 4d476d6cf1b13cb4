// SPDX-License-Identifier: Apache-2.0
// Collectives for tests that prepare them once and run them again and again: each with its buffers, inputs by a seed, and what its
// output has to be then.
#pragma once
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "group_ranks.hpp"
#include "reference.hpp"

namespace thalweg::test {

/// A plan to which a collective is added, or a queue on which it is called.
struct Target {
  tw_plan* plan = nullptr;
  tw_queue* queue = nullptr;
  tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
  uint32_t step = 0;
};
#define THALWEG_CALL(target, name, ...)                                                                     \
  ((target).plan != nullptr ? tw_plan_##name((target).plan, __VA_ARGS__, &(target).options, &(target).step) \
                            : tw_##name##_on((target).queue, __VA_ARGS__, &(target).options))

struct JobCase {
  uint32_t type = TW_TYPE_FLOAT32, op = TW_REDUCE_SUM, root = 0;
  size_t count = 1;
  bool in_place = false;
  const char* place = "host";
  tw_queue* windows = nullptr;  // each buffer is one of the group, registered on this queue
};

/// Type, operation, root and whether in place by `pick`. place lives as long.
inline JobCase random_case(uint64_t pick, size_t count, uint32_t size, const std::string& place) {
  JobCase c;
  c.type = static_cast<uint32_t>(pick % (TW_TYPE_UINT8 + 1));
  c.op = static_cast<uint32_t>(pick / 9 % (is_float(c.type) ? TW_REDUCE_MAX + 1 : TW_REDUCE_XOR + 1));
  c.count = count;
  c.root = static_cast<uint32_t>(pick % size);
  c.in_place = pick / 5 % 2 == 1;
  c.place = place.c_str();
  return c;
}

struct Job {
  const char* name = "";
  std::function<tw_status(Target&)> call;
  std::function<void(uint64_t seed)> fill, check;
};

/// All kinds of collectives of one rank, with their buffers.
class Jobs {
 public:
  Jobs(GroupRank& rank, const JobCase& what, tw_group* group = nullptr)
      : rank_(rank), c_(what), group_(group != nullptr ? group : rank.group), me_(rank.rank.number), size_(rank.rank.size) {}
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;
  /// Collective where buffers are windows.
  ~Jobs() {
    for (tw_window* const window : windows_) EXPECT_EQ(tw_window_destroy(window), TW_OK) << tw_last_error();
  }

  void add_reductions() {
    add_allreduce();
    add_reduce();
    add_reduce_scatter();
    add_reduce_scatterv();
    add_scan(false);
    add_scan(true);
  }
  /// Those whose ranks all have blocks of the same length.
  void add_equal_blocks() {
    add_allreduce();
    add_reduce();
    add_reduce_scatter();
    add_scan(false);
    add_scan(true);
    add_broadcast();
    add_allgather();
    add_gather();
    add_scatter();
    add_alltoall();
  }
  /// Those that kernels do in windows.
  void add_symmetric() {
    add_allreduce();
    add_broadcast();
    add_allgather();
    if (c_.in_place) return;
    add_reduce();  // in place, the root's operands would lie in another window than the others'
    add_reduce_scatter();
    add_alltoall();
  }
  /// Those whose ranks have blocks of several lengths.
  void add_several_lengths() {
    add_reduce_scatterv();
    add_gatherv(false);
    add_gatherv(true);
    add_scatterv();
    add_alltoallv();
  }
  void add_exchanges() {
    add_broadcast();
    add_allgather();
    add_gather();
    add_gatherv(false);
    add_gatherv(true);
    add_scatter();
    add_scatterv();
    add_alltoall();
    add_alltoallv();
    jobs_.push_back({"barrier", [this](Target& t) { return barrier(t); }, [](uint64_t) {}, [](uint64_t) {}});
  }
  void add_all() {
    add_reductions();
    add_exchanges();
  }

  void call(Target target) {
    for (Job& job : jobs_) EXPECT_EQ(job.call(target), TW_OK) << job.name << ": " << tw_last_error();
  }
  void fill(uint64_t seed) {
    for (Job& job : jobs_) job.fill(seed);
  }
  void check(uint64_t seed) {
    for (Job& job : jobs_) job.check(seed);
  }

  void add_allreduce() {
    Room *send = room(c_.count), *recv = room(c_.count);
    jobs_.push_back({"allreduce",
                     [=, this](Target& t) {
                       return THALWEG_CALL(t, allreduce, group_, sent(send), recv->data(), c_.count, c_.type, c_.op);
                     },
                     [=, this](uint64_t seed) { input(send, recv)->store(encode(c_.type, values(seed, me_, c_.count))); },
                     [=, this](uint64_t seed) {
                       expect(recv, reduced(c_.op, all(seed, c_.count), 0, size_, 0, c_.count), "allreduce", seed);
                     }});
  }
  void add_broadcast() {
    Room* buffer = room(c_.count);
    jobs_.push_back(
        {"broadcast",
         [=, this](Target& t) { return THALWEG_CALL(t, broadcast, group_, buffer->data(), c_.count, c_.type, c_.root); },
         [=, this](uint64_t seed) {
           if (me_ == c_.root) buffer->store(encode(c_.type, values(seed, me_, c_.count)));
         },
         [=, this](uint64_t seed) { expect(buffer, values(seed, c_.root, c_.count), "broadcast", seed); }});
  }

 private:
  Room* room(size_t elements) {
    rooms_.push_back(std::make_unique<Room>(rank_.rank.context, c_.place, elements * size_of(c_.type)));
    if (c_.windows != nullptr) {
      windows_.push_back(nullptr);
      EXPECT_EQ(tw_group_window(group_, rooms_.back()->memory(), nullptr, &windows_.back()), TW_OK) << tw_last_error();
      EXPECT_EQ(tw_window_register_on(windows_.back(), c_.windows), TW_OK) << tw_last_error();
    }
    return rooms_.back().get();
  }
  const void* sent(Room* send) const { return c_.in_place ? TW_IN_PLACE : send->data(); }
  Room* input(Room* send, Room* recv) const { return c_.in_place ? recv : send; }
  Values values(uint64_t seed, uint32_t rank, size_t elements) const {
    std::mt19937_64 random(seed * 1000 + rank);
    Values values(elements);
    for (double& value : values) {
      const auto next = static_cast<int>(random() % 1000);
      if (c_.op == TW_REDUCE_PRODUCT) {
        value = is_float(c_.type) && next % 2 == 0 ? -1 : 1;
      } else if (c_.type == TW_TYPE_UINT8 || c_.type == TW_TYPE_BOOL) {
        value = next % (c_.type == TW_TYPE_BOOL ? 2 : 31);
      } else {
        value = size_of(c_.type) == 1 ? next % 3 - 1 : next % 15 - 7;
      }
    }
    return values;
  }
  std::vector<Values> all(uint64_t seed, size_t elements) const {
    std::vector<Values> all;
    for (uint32_t r = 0; r < size_; ++r) all.push_back(values(seed, r, elements));
    return all;
  }
  void expect(const Room* got, const Values& values, const char* what, uint64_t seed) const {
    const std::string wanted = encode(c_.type, values), found = got->load().substr(0, wanted.size());
    EXPECT_TRUE(found == wanted) << what << " at rank " << me_ << " of " << size_ << ": type " << c_.type << " operation "
                                 << c_.op << " count " << c_.count << " root " << c_.root << (c_.in_place ? " in place " : " ")
                                 << c_.place << " seed " << seed;
  }
  tw_status barrier(Target& t) {
    return t.plan != nullptr ? tw_plan_barrier(t.plan, group_, &t.options, &t.step)
                             : tw_barrier_on(t.queue, group_, &t.options);
  }

  void add_reduce() {
    Room *send = room(c_.count), *recv = room(c_.count);
    const bool root = me_ == c_.root, placed = c_.in_place && root;
    jobs_.push_back({"reduce",
                     [=, this](Target& t) {
                       return THALWEG_CALL(t, reduce_to_root, group_, placed ? TW_IN_PLACE : send->data(),
                                           root ? recv->data() : nullptr, c_.count, c_.type, c_.op, c_.root);
                     },
                     [=, this](uint64_t seed) { (placed ? recv : send)->store(encode(c_.type, values(seed, me_, c_.count))); },
                     [=, this](uint64_t seed) {
                       if (root) expect(recv, reduced(c_.op, all(seed, c_.count), 0, size_, 0, c_.count), "reduce", seed);
                     }});
  }
  void add_reduce_scatter() {
    const size_t whole = c_.count * size_;
    Room *send = room(whole), *recv = room(c_.in_place ? whole : c_.count);
    jobs_.push_back({"reduce_scatter",
                     [=, this](Target& t) {
                       return THALWEG_CALL(t, reduce_scatter, group_, sent(send), recv->data(), c_.count, c_.type, c_.op);
                     },
                     [=, this](uint64_t seed) { input(send, recv)->store(encode(c_.type, values(seed, me_, whole))); },
                     [=, this](uint64_t seed) {
                       expect(recv, reduced(c_.op, all(seed, whole), 0, size_, me_ * c_.count, c_.count), "reduce_scatter",
                              seed);
                     }});
  }
  void add_reduce_scatterv() {
    std::vector<size_t> counts;
    size_t total = 0, before = 0;
    for (uint32_t r = 0; r < size_; ++r) {
      counts.push_back(r % 3 == 1 ? 0 : c_.count + r);
      if (r < me_) before += counts[r];
      total += counts[r];
    }
    Room *send = room(total), *recv = room(counts[me_]);
    jobs_.push_back({"reduce_scatterv",
                     [=, this](Target& t) {
                       return THALWEG_CALL(t, reduce_scatterv, group_, send->data(), recv->data(), counts.data(), c_.type,
                                           c_.op);
                     },
                     [=, this](uint64_t seed) { send->store(encode(c_.type, values(seed, me_, total))); },
                     [=, this](uint64_t seed) {
                       expect(recv, reduced(c_.op, all(seed, total), 0, size_, before, counts[me_]), "reduce_scatterv", seed);
                     }});
  }
  void add_scan(bool exclusive) {
    Room *send = room(c_.count), *recv = room(c_.count);
    const uint32_t last = exclusive ? me_ : me_ + 1;
    jobs_.push_back({exclusive ? "exclusive_scan" : "scan",
                     [=, this](Target& t) {
                       return exclusive
                                  ? THALWEG_CALL(t, exclusive_scan, group_, sent(send), recv->data(), c_.count, c_.type, c_.op)
                                  : THALWEG_CALL(t, scan, group_, sent(send), recv->data(), c_.count, c_.type, c_.op);
                     },
                     [=, this](uint64_t seed) { input(send, recv)->store(encode(c_.type, values(seed, me_, c_.count))); },
                     [=, this](uint64_t seed) {
                       if (last != 0) expect(recv, reduced(c_.op, all(seed, c_.count), 0, last, 0, c_.count), "scan", seed);
                     }});
  }
  static Values joined(const std::vector<Values>& all) {
    Values whole;
    for (const Values& one : all) whole.insert(whole.end(), one.begin(), one.end());
    return whole;
  }
  void fill_gather(uint64_t seed, Room* send, Room* recv, bool placed) {
    const std::string own = encode(c_.type, values(seed, me_, c_.count));
    if (!placed) return send->store(own);
    std::string whole(own.size() * size_, '\x11');
    whole.replace(me_ * own.size(), own.size(), own);
    recv->store(whole);
  }
  void add_allgather() {
    Room *send = room(c_.count), *recv = room(c_.count * size_);
    jobs_.push_back(
        {"allgather",
         [=, this](Target& t) { return THALWEG_CALL(t, allgather, group_, sent(send), recv->data(), c_.count, c_.type); },
         [=, this](uint64_t seed) { fill_gather(seed, send, recv, c_.in_place); },
         [=, this](uint64_t seed) { expect(recv, joined(all(seed, c_.count)), "allgather", seed); }});
  }
  void add_gather() {
    Room *send = room(c_.count), *recv = room(c_.count * size_);
    const bool root = me_ == c_.root, placed = c_.in_place && root;
    jobs_.push_back({"gather",
                     [=, this](Target& t) {
                       return THALWEG_CALL(t, gather, group_, placed ? TW_IN_PLACE : send->data(),
                                           root ? recv->data() : nullptr, c_.count, c_.type, c_.root);
                     },
                     [=, this](uint64_t seed) { fill_gather(seed, send, recv, placed); },
                     [=, this](uint64_t seed) {
                       if (root) expect(recv, joined(all(seed, c_.count)), "gather", seed);
                     }});
  }

  /// Odd blocks with gaps between them, in the opposite order.
  struct Shares {
    std::vector<size_t> counts, offsets;
    size_t extent = 0;
  };
  Shares shares() const {
    Shares made;
    for (uint32_t r = 0; r < size_; ++r) made.counts.push_back(r % 4 == 2 ? 0 : c_.count + 3 * r);
    made.offsets.resize(size_);
    for (uint32_t r = size_; r-- > 0;) {
      made.offsets[r] = made.extent + 1;
      made.extent += made.counts[r] + 2;
    }
    return made;
  }
  std::string placed_blocks(const Shares& where, uint64_t seed, char fill) const {
    std::string whole(where.extent * size_of(c_.type), fill);
    for (uint32_t r = 0; r < size_; ++r) {
      const std::string block = encode(c_.type, values(seed, r, where.counts[r]));
      whole.replace(where.offsets[r] * size_of(c_.type), block.size(), block);
    }
    return whole;
  }
  void add_gatherv(bool rooted) {
    const Shares where = shares();
    Room *send = room(where.counts[me_]), *recv = room(where.extent);
    const bool here = !rooted || me_ == c_.root;
    jobs_.push_back({rooted ? "gatherv" : "allgatherv",
                     [=, this](Target& t) {
                       if (!rooted)
                         return THALWEG_CALL(t, allgatherv, group_, send->data(), recv->data(), where.counts.data(),
                                             where.offsets.data(), c_.type);
                       return THALWEG_CALL(t, gatherv, group_, send->data(), where.counts[me_], here ? recv->data() : nullptr,
                                           here ? where.counts.data() : nullptr, here ? where.offsets.data() : nullptr, c_.type,
                                           c_.root);
                     },
                     [=, this](uint64_t seed) { send->store(encode(c_.type, values(seed, me_, where.counts[me_]))); },
                     [=, this](uint64_t seed) {
                       if (!here) return;
                       EXPECT_TRUE(recv->load() == placed_blocks(where, seed, '\x5a')) << (rooted ? "gatherv" : "allgatherv");
                     }});
  }
  void add_scatter() {
    Room *send = room(c_.count * size_), *recv = room(c_.count);
    const bool here = me_ == c_.root, placed = c_.in_place && here;
    jobs_.push_back({"scatter",
                     [=, this](Target& t) {
                       return THALWEG_CALL(t, scatter, group_, here ? send->data() : nullptr,
                                           placed ? TW_IN_PLACE : static_cast<void*>(recv->data()), c_.count, c_.type, c_.root);
                     },
                     [=, this](uint64_t seed) {
                       if (here) send->store(encode(c_.type, values(seed, me_, c_.count * size_)));
                     },
                     [=, this](uint64_t seed) {
                       const Values whole = values(seed, c_.root, c_.count * size_);
                       const auto first = whole.begin() + static_cast<long>(me_ * c_.count);
                       if (!placed) expect(recv, Values(first, first + static_cast<long>(c_.count)), "scatter", seed);
                     }});
  }
  void add_scatterv() {
    const Shares where = shares();
    Room *send = room(where.extent), *recv = room(where.counts[me_]);
    const bool here = me_ == c_.root;
    jobs_.push_back({"scatterv",
                     [=, this](Target& t) {
                       return THALWEG_CALL(t, scatterv, group_, here ? send->data() : nullptr,
                                           here ? where.counts.data() : nullptr, here ? where.offsets.data() : nullptr,
                                           recv->data(), where.counts[me_], c_.type, c_.root);
                     },
                     [=, this](uint64_t seed) {
                       if (here) send->store(placed_blocks(where, seed, '\x33'));
                     },
                     [=, this](uint64_t seed) { expect(recv, values(seed, me_, where.counts[me_]), "scatterv", seed); }});
  }
  void add_alltoall() {
    const size_t whole = c_.count * size_;
    Room *send = room(whole), *recv = room(whole);
    jobs_.push_back(
        {"alltoall",
         [=, this](Target& t) { return THALWEG_CALL(t, alltoall, group_, sent(send), recv->data(), c_.count, c_.type); },
         [=, this](uint64_t seed) { input(send, recv)->store(encode(c_.type, values(seed, me_, whole))); },
         [=, this](uint64_t seed) {
           Values wanted;
           for (const Values& one : all(seed, whole)) {
             const auto first = one.begin() + static_cast<long>(me_ * c_.count);
             wanted.insert(wanted.end(), first, first + static_cast<long>(c_.count));
           }
           expect(recv, wanted, "alltoall", seed);
         }});
  }
  void add_alltoallv() {
    const auto count = [this](uint32_t from, uint32_t to) {
      return (from * 5 + to * 3) % 4 == 1 ? 0 : c_.count + from + 2 * to;
    };
    const auto block = [=, this](uint64_t seed, uint32_t from, uint32_t to) {
      return values(seed + 77 * to, from, count(from, to));
    };
    std::vector<size_t> sends, receives;
    size_t out = 0, in = 0;
    for (uint32_t r = 0; r < size_; ++r) {
      sends.push_back(count(me_, r));
      receives.push_back(count(r, me_));
      out += sends.back();
      in += receives.back();
    }
    Room *send = room(out), *recv = room(in);
    jobs_.push_back({"alltoallv",
                     [=, this](Target& t) {
                       return THALWEG_CALL(t, alltoallv, group_, send->data(), sends.data(), nullptr, recv->data(),
                                           receives.data(), nullptr, c_.type);
                     },
                     [=, this](uint64_t seed) {
                       Values whole;
                       for (uint32_t r = 0; r < size_; ++r) whole = joined({whole, block(seed, me_, r)});
                       send->store(encode(c_.type, whole));
                     },
                     [=, this](uint64_t seed) {
                       Values wanted;
                       for (uint32_t r = 0; r < size_; ++r) wanted = joined({wanted, block(seed, r, me_)});
                       expect(recv, wanted, "alltoallv", seed);
                     }});
  }

  GroupRank& rank_;
  const JobCase c_;
  tw_group* const group_;
  const uint32_t me_, size_;
  std::vector<std::unique_ptr<Room>> rooms_;
  std::vector<tw_window*> windows_;
  std::vector<Job> jobs_;
};

}  // namespace thalweg::test
