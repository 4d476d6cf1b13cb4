// SPDX-License-Identifier: Apache-2.0
// One end of one direction of a channel, as this process knows it.
//
// Life: made by the first plan that names it -> opening: both ends send their executor and where their words are, each tries
// to reach the other's, the sender also the receiver's first buffers -> mapped: the executors store to each other, this
// class is needed for new receive buffers only; or proxied: the proxies exchange tagged messages -> failed: a run of either
// side failed, or no user waits for the opening any more. The next prepare opens it again, with fresh words if the
// peer may know the last ones, so late stores hit nothing.
//
// Opening. Each end makes its own epochs, numbered upwards; one lives while a plan or kernel here waits for it, or has used
// it. It begins with `open` and ends with `failed`; each is sent once, and messages arrive in order, so what an end knows of
// the other's epochs is always a prefix of what happened there. All other messages belong to a pair of epochs, name both,
// and are taken only by that pair: one that crosses with an `open` or `failed` is dropped. An epoch that is opening pairs
// with the peer's newest one, again as often as that changes; when an epoch that was open is over, a user that still waits
// begins another one. So two waiting ends learn each other's last epochs, and these open: docs/decisions/0017-opening.md.
//
// All under Proxy::mutex(); progress is made on the proxy's thread.
#pragma once
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plans/channel_retired.hpp"
#include "plans/channel_rounds.hpp"
#include "plans/channel_users.hpp"
#include "plans/proxy.hpp"
#include "plans/reach.hpp"

namespace thalweg::impl {

/// An end's words in executor.shared(), where the peer may store: its slots, and nothing else. What it finds them and the
/// buffers by, SendEnd or RecvEnd, is in executor.own(): who writes there chooses the addresses that we store to.
inline constexpr size_t kWordsBytes = device::kSlots * sizeof(device::u64);
inline constexpr size_t kEndBytes = std::max(sizeof(device::SendEnd), sizeof(device::RecvEnd));

/// Checks the peer's `recv_buffer` message against the `memory` bytes that its key names (0: no key): *layout is its layout,
/// if it has one. An error has its text.
Status check_told(const ControlMessage& told, uint64_t memory, Layout* layout);
/// The same of its words, at `offset` bytes from `address`, where its memory is reached.
Status check_words(uint64_t memory, uint64_t address, uint64_t offset);

/// A buffer that a receiving end offers. Numbers of dropped ones are used again.
struct LocalRecvBuffer {
  enum class State : uint8_t { unused, new_, told, known, refused, dropping, dropped };
  State state = State::unused;
  tw_memory* memory = nullptr;  // registered for it; with its key
  std::vector<std::byte> key, layout;
  int64_t offset = 0;  // of the buffer's address from the key's first byte
  uint64_t capacity = 0;
  Status status = TW_OK;
  std::string text;
  bool untold = false;              // its layout has no wire form: messages reach it by the host alone
  bool held = false;                // it was sent to the sender, which has not released it
  bool abandoned = false;           // no thread waits until it is dropped
  std::shared_ptr<const int> life;  // for those who ask whether it is still out (Channel::life_of)
};

/// A number whose buffer the receiver has taken back, at the sender: runs may have read its entry in part, and wait before they read
/// the rest. What it says next is written there when those are over.
struct TakenBack {
  RunsThen runs;
  uint64_t sends = 0;  // of a kernel, whose runs are not known: over when it has sent as many more as it can have begun
};

/// The same at the sender.
struct RemoteRecvBuffer {
  bool used = false;
  tw_remote_memory* region = nullptr;
  ControlMessage told;
  bool answered = false;  // it is reached, or the reason was sent
  Reached reached;
  uint64_t revoked = 0;  // when it was first seen to be, monotonic ns
  uint64_t table = 0;
  size_t table_length = 0;
};

class Channel {
 public:
  enum class State : uint8_t { closed, opening, mapped, proxied, failed };
  static constexpr unsigned kRecvBuffers = device::kRecvBuffers;

  Channel(Proxy& proxy, const ChannelName& name, bool sender, Executor& by, std::shared_ptr<ProxyPeer> peer);
  ~Channel();

