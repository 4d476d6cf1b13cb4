// SPDX-License-Identifier: Apache-2.0
// The operations, at either end: rank 0 starts them, rank 1 receives or is the target. Each ends by telling the other end
// how it went; what an end then holds is verified whatever that was.
#include <cstring>
#include <memory>

#include "../fixtures/rooms.hpp"
#include "device_end.hpp"
#include "devices/registry.hpp"

namespace thalweg::faults {
namespace {

constexpr uint64_t kTag = 9, kValue = 5;

tw_status first(tw_status one, tw_status other) { return one < 0 ? one : other; }

constexpr uint64_t kOnItsWay = 200'000'000;  // nanoseconds: what was sent before the other end spoke

/// A receive. When the sender has failed before its RTS the receive is still unmatched and is taken back.
tw_status await_message(End& end, tw_request request) {
  const auto over = [&] { return tw_request_test(request) != TW_IN_PROGRESS; };
  end.progress_until("a receive", [&] { return over() || end.told(); });
  if (!test::progress_until(end.worker, over, kOnItsWay)) (void)tw_request_cancel(request);
  return end.wait(request);
}

tw_status verify_message(End& end, uint64_t seed, tw_status mine) {
  const tw_status theirs = end.agree(mine);
  if (end.rank == 0) {
    end.verify(seed, true, "the source");
  } else {
    end.verify(seed, mine == TW_OK, "the receiver's buffer");
    demand(mine != TW_ERR_CANCELED || theirs < 0, "nothing came, but the sender was told that it had been sent");
  }
  return mine;
}

tw_status start_send(End& end, uint32_t flags, tw_request* request) {
  tw_op_options options = end.options();
  options.flags = flags;
  return end.note(tw_send(end.endpoint, end.address(), end.bytes(), kTag, &options, request));
}

tw_status start_receive(End& end, tw_request* request) {
  const tw_op_options options = end.options();
  return end.note(tw_recv(end.worker, end.address(), end.bytes(), kTag, ~0ull, &options, request));
}

tw_status send_with(End& end, uint64_t seed, uint32_t flags, bool early) {
  tw_request request = TW_REQUEST_NONE;
  end.rank == 0 ? end.fill(seed) : end.poison();
  end.arm();
  tw_status status = TW_OK;
  if (end.rank == 1) {
    if (!early) status = start_receive(end, &request);
    end.swap("posted");
    if (early) {
      const auto there = [&] { return tw_probe(end.worker, kTag, ~0ull, nullptr, nullptr, nullptr) == TW_OK; };
      end.progress_until("an unexpected message", [&] { return there() || end.told(); });
      status = start_receive(end, &request);
    }
    if (status >= 0) status = await_message(end, request);
  } else {
    end.swap("posted");
    status = start_send(end, flags, &request);
    if (status >= 0) status = end.wait(request);
  }
  return verify_message(end, seed, status);
}

tw_status send(End& end, uint64_t seed) { return send_with(end, seed, 0, false); }
tw_status send_unexpected(End& end, uint64_t seed) { return send_with(end, seed, 0, true); }
tw_status send_synchronous(End& end, uint64_t seed) { return send_with(end, seed, TW_OP_SYNC, false); }

tw_status keep(void* arg, const tw_am_message* message) {
  *static_cast<tw_am_data**>(arg) = message->descriptor;
  return TW_IN_PROGRESS;
}

tw_status active_message(End& end, uint64_t seed) {
  constexpr uint16_t kId = 7;
  const tw_op_options options = end.options();
  tw_request request = TW_REQUEST_NONE;
  tw_status status = TW_OK;
  if (end.rank == 0) {
    end.fill(seed);
    end.arm();
    status = end.note(tw_am_send(end.endpoint, kId, nullptr, 0, end.address(), end.bytes(), &options, &request));
    if (status >= 0) status = end.wait(request);
    return verify_message(end, seed, status);
  }
  end.poison();
  tw_am_data* data = nullptr;
  must(tw_am_register(end.worker, kId, keep, &data), "tw_am_register");
  end.arm();
  end.progress_until("an active message", [&] { return data != nullptr || end.told(); });
  if (!test::progress_until(end.worker, [&] { return data != nullptr; }, kOnItsWay)) {
    status = TW_ERR_CANCELED;  // as a receive that was taken back
  } else {
    status = end.note(tw_am_recv(data, end.address(), end.bytes(), &options, &request));
    if (status >= 0) status = end.wait(request);
  }
  must(tw_am_register(end.worker, kId, nullptr, nullptr), "tw_am_register");
  return verify_message(end, seed, status);
}

// ------------------------------------------------------------------------------------------------ one-sided

/// Rank 1's memory as rank 0 names it.
class Target {
 public:
  explicit Target(End& end) {
    std::string key(kKeyRoom, '\0');
    size_t length = key.size();
    if (end.rank == 1) must(tw_memory_export(end.memory, key.data(), &length), "tw_memory_export");
    key.resize(length);
    const std::string theirs = end.swap(key);
    if (end.rank == 0) must(tw_memory_import(end.endpoint, theirs.data(), theirs.size(), &remote_), "tw_memory_import");
  }
  ~Target() {
    if (remote_ != nullptr) tw_remote_memory_release(remote_);
  }
  Target(const Target&) = delete;
  tw_remote_memory* remote() const { return remote_; }

