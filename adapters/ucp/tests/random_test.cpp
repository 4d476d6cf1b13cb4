// SPDX-License-Identifier: Apache-2.0
// Random operations, closes and cancels between two workers: nothing crashes, every request ends, and what arrives is right.
#include <algorithm>
#include <cstdlib>
#include <set>

#include "world.hpp"

using namespace ucp_test;

namespace {

constexpr ucp_tag_t kAll = ~ucp_tag_t{0};
constexpr size_t kRegion = 1 << 20, kRead = kRegion / 2;  // puts go below kRead, gets come from there

/// What messages carry: no byte is its neighbour, so that what was not written, or not all, shows.
std::vector<unsigned char> pattern(unsigned char first, size_t length) {
  std::vector<unsigned char> bytes(length);
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<unsigned char>(first + i * 7);
  return bytes;
}
bool is_pattern(const unsigned char* bytes, size_t length) {
  for (size_t i = 1; i < length; ++i) {
    if (bytes[i] != static_cast<unsigned char>(bytes[0] + i * 7)) return false;
  }
  return true;
}

enum class Gets { nothing, message, payload };  // verified when it has ended

/// One operation's memory, which stays until its request has ended.
struct Operation {
  ucs_status_ptr_t request;
  std::vector<unsigned char> bytes;
  Gets gets;
};

class Play {
 public:
  explicit Play(uint64_t seed) : random_(seed), sides_{&world_.a, &world_.b} {
    for (int side = 0; side < 2; ++side) {
      memory_[side].resize(kRegion);
      const auto known = pattern(static_cast<unsigned char>(pick(256)), kRegion - kRead);
      std::copy(known.begin(), known.end(), memory_[side].begin() + kRead);
      ucp_mem_map_params_t params{};
      params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
      params.address = memory_[side].data();
      params.length = kRegion;
      EXPECT_EQ(ucp_mem_map(sides_[side]->context, &params, &mapped_[side]), UCS_OK);
      set_handler(side);
    }
  }
  ~Play() {
    for (int side = 0; side < 2; ++side) {
      for (const auto& [data, length] : kept_[side]) ucp_am_data_release(sides_[side]->worker, data);
      for (auto& [ep, key] : endpoints_[side]) ucp_rkey_destroy(key);
      for (Operation& one : operations_[side]) {
        if (ucp_request_check_status(one.request) != UCS_INPROGRESS) ucp_request_free(one.request);
      }
      EXPECT_EQ(ucp_mem_unmap(sides_[side]->context, mapped_[side]), UCS_OK);
    }
  }
  /// The workers end with what is under way.
  void run(int steps) {
    for (int i = 0; i < steps; ++i) step();
  }
  /// All close, and what has not ended is canceled: then all ends.
  void end() {
    for (int side = 0; side < 2; ++side) {
      while (!endpoints_[side].empty()) close(side, true);
      for (Operation& one : operations_[side]) ucp_request_cancel(sides_[side]->worker, one.request);
    }
    EXPECT_TRUE(world_.until([&] {
      for (int side = 0; side < 2; ++side) take_what_is_left(side);
      return operations_[0].empty() && operations_[1].empty();
    })) << "have not ended: "
        << names(0) << "and at the other side " << names(1);
  }

  static inline size_t verified = 0;  // what was received and looked at

 private:
  size_t pick(size_t n) { return random_() % n; }
  size_t length() { return std::vector<size_t>{0, 1, 100, 5000, 70000, 400000}[pick(6)]; }

  void set_handler(int side) {
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
                       UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    param.id = 1;
    param.arg = this;
    param.flags = side == 0 ? UCP_AM_FLAG_PERSISTENT_DATA : 0;
    param.cb = side == 0 ? handle<0> : handle<1>;
    ASSERT_EQ(ucp_worker_set_am_recv_handler(sides_[side]->worker, &param), UCS_OK);
  }