  // --- for prepare
  /// Sets the executor from the next epoch on. False: the end is in use, and another executor runs it.
  bool run_by(Executor& wanted);
  const Executor& runner() const { return *wanted_; }
  /// Begins an epoch to open it, unless one is alive. `reachable`: the executor reaches the local buffers; why not. An open
  /// one without users here is decided again with the peer's end (0019): with `waits`, the user waits until the peer's plans
  /// have gone, or have shown that they continue, and, if it has no users there either, until the partner comes.
  /// From now on `user`, which was added, waits until the channel is open.
  /// `packs`: the receiver's rows take less when a message carries them, unless a kernel runs the other end, or the channel stays mapped.
  Status start(const ChannelUser* user, Status reachable, const std::string& why_not, bool waits, bool packs = false);
  bool asks() const { return asked_here_ == Asks::another; }
  /// Would the next epoch be carried by the host again, whatever buffers are used?
  bool hopeless() const { return hopeless_; }
  /// The host carries another message. Any thread, one after the other, as they are a channel's.
  void carry() { carried_.store(carried_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  uint32_t epoch() const { return epoch_; }  // the newest one here
  /// A buffer to be received into: [address + first, address + last) is registered and exported. The sender knows *index
  /// when the receive buffer's state is `known`. A layout that has no wire form is no error: start() makes the host carry the channel.
  Status offer(uint64_t address, const Layout* layout, uint64_t length, uint16_t* index);
  void withdraw(uint16_t index);
  bool withdrawn(uint16_t index);  // and forgotten
  void abandon(uint16_t index);
  /// Expires when the buffer has been given back, whatever its number is used for then, or when the channel goes. Any thread may ask that.
  std::weak_ptr<const int> life_of(uint16_t index);
  void take_abandoned();
  /// Is one of them without a wire form, so that no sender can store to it?
  bool has_untold() const;
  /// It has no user, and no buffer that a peer may still have.
  bool idle();
  /// No user comes any more: its plan is destroyed, and its number no other's, or the user's endpoint has ended. When the last one has
  /// left, the peer's end is told so; an open pair ends when neither end has users to come.
  void end_for_good();
  /// That came, and both ends' epochs are over: nothing of the end is needed.
  bool gone();
  /// TW_OK: it is open, and the sender knows the receive buffer (-1: none); TW_IN_PROGRESS; or why it will not be so.
  Status settled(int recv_buffer) const;

  /// channel_rounds.hpp. A receiver's end that is a kernel's, or a queue's operations, has buffers for every plan of the sender;
  /// when a kernel's end is released, both begin to count where the receiver is.
  void tell_round();
  void untell_round(uint32_t epoch);
  void tell_every_round();
  bool round_ready() const { return rounds_.ready(); }
  void take_round() { rounds_.take(); }
  void return_round(uint32_t epoch);

  State state() const { return state_; }
  Status status() const { return status_; }                    // failed
  const std::string& why() const { return why_; }              // failed: why; proxied: why not mapped
  uint64_t words() const { return end_; }                      // SendEnd or RecvEnd, which names them
  uint64_t number() const { return number_; }                  // proxied: tag of the messages
  const Reached& their_words() const { return their_words_; }  // mapped: in memory of the peer's executor

  /// A run failed, or the peer is lost: ends this epoch, if it is still alive, and notifies the peer.
  void fail_end(uint32_t epoch, Status status, const std::string& why);
  /// The same if another epoch would fail as well: users that wait for it at either end fail, too.
  void refuse_end(uint32_t epoch, Status status, const std::string& why);
  /// Keeps the end's executor. alone: the user is a kernel, which cannot be notified: TW_ERR_BUSY while there is another
  /// user, and for others while it is there.
  Status add(ChannelUser* user, bool alone);
  /// The user has found the channel open, and uses this epoch: it fails with it. Other users wait for the next.
  void rely(ChannelUser* user);
  /// The user's prepare failed after that: the next user gets its partner at the peer, the n-th as it was the n-th.
  void relied_in_vain(uint32_t epoch);
  /// An unused epoch is over when no user waits for it any more; one that was used stays open.
  void remove(ChannelUser* user);
  const ChannelUsers& users() const { return users_; }

  // --- on the proxy's thread
  unsigned advance();
  void take(ControlMessage&& message);

  const ChannelName name;
  const bool sender;
  ProxyPeer& peer;
  /// Whose runs use the end now (plan_channels.cpp): a Queue, or a plan that the host runs; null: not known. Read without the mutex.
  std::atomic<const void*> owner{nullptr};

 private:
  bool relied_on() const { return users_.rely_on(epoch_); }
  /// A kernel has no use for what the host brings to memory that the kernel does not reach.
  bool of_no_use(Status reachable) const { return users_.alone() && is_error(reachable) && !has_untold(); }
  bool open() const { return state_ == State::mapped || state_ == State::proxied; }
  /// Of an open pair on which no user relies at the asking end.
  enum class Asks : uint8_t { nothing, same, another };  // same: as it is will do; another: another way would be better
  Status start_as(const ChannelUser* user, Status reachable, const std::string& why_not, bool waits, bool packs);
  Status join_open(Status reachable, const std::string& why_not, bool waits, bool packs);
  void ask(Asks what, bool waits);
  void say_stay(Asks to);
  void let_stay();
  void leave_for_good();
  void asked_there(const ControlMessage& message);
  void asked_same_there(const ControlMessage& message);
  void stays(const ControlMessage& message);
  void agree();
  void change_executor();
  bool alive() const { return state_ == State::opening || state_ == State::mapped || state_ == State::proxied; }
  Status begin_epoch();
  void begin_pair();
  void end_epoch(Control how, Status status, const std::string& why);
  Status renew_words();
  Status make_words();
  void retire_words();
  bool past_runs() const { return users_.have_past_runs(open() ? epoch_ : 0, state_ == State::failed && was_mapped_); }
  bool runs_under_way() const;
  void retire(Retired&& one) { retired_.keep(std::move(one), runs_under_way()); }
  unsigned settle();
  void say_open();
  void say(Control type, uint16_t index = 0, Status status = TW_OK, const char* text = "");
  void say_rounds();
  void opened_there(ControlMessage&& message);
  void ended_there(const ControlMessage& message);
  void epoch_over_there();
  void take_of_pair(ControlMessage&& message);
  void recv_buffer_told(ControlMessage&& message);
  void recv_buffer_answered(const ControlMessage& message);
  void recv_buffer_dropped(uint16_t index);
  unsigned tell_recv_buffers();
  unsigned advance_words();
  unsigned advance_recv_buffers();
  Status reach_recv_buffer(uint16_t index, RemoteRecvBuffer& recv_buffer);
  void answer(uint16_t index, RemoteRecvBuffer& recv_buffer, Status status);
  void release(RemoteRecvBuffer& recv_buffer);
  void forget(uint16_t index);
  void keep_entry(uint16_t index);
  bool entry_is_free(uint16_t index);
  uint64_t sends() const;
  void forget_recv_buffers();
  void give_back(uint16_t index);
  void give_result(Status status, const std::string& why);
  void decide();
  Status finish_mapped();
  void forget_words();
  void end_alone();

  Proxy& proxy_;
  const std::shared_ptr<ProxyPeer> peer_;
  Executor *executor_, *wanted_;  // of the epoch; of the next one
  State state_ = State::closed;
  Status status_ = TW_OK;
  std::string why_;
  uint32_t epoch_ = 0;
  bool used_ = false;          // that epoch, by a plan or kernel here
  bool was_mapped_ = false;    // that epoch
  ControlMessage theirs_;      // the `open` of the peer's newest epoch
  bool there_ = false;         // that epoch is not over, as far as is known here
  uint32_t paired_there_ = 0;  // was open with one of ours: where that is over, its end is on its way
  bool result_here_ = false, result_there_ = false, both_reach_ = true;  // of the pair
  Asks asked_here_ = Asks::nothing;   // the peer decides whether the pair ends; users here wait for its answer
  Asks asked_there_ = Asks::nothing;  // an answer is owed to the peer
  bool bound_ = false;                // a kernel relies on it, or did: credits may be under way
  bool hopeless_ = false;             // the other end's words were not reached
  std::atomic<uint64_t> carried_{0};
  uint64_t carried_there_ = 0;
  uint64_t plans_ = 0;  // that have relied on the epoch, gone ones too: the n-th here goes with the n-th there
  Status reachable_ = TW_OK;
  std::string unreachable_;
  bool packs_ = false;
  uint32_t in_vain_ = 0;  // epochs that were over before a user that waits relied on one
  bool ended_ = false;    // no user comes any more
  bool agreed_ = false;   // nor at the peer: the epoch has ended so, and nobody stores to its words any more
  bool waits_ = true;     // the newest user waits for the peer's plans to go
  uint64_t number_ = 0;
  uint64_t number_over_ = 0;  // receiver: of the peer's last epoch that is over; 0: none
  Deadline dropping_{0};      // until then messages of that epoch may come
  ToldRounds told_rounds_;    // receiver
  bool every_round_ = false;  // receiver: operations of a queue were the end
  TakenRounds rounds_;        // sender
  uint64_t end_ = 0;          // in executor.own(); made with words_
  uint64_t words_ = 0;        // in executor.shared()
  bool words_known_ = false;  // the peer may store to them
  uint64_t recv_buffer_table_ = 0;
  tw_remote_memory* their_words_region_ = nullptr;
  Reached their_words_;
  std::vector<LocalRecvBuffer> recv_buffers_;  // receiver
  Deadline abandoned_again_{0};                // when those that are abandoned are tried again
  size_t next_number_ = 0;                     // numbers are taken in turn: the sender's runs have long left the one before
  std::vector<RemoteRecvBuffer> remote_;       // sender
  std::map<uint16_t, TakenBack> taken_back_;   // of the table
  ChannelUsers users_;
  ChannelRetired retired_;
};

}  // namespace thalweg::impl