 private:
  tw_remote_memory* remote_ = nullptr;
};

tw_status flush(End& end) {
  tw_request request = TW_REQUEST_NONE;
  const tw_status status = end.note(tw_endpoint_flush(end.endpoint, &request));
  return status < 0 ? status : end.wait(request);
}

/// `held`: the put has a request; else only the flush reports its failure.
tw_status put_with(End& end, uint64_t seed, uint32_t flags, bool held) {
  end.rank == 0 ? end.fill(seed) : end.poison();
  const Target target(end);
  end.arm();
  tw_status status = TW_OK;
  if (end.rank == 0) {
    tw_op_options options = end.options();
    options.remote_layout = options.layout;
    options.flags = flags;
    tw_request request = TW_REQUEST_NONE;
    status = end.note(
        tw_put(end.endpoint, end.address(), end.bytes(), target.remote(), End::kGuard, &options, held ? &request : nullptr));
    if (status >= 0) status = end.wait(request);
    const tw_status flushed = flush(end);
    demand((flags & TW_OP_REMOTE) == 0 || !held || status < 0 || flushed == TW_OK, "remote completion, but the flush failed");
    status = first(status, flushed);
  }
  const tw_status theirs = end.agree(status);
  end.verify(seed, end.rank == 0 || theirs == TW_OK, end.rank == 0 ? "the source" : "the target");
  return status;
}

tw_status put(End& end, uint64_t seed) { return put_with(end, seed, 0, true); }
tw_status put_unheld(End& end, uint64_t seed) { return put_with(end, seed, 0, false); }
tw_status put_remote(End& end, uint64_t seed) { return put_with(end, seed, TW_OP_REMOTE, true); }

/// What the signal covers is there when the signal is, whatever became of the put.
tw_status put_signal(End& end, uint64_t seed) {
  end.rank == 0 ? end.fill(seed) : end.poison();
  const Target target(end);
  tw_signal* signal = nullptr;
  tw_remote_signal* remote = nullptr;
  std::string key(kKeyRoom, '\0');
  size_t length = key.size();
  if (end.rank == 1) {
    must(tw_signal_create(end.worker, nullptr, &signal), "tw_signal_create");
    must(tw_signal_export(signal, key.data(), &length), "tw_signal_export");
  }
  key = end.swap(key.substr(0, length));
  if (end.rank == 0) must(tw_signal_import(end.endpoint, key.data(), key.size(), &remote), "tw_signal_import");
  end.arm();
  tw_status status = TW_OK;
  if (end.rank == 0) {
    tw_op_options options = end.options();
    options.remote_layout = options.layout;
    options.signal = remote;
    options.signal_value = kValue;
    tw_request request = TW_REQUEST_NONE;
    status = end.note(tw_put(end.endpoint, end.address(), end.bytes(), target.remote(), End::kGuard, &options, &request));
    if (status >= 0) status = end.wait(request);
    status = first(status, flush(end));
  }
  const tw_status theirs = end.agree(status);
  if (end.rank == 1) {
    if (theirs == TW_OK)
      must(tw_signal_wait(signal, kValue, TW_COMPARE_GE, 10'000'000'000), "the signal of a put that succeeded");
    end.verify(seed, tw_signal_test(signal, kValue, TW_COMPARE_GE) == TW_OK, "the target behind its signal");
    must(tw_signal_destroy(signal), "tw_signal_destroy");
  } else {
    tw_remote_signal_release(remote);
  }
  return status;
}

tw_status get(End& end, uint64_t seed) {
  end.rank == 1 ? end.fill(seed) : end.poison();
  const Target target(end);
  end.arm();
  tw_status status = TW_OK;
  if (end.rank == 0) {
    tw_op_options options = end.options();
    options.remote_layout = options.layout;
    tw_request request = TW_REQUEST_NONE;
    status = end.note(tw_get(end.endpoint, end.address(), end.bytes(), target.remote(), End::kGuard, &options, &request));
    if (status >= 0) status = end.wait(request);
  }
  end.agree(status);
  end.verify(seed, end.rank == 1 || status == TW_OK, end.rank == 1 ? "the source" : "the requester's buffer");
  return status;
}

/// Added to once or not at all; an error may stand for either.
tw_status atomic(End& end, uint64_t seed) {
  constexpr uint64_t kAdded = 3;
  const auto word_of = [](const std::vector<unsigned char>& bytes) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + End::kGuard, sizeof word);
    return word;
  };
  end.fill(seed);
  const Target target(end);
  uint64_t before = 0, old = 0;
  const std::vector<unsigned char> bytes = end.load();
  before = word_of(bytes);  // both ends have the same bytes
  end.arm();
  tw_status status = TW_OK;
  if (end.rank == 0) {
    tw_request request = TW_REQUEST_NONE;
    status = end.note(
        tw_atomic(end.endpoint, TW_ATOMIC_ADD, target.remote(), End::kGuard, sizeof old, kAdded, 0, &old, nullptr, &request));
    if (status >= 0) status = end.wait(request);
    demand(status < 0 || old == before, "an atomic fetched something else than the word");
  }
  const tw_status theirs = end.agree(status);
  if (end.rank == 0) return status;
  std::vector<unsigned char> after = end.load();
  const uint64_t word = word_of(after);
  demand(word == before + kAdded || (theirs < 0 && word == before), "the word is neither the old nor the new one");
  std::memcpy(after.data() + End::kGuard, bytes.data() + End::kGuard, sizeof word);
  demand(after == bytes, "an atomic touched its neighbours");
  return status;
}

// ------------------------------------------------------------------------------------------------ behind a stream

/// A stream of the user's on the device of rank 0's buffer, held up until its destruction.
class HeldUp {
 public:
  explicit HeldUp(End& end) {
    impl::BufferInfo info;
    demand(impl::find_device(reinterpret_cast<uint64_t>(end.address()), &info) == TW_OK, "not device memory");
    device_ = info.device;
    if (device_->allocate(impl::MemoryKind::pinned, 64, &word_) != TW_OK) return;
    __atomic_store_n(reinterpret_cast<uint64_t*>(word_), 0, __ATOMIC_RELEASE);
    if (device_->make_queue(&queue_) == TW_OK) held_ = queue_->wait_geq(word_, 1) == TW_OK;
  }
  ~HeldUp() {
    go_on();
    if (queue_ != nullptr) queue_->synchronize();
    queue_.reset();
    if (word_ != 0) device_->free(word_);
  }
  HeldUp(const HeldUp&) = delete;
  void go_on() const {
    if (word_ != 0) __atomic_store_n(reinterpret_cast<uint64_t*>(word_), 1, __ATOMIC_RELEASE);
  }
  bool held() const { return held_; }
  void* native() const { return queue_->native(); }

