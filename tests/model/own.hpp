// SPDX-License-Identifier: Apache-2.0
// What other threads do beside a program on its engines: operations that the reference knows nothing of, under tags, an id
// of active messages and in memory of their own. Each is a small thing of two halves at most, so it says itself what must
// come of it.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "model/host.hpp"
#include "model/random.hpp"
#include "protocols/engine.hpp"

namespace thalweg::model {

class World;

constexpr uint64_t kTheirs = uint64_t{1} << 63;  // in tags of theirs, and in no other
constexpr uint16_t kTheirId = 2;                 // of active messages

/// One thing that was posted. It ends once, as its request or its callback says.
class Half {
 public:
  bool posted = false, ended = false, canceled = false, seen = false;
  Status status = TW_IN_PROGRESS;
  tw_recv_info info{};
  tw_request request = TW_REQUEST_NONE;

  Completion completion(bool by_callback);
  /// What start() and its like returned.
  void started(Status how);
  /// A receive of a caller that waits.
  void wait(Engine& engine, std::byte* to, size_t length, uint64_t tag);
  /// Looks whether it has ended. What went wrong, or null.
  const char* poll();
  bool cancel(Engine& engine);
  bool open() const { return posted && !ended; }

 private:
  static void called(void* arg, tw_request, tw_status status, const tw_recv_info* info);
  bool by_callback_ = false;
  std::unique_ptr<WaitedReceive> waited_;
  Engine* engine_ = nullptr;  // of waited_
  std::atomic<unsigned> calls_{0};
  Status told_ = TW_OK;
  tw_recv_info told_info_{};
};

/// Memory and a signal of a thread's own at a worker.
struct Piece {
  static constexpr size_t kSlot = 5000, kSlots = 3;
  unsigned worker = 0;
  Host* host = nullptr;
  tw_memory* memory = nullptr;
  std::unique_ptr<std::byte[]> plain;  // where it is registered
  std::byte* bytes = nullptr;
  KeyBody key{}, signal_key{};
  tw_signal* signal = nullptr;
  RemoteRegion *regions[kWorkers] = {}, *signals[kWorkers] = {};
  bool taken[kSlots] = {};
  unsigned busy = 0;             // operations
  bool lost = false;             // one of them: what is there is not known any more
  bool abandoned = false;        // one of them is of a process that has ended
  uint64_t added = 0, sure = 0;  // posted, and known to be applied
  uint64_t signalled = 0, signals_sure = 0;
  const uint64_t* word() const { return reinterpret_cast<const uint64_t*>(bytes + kSlot * kSlots); }
  static constexpr size_t kLength = kSlot * kSlots + 8;
};

/// A message, an active message, or a one-sided operation.
struct Own {
  enum class Kind : uint8_t { message, active, put, get, add, signal };
  Kind kind = Kind::message;
  unsigned from = 0, to = 0;
  uint32_t id = 0;
  uint64_t tag = 0;
  size_t length = 0;
  bool over = false, keeps = false, fetched = false;
  std::vector<std::byte> source, sink;  // overwritten when their half has ended
  bool source_over = false, sink_over = false;
  Half send, receive;
  // Active messages.
  std::atomic<unsigned> arrivals{0};
  std::atomic<const char*> wrong{nullptr};
  std::atomic<tw_am_data*> kept{nullptr};
  // One-sided.
  Piece* piece = nullptr;
  size_t slot = 0;
  bool signals = false;
  uint64_t result = 0, added_before = 0, sure_before = 0, signals_before = 0;
};

/// Those of one thread. Called by it; when that has ended, by the program's.
class Owns {
 public:
  Owns(World& world, unsigned index, uint64_t seed);
  ~Owns();
  Owns(const Owns&) = delete;
  Owns& operator=(const Owns&) = delete;

  void begin();
  /// Goes on with one of them.
  void look();
  /// What is missing so that they end is posted. True: something was.
  bool finish();
  /// At the end of everything, when all has come to rest.
  void check();
  /// Before the engines go.
  void give_back();
  /// The thread's stream continues. Also by the thread that has paused it.
  void release_stream();
  std::string failure;
  static tw_status handler(void* arg, const tw_am_message* message);

 private:
  void step(Own& own, bool last);
  bool is_over(Own& own);
  void begin_message(Own& own);
  void begin_active(Own& own);
  void begin_one_sided(Own& own);
  void post_send(Own& own);
  void post_receive(Own& own);
  void take(Own& own);
  void fetch(Own& own, bool last);
  void end(Own& own, Half& half);
  void check_received(Own& own);
  void check_one_sided(Own& own);
  void check_message(Own& own);
  Status start_late(Own& own, OpDesc& desc);
  void retire(std::vector<std::byte>& bytes, bool& over);
  Piece* piece_at(unsigned worker);
  RemoteRegion* region(Piece& piece, unsigned from, bool signal);
  bool release(Piece& piece, bool last);
  void wrong(const Own& own, const std::string& what);
  bool dead(unsigned worker) const;
  Engine& engine(unsigned worker) const;
  Peer& peer(unsigned from, unsigned to) const;

  World& world_;
  unsigned index_;
  Random random_;
  std::unique_ptr<HeldStream> held_stream_;
  std::vector<Own*> late_;  // their bytes come with the stream
  std::deque<Own> all_;
  std::vector<Own*> open_;
  std::deque<Piece> pieces_;
  std::vector<Piece*> alive_;
};

}  // namespace thalweg::model
