// SPDX-License-Identifier: Apache-2.0
// One end of one direction of a channel, as this process knows it.
//
// Life: made by the first plan that names it -> opening: both ends say who runs them and where their words are, each tries to
// reach the other's, the sender also the receiver's first buffers (landings) -> mapped: the executors store to each other, this
// class is not needed any more but for new landings; or proxied: the agents exchange tagged messages -> failed: a run of either
// side gave up; the next prepare opens it again with fresh words, one incarnation later, so late stores hit nothing.
//
// All under Agent::mutex(); progress is made on the agent's thread.
#pragma once
#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "plans/agent.hpp"
#include "plans/reach.hpp"

namespace thalweg::impl {

/// An end's words in executor.shared(), as both processes see them: SendEnd or RecvEnd, then its slots.
inline constexpr size_t kEndBytes = std::max(sizeof(device::SendEnd), sizeof(device::RecvEnd));
inline constexpr size_t kSlotsAt = (kEndBytes + 127) / 128 * 128;
inline constexpr size_t kWordsBytes = kSlotsAt + device::kSlots * sizeof(device::u64);

/// A buffer that a receiving end offers. Numbers of dropped ones are used again.
struct LocalLanding {
  enum class State : uint8_t { unused, new_, told, known, refused, dropping, dropped };
  State state = State::unused;
  tw_memory* memory = nullptr;  // registered for it; with its key
  std::vector<std::byte> key, layout;
  int64_t offset = 0;  // of the buffer's address from the key's first byte
  uint64_t capacity = 0;
  Status status = TW_OK;
  std::string text;
  bool abandoned = false;  // nobody waits until it is dropped
};

/// The same at the sender.
struct RemoteLanding {
  bool used = false;
  tw_remote_memory* region = nullptr;
  ControlMessage told;
  bool answered = false;
  Reached reached;
  uint64_t revoked = 0;  // when it was first seen to be, monotonic ns
  uint64_t table = 0;
  size_t table_length = 0;
};

class Channel {
 public:
  enum class State : uint8_t { closed, opening, mapped, proxied, failed };
  static constexpr unsigned kLandings = device::kLandings;
  static constexpr uint64_t kEveryRound = ~uint64_t{0};

  Channel(Agent& agent, const ChannelName& name, bool sender, Executor& executor, AgentPeer& peer);
  ~Channel();

  // --- for prepare
  /// Opens it (again) unless it is open. `reachable`: the executor reaches the local buffers; why not.
  Status start(Status reachable, const std::string& why_not);
  /// A buffer to be received into: [address + first, address + last) is registered and exported. *index is known to the sender
  /// when the landing's state says so.
  Status offer(uint64_t address, const Layout* layout, uint64_t length, uint16_t* index);
  void withdraw(uint16_t index);
  bool withdrawn(uint16_t index);  // and forgotten
  void abandon(uint16_t index) { landings_[index].abandoned = true; }
  /// TW_OK: it is open, and the sender knows the landing (-1: none); TW_IN_PROGRESS; or why it will not be so.
  Status settled(int landing) const;

  /// Plans that name a channel are prepared by both sides, the n-th here with the n-th there: a device may not import a buffer
  /// while its kernel already waits for it. Of the sender: how many the receiver has told. A receiver's end that is a kernel's
  /// has one set of buffers for every plan of the sender; when it is released, both begin to count where the receiver is.
  uint64_t next_round() { return ++prepared_here_; }
  uint64_t rounds_there() const { return prepared_there_; }
  void tell_round();

  State state() const { return state_; }
  Status status() const { return status_; }        // failed
  const std::string& why() const { return why_; }  // failed: why; proxied: why not mapped
  uint64_t words() const { return words_; }        // SendEnd or RecvEnd
  uint64_t number() const { return number_; }      // proxied: tag of the messages

  /// A run gave up, here or (told by a message) there, or the peer is lost.
  void fail_end(Status status, const std::string& why, bool tell);
  /// Told when the end fails: the plans that use it.
  struct Roles {  // of a program (devices/program/hold.hpp)
    uint64_t words = 0;
    uint32_t count = 0;
  };
  struct User {
    virtual ~User() = default;
    virtual void on_channel_failed(Status status) = 0;
    virtual Roles roles() const { return {}; }  // of what it runs on queues
  };
  /// alone: it is a kernel's, who can be told nothing: TW_ERR_BUSY while there is another user, as for others while it is there.
  Status add(User* user, bool alone);
  void remove(User* user);
  const std::vector<User*>& users() const { return users_; }

  /// Messages that queues were given, for waits ahead of kernels (wait_rows.hpp): what the end's count will be when they are
  /// through. Unknown once a run was captured, or a kernel had the end, until the channel is opened again.
  std::atomic<uint64_t> messages{0};
  std::atomic<bool> counted{true};
  /// Mapped. What the end waits for at its n-th message, in its own memory; where a receiver's credit goes, at the peer.
  uint64_t awaited(uint64_t n) const { return slot_of(words_, n); }
  uint64_t credit(uint64_t n) const { return slot_of(their_words_.address() + theirs_.offset, n); }

  // --- on the agent's thread
  unsigned advance();
  void take(ControlMessage&& message);

  const ChannelName name;
  const bool sender;
  Executor& executor;
  AgentPeer& peer;
  Queue* queue = nullptr;  // whose runs use it now (plan_run.cpp)

 private:
  static uint64_t slot_of(uint64_t words, uint64_t n) { return words + kSlotsAt + n % device::kSlots * sizeof(device::u64); }
  Status make_words();
  void open_again();
  void say_open();
  void say(Control type, uint16_t index = 0, Status status = TW_OK, const char* text = "");
  unsigned advance_words();
  unsigned advance_landings();
  Status reach_landing(uint16_t index, RemoteLanding& landing);
  void answer(uint16_t index, RemoteLanding& landing, Status status);
  void forget(RemoteLanding& landing);
  void give_back(uint16_t index);
  void give_verdict(Status status, const std::string& why);
  void decide();
  Status finish_mapped();
  void forget_words();

  Agent& agent_;
  State state_ = State::closed;
  Status status_ = TW_OK;
  std::string why_;
  uint32_t incarnation_ = 0;
  uint64_t number_ = 0;
  uint64_t prepared_here_ = 0, prepared_there_ = 0;
  uint64_t words_ = 0;  // in executor.shared(): the end, then its slots
  uint64_t landing_table_ = 0;
  bool opened_there_ = false, verdict_here_ = false, verdict_there_ = false, both_reach_ = true;
  ControlMessage theirs_;
  tw_remote_memory* their_words_region_ = nullptr;
  Reached their_words_;
  Status reachable_ = TW_OK;
  std::string unreachable_;
  std::vector<LocalLanding> landings_;  // receiver
  std::vector<RemoteLanding> remote_;   // sender
  std::vector<User*> users_;
  bool alone_ = false;          // the user is a kernel's end
  std::vector<uint16_t> held_;  // sender: buffers that a kernel may still be storing to
};

}  // namespace thalweg::impl