 private:
  impl::Device* device_ = nullptr;
  std::unique_ptr<impl::Queue> queue_;
  uint64_t word_ = 0;
  bool held_ = false;
};

/// The stream continues, or breaks, after the message's RTS was sent.
tw_status send_after(End& end, uint64_t seed) {
  tw_request request = TW_REQUEST_NONE;
  end.rank == 0 ? end.fill(seed) : end.poison();
  end.arm();
  if (end.rank == 1) {
    tw_status status = start_receive(end, &request);
    end.swap("posted");
    if (status >= 0) status = await_message(end, request);
    return verify_message(end, seed, status);
  }
  end.swap("posted");
  const HeldUp stream(end);
  tw_status status = TW_ERR_DEVICE;  // the user's own stream could not be made
  if (stream.held()) {
    tw_op_options options = end.options();
    options.after = stream.native();
    options.after_kind = TW_AFTER_STREAM;
    status = end.note(tw_send(end.endpoint, end.address(), end.bytes(), kTag, &options, &request));
    for (int i = 0; i < 2000; ++i) tw_worker_progress(end.worker);
    stream.go_on();
    if (status >= 0) status = end.wait(request);
  } else {
    end.error = "the user's stream";
  }
  return verify_message(end, seed, status);
}

}  // namespace

const std::vector<Named>& operations() {
  static const std::vector<Named> all = {{"send", send},
                                         {"send_unexpected", send_unexpected},
                                         {"send_synchronous", send_synchronous},
                                         {"send_after", send_after},
                                         {"active_message", active_message},
                                         {"put", put},
                                         {"put_unheld", put_unheld},
                                         {"put_remote", put_remote},
                                         {"put_signal", put_signal},
                                         {"get", get},
                                         {"atomic", atomic}};
  return all;
}

}  // namespace thalweg::faults