  template <int kSide>
  static ucs_status_t handle(void* arg, const void* header, size_t header_length, void* data, size_t length,
                             const ucp_am_recv_param_t* param) {
    auto& self = *static_cast<Play*>(arg);
    unsigned char value = 0;
    EXPECT_EQ(header_length, 1u);
    std::memcpy(&value, header, 1);
    const bool announced = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    if (!announced && length != 0) {
      EXPECT_EQ(*static_cast<unsigned char*>(data), value);
      EXPECT_TRUE(is_pattern(static_cast<unsigned char*>(data), length));
    }
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0 && self.pick(2) == 0) self.reply(kSide, param->reply_ep);
    if (!announced && (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) == 0) return UCS_OK;
    switch (self.pick(3)) {
      case 0:
        return UCS_OK;
      case 1:
        self.kept_[kSide].emplace_back(data, length);
        return UCS_INPROGRESS;
      default:
        self.fetch(kSide, data, length);
        return self.pick(2) == 0 ? UCS_OK : UCS_INPROGRESS;
    }
  }
  void reply(int side, ucp_ep_h ep) {
    const ucp_request_param_t none = nothing();
    const unsigned char value = 3;
    add(side, ucp_am_send_nbx(ep, 1, &value, 1, nullptr, 0, &none), {});
  }
  void fetch(int side, void* data, size_t length) {
    const ucp_request_param_t none = nothing();
    std::vector<unsigned char> into(length);
    ucs_status_ptr_t request = ucp_am_recv_data_nbx(sides_[side]->worker, data, into.data(), length, &none);
    add(side, request, std::move(into), Gets::payload);
  }
  void add(int side, ucs_status_ptr_t request, std::vector<unsigned char> bytes, Gets gets = Gets::nothing) {
    if (UCS_PTR_IS_PTR(request)) operations_[side].push_back({request, std::move(bytes), gets});
  }
  /// How an operation may end where both close and cancel; what it got.
  static void verify(const Operation& one) {
    const ucs_status_t status = ucp_request_check_status(one.request);
    static const std::set<ucs_status_t> kKnown = {UCS_OK,
                                                  UCS_ERR_CANCELED,
                                                  UCS_ERR_MESSAGE_TRUNCATED,
                                                  UCS_ERR_CONNECTION_RESET,
                                                  UCS_ERR_ENDPOINT_TIMEOUT,
                                                  UCS_ERR_NOT_CONNECTED,
                                                  UCS_ERR_UNREACHABLE};
    EXPECT_TRUE(kKnown.contains(status)) << status;
    if (status != UCS_OK || one.gets == Gets::nothing) return;
    size_t length = one.bytes.size();
    ucp_tag_recv_info_t info{};
    if (one.gets == Gets::message) {
      EXPECT_EQ(ucp_tag_recv_request_test(one.request, &info), UCS_OK);
      ASSERT_LE(info.length, length);
      length = info.length;
    }
    EXPECT_TRUE(is_pattern(one.bytes.data(), length)) << length << " bytes";
    ++verified;
  }

  /// So that no sender waits for its receiver.
  void take_what_is_left(int side) {
    while (!kept_[side].empty()) end_kept(side);
    const ucp_request_param_t none = nothing();
    ucp_tag_recv_info_t info{};
    while (ucp_tag_message_h message = ucp_tag_probe_nb(sides_[side]->worker, 0, 0, 1, &info)) {
      std::vector<unsigned char> into(info.length);
      ucs_status_ptr_t request = ucp_tag_msg_recv_nbx(sides_[side]->worker, into.data(), into.size(), message, &none);
      add(side, request, std::move(into), Gets::message);
    }
    // By reply endpoints, too: of connections that the other side made again.
    ucp_stream_poll_ep_t ready[4];
    const ssize_t count = ucp_stream_worker_poll(sides_[side]->worker, ready, 4, 0);
    for (ssize_t i = 0; i < count; ++i) {
      size_t length = 0;
      while (ucs_status_ptr_t const data = ucp_stream_recv_data_nb(ready[i].ep, &length)) {
        if (UCS_PTR_IS_ERR(data)) break;
        ucp_stream_data_release(ready[i].ep, data);
      }
    }
    reap(side);
  }
  std::string names(int side) {
    std::string all;
    for (const Operation& one : operations_[side]) {
      char name[64] = "";
      ucp_request_attr_t attr{};
      attr.field_mask = UCP_REQUEST_ATTR_FIELD_INFO_STRING | UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE;
      attr.debug_string = name;
      attr.debug_string_size = sizeof name;
      EXPECT_EQ(ucp_request_query(one.request, &attr), UCS_OK);
      all += std::string(name) + " of " + std::to_string(one.bytes.size()) + ", ";
    }
    return all;
  }
  void reap(int side) {
    std::erase_if(operations_[side], [&](Operation& one) {
      if (ucp_request_check_status(one.request) == UCS_INPROGRESS) return false;
      verify(one);
      ucp_request_free(one.request);
      return true;
    });
  }
  void open(int side) {
    if (endpoints_[side].size() > 4) return;
    sides_[side]->connect(*sides_[1 - side]);
    void* packed = nullptr;
    size_t size = 0;
    ASSERT_EQ(ucp_rkey_pack(sides_[1 - side]->context, mapped_[1 - side], &packed, &size), UCS_OK);
    ucp_rkey_h key = nullptr;
    EXPECT_EQ(ucp_ep_rkey_unpack(sides_[side]->ep, packed, &key), UCS_OK);
    ucp_rkey_buffer_release(packed);
    endpoints_[side].emplace_back(sides_[side]->ep, key);
  }
  void close(int side, bool force) {
    const auto [ep, key] = endpoints_[side].back();
    endpoints_[side].pop_back();
    const bool early = pick(2) == 0;
    if (early) ucp_rkey_destroy(key);
    add(side, ucp_ep_close_nb(ep, force ? UCP_EP_CLOSE_MODE_FORCE : UCP_EP_CLOSE_MODE_FLUSH), {});
    if (!early) ucp_rkey_destroy(key);
  }

