// SPDX-License-Identifier: Apache-2.0
// Messages of peers' proxies, from the worker's handler to the proxy's thread. The worker keeps a message, so that its peer has no more of
// them under way than it was granted (protocols/flow.hpp), until it is fetched: in each peer's order, a few at a time.
#pragma once
#include <cstddef>
#include <list>
#include <mutex>
#include <vector>

#include <thalweg/thalweg.h>

namespace thalweg::impl {

class ControlInbox {
 public:
  struct Arrival {
    tw_endpoint* endpoint;
    size_t length;
    tw_am_data* kept;  // null: it is being fetched, or here
    std::vector<std::byte> bytes = {};
    bool here = false;
  };
  using Arrivals = std::list<Arrival>;
  /// The handler; arg: the inbox. Under the worker's lock, so only the inbox's own lock may be taken.
  static tw_status on_message(void* arg, const tw_am_message* message);
  /// Fetches what is next, and says how many. On the proxy's thread, which alone takes arrivals out.
  unsigned fetch();
  /// What has been fetched, in each peer's order. The bytes of one that went with its peer are empty.
  Arrivals take();
  /// Bytes that have come, or are being fetched, and are not taken yet.
  size_t held();
  bool has(const tw_endpoint* endpoint);

 private:
  void fetch(Arrivals::iterator place);
  std::mutex mutex_;
  Arrivals all_;
};

}  // namespace thalweg::impl
