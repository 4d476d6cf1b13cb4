// SPDX-License-Identifier: Apache-2.0
// The groups of a program's workers, and their collectives. An operation of the program is a collective of one group: one of its
// ranks calls it there and then, others when operations say so (`join`), and what is left at the end. So ranks are late, and several
// collectives of a group are under way at once; each rank calls them in the same order.
//
// The library's groups stand on core's workers and endpoints. A core worker here has the model's engine in place of its own, no
// transports, and no part in connection set-up.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "groups/group.hpp"
#include "model/buffers.hpp"
#include "model/jobs.hpp"

namespace thalweg::model {

class World;
struct Posted;

class Groups {
 public:
  explicit Groups(World& world);
  ~Groups();  // peers are removed from their engines, and these progress
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  /// What::collective: a new one, and its first caller.
  void begin(const Op& op);
  /// What::join: the worker calls the next one of a group.
  void join(const Op& op);
  /// All ranks call what they have not called. False: there was nothing.
  bool call_the_rest();
  void ended(Posted& posted, Status status);

 private:
  /// One group at all of its ranks.
  struct Group {
    std::vector<unsigned> workers;  // by rank
    std::vector<std::unique_ptr<tw_group>> ranks;
    std::deque<Job> jobs;
    std::vector<size_t> called;  // of them, by rank
    std::vector<unsigned> under_way;
  };
  /// A rank's memory for one side of a call.
  struct Room {
    Buffer* buffer = nullptr;
    uint64_t at = 0;  // in it, where elements are aligned
  };
  /// A rank's part in one collective.
  struct Call {
    Group* group = nullptr;
    const Job* job = nullptr;
    uint32_t rank = 0;
    Room send, recv;
    bool among = false, wraps = false;
    size_t element = 1;
  };
  void make_group(unsigned index);
  void call(Group& group, uint32_t rank, uint32_t id, uint32_t flags);
  bool call_next(Group& group, uint32_t rank, uint32_t flags);
  Room room(unsigned worker, const Side& side, uint32_t flags, size_t element);
  bool check_side(const Side& side, const Room& room, const Bytes& bytes) const;
  bool is_broken(const Group& group) const;
  bool names_a_broken_rank(const Group& group, const std::string& text) const;
  void cover(const Posted& posted, const Call& call, Status status);

  World& world_;
  std::vector<Group> groups_;
  std::deque<Call> calls_;
};

}  // namespace thalweg::model