  void step() {
    const int side = static_cast<int>(pick(2));
    for (size_t i = pick(4); i > 0; --i) ucp_worker_progress(sides_[pick(2)]->worker);
    reap(side);
    if (endpoints_[side].empty() || pick(40) == 0) return open(side);
    if (pick(60) == 0) return close(side, pick(3) == 0);
    if (!operations_[side].empty() && pick(20) == 0) {
      return ucp_request_cancel(sides_[side]->worker, operations_[side][pick(operations_[side].size())].request);
    }
    if (!kept_[side].empty() && pick(2) == 0) return end_kept(side);
    post(side, pick(11));
  }
  void end_kept(int side) {
    const auto [data, length] = kept_[side].back();
    kept_[side].pop_back();
    if (pick(2) == 0) return ucp_am_data_release(sides_[side]->worker, data);
    fetch(side, data, length);
  }
  void post(int side, size_t what) {
    const auto [ep, key] = endpoints_[side][pick(endpoints_[side].size())];
    ucp_worker_h const worker = sides_[side]->worker;
    const ucp_request_param_t none = nothing();
    const auto value = static_cast<unsigned char>(pick(256));
    const bool receives = what == 2 || what == 3, gets = what == 9;
    std::vector<unsigned char> bytes =
        receives || gets || what == 7 ? std::vector<unsigned char>(length(), 0xA5) : pattern(value, length());
    const uint64_t there = reinterpret_cast<uint64_t>(memory_[1 - side].data());
    unsigned char* const at = bytes.data();
    const size_t n = bytes.size();
    const uint32_t kWays[] = {0, UCP_AM_SEND_FLAG_EAGER, UCP_AM_SEND_FLAG_RNDV, UCP_AM_SEND_FLAG_REPLY};
    const ucp_request_param_t way = flags(kWays[pick(4)]), all = flags(UCP_STREAM_RECV_FLAG_WAITALL);
    size_t received = 0;
    ucs_status_ptr_t request = nullptr;
    switch (what) {
      case 0:
        request = ucp_tag_send_nbx(ep, at, n, pick(3), &none);
        break;
      case 1:
        request = ucp_tag_send_sync_nbx(ep, at, n, pick(3), &none);
        break;
      case 2:
      case 3:
        request = ucp_tag_recv_nbx(worker, at, n, pick(3), kAll, &none);
        break;
      case 4:
      case 5:
        request = ucp_am_send_nbx(ep, 1, &value, 1, at, n, &way);
        break;
      case 6:
        request = ucp_stream_send_nbx(ep, at, n, &none);
        break;
      case 7:
        request = ucp_stream_recv_nbx(ep, at, n, &received, pick(2) == 0 ? &all : &none);
        break;
      case 8:
        request = ucp_put_nbx(ep, at, n, there, key, &none);
        break;
      case 9:
        request = ucp_get_nbx(ep, at, n, there + kRead, key, &none);
        break;
      default:
        request = pick(2) == 0 ? ucp_ep_flush_nbx(ep, &none) : ucp_worker_flush_nbx(worker, &none);
    }
    add(side, request, std::move(bytes), receives ? Gets::message : gets ? Gets::payload : Gets::nothing);
  }

  std::mt19937_64 random_;
  World world_;
  Side* sides_[2];
  std::vector<unsigned char> memory_[2];
  ucp_mem_h mapped_[2] = {};
  std::vector<std::pair<ucp_ep_h, ucp_rkey_h>> endpoints_[2];
  std::vector<Operation> operations_[2];
  std::vector<std::pair<void*, size_t>> kept_[2];
};

TEST(Random, OperationsEndWhateverClosesAndCancels) {
  const char* const rounds = std::getenv("UCP_RANDOM_ROUNDS");
  const int count = rounds != nullptr ? std::atoi(rounds) : 6;
  const char* const seed = std::getenv("UCP_RANDOM_SEED");
  const uint64_t first = seed != nullptr ? std::strtoull(seed, nullptr, 10) : rounds != nullptr ? std::random_device{}() : 1;
  for (int round = 0; round < count && !::testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE("seed " + std::to_string(first + static_cast<uint64_t>(round)));
    Play play(first + static_cast<uint64_t>(round));
    play.run(1500);
    if (round % 2 == 0) play.end();
  }
  EXPECT_GT(Play::verified, 100u);
}

}  // namespace
