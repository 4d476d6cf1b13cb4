// SPDX-License-Identifier: Apache-2.0
// Atomics on 4- and 8-byte words: the CPU's own instruction on a mapped word, or a frame whose target applies the same
// instruction, so that both ways may be mixed on one word. Words of device memory: atomic_device.cpp, or a frame whose
// target has the word's device apply it.
#include "protocols/device_queues.hpp"
#include "protocols/dispatch.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::impl {
namespace {

template <class Word>
uint64_t apply(std::byte* at, unsigned op, uint64_t operand64, uint64_t compare64) {
  Word* word = reinterpret_cast<Word*>(at);
  const Word operand = static_cast<Word>(operand64);
  switch (op) {
    case TW_ATOMIC_ADD:
      return __atomic_fetch_add(word, operand, __ATOMIC_SEQ_CST);
    case TW_ATOMIC_AND:
      return __atomic_fetch_and(word, operand, __ATOMIC_SEQ_CST);
    case TW_ATOMIC_OR:
      return __atomic_fetch_or(word, operand, __ATOMIC_SEQ_CST);
    case TW_ATOMIC_XOR:
      return __atomic_fetch_xor(word, operand, __ATOMIC_SEQ_CST);
    case TW_ATOMIC_SWAP:
      return __atomic_exchange_n(word, operand, __ATOMIC_SEQ_CST);
    default: {
      Word expected = static_cast<Word>(compare64);  // becomes what was there
      __atomic_compare_exchange_n(word, &expected, operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
      return expected;
    }
  }
}

Status on_word(const OpDesc& op, const Registry::Reading* reading) {
  Status status = TW_OK;
  std::byte* word = reach(*op.remote, op.remote_offset, 0, op.word, TW_MEMORY_ATOMIC, reading, &status);
  if (word == nullptr) return status == TW_OK ? TW_AGAIN : status;
  deliver_old(op, apply_atomic(word, op.word, op.atomic_op, op.operand, op.compare));
  count_moved(op, Way::mapped);
  return TW_OK;
}

void replied(Engine& engine, OpRun& run, Status status) {  // fin: refused, or the requested acknowledgement
  if (status == TW_OK && run.op->result != nullptr) status = TW_ERR_PROTOCOL;
  on_confirmed(engine, run, status);
}

Status step_frames(OpRun& run) {
  Peer& peer = *run.peer;
  const OpDesc& op = *run.op;
  if (peer.link == nullptr) return TW_AGAIN;
  if (op.remote->key.incarnation != peer.identity.incarnation) return TW_ERR_STALE;  // posted while connecting
  const bool fetch = op.result != nullptr;
  const bool acknowledge = !fetch && (op.flags & TW_OP_REMOTE) != 0;
  AtomicBody body{peer.engine->runs().wire_op(run), op.operand, op.compare, op.atomic_op, op.word, fetch, {}};
  const FrameHeader header =
      make_header(Frame::atomic, sizeof body, op.remote->key.rkey, op.remote_offset, acknowledge ? kFrameAck : 0);
  run.fin = replied;
  if (Status s = peer.link->port->send(*peer.link, header, &body); s != TW_OK) return s;
  note_frames(peer, run);
  count_moved(op, of_device(*op.remote) ? Way::staging : Way::frames);
  return fetch || acknowledge ? TW_IN_PROGRESS : TW_OK;
}

}  // namespace

void deliver_old(const OpDesc& op, uint64_t old) {
  if (op.result == nullptr) return;
  if (op.word == 8) {
    std::memcpy(op.result, &old, 8);
  } else {
    const uint32_t narrow = static_cast<uint32_t>(old);
    std::memcpy(op.result, &narrow, 4);
  }
}

uint64_t apply_atomic(std::byte* word, unsigned size, unsigned op, uint64_t operand, uint64_t compare) {
  return size == 8 ? apply<uint64_t>(word, op, operand, compare) : apply<uint32_t>(word, op, operand, compare);
}

Status atomic_mapped(const OpDesc& op) {
  if (op.remote->mapped != nullptr) return on_word(op, nullptr);
  const Registry::Reading reading(op.peer->engine->registry());
  return on_word(op, &reading);
}

const Protocol kAtomicFrames = {"atomic_frames", Verb::atomic, step_frames, nullptr};

namespace {

/// The word's domain is its device: a kernel there, waited for.
Status apply_on_device(Engine& engine, const Target& target, AtomicKernel kernel, uint64_t* old) {
  DeviceQueues& queues = engine.devices();
  std::byte* chunk = queues.take_chunk(*target.device);
  if (chunk == nullptr) return TW_ERR_NO_MEMORY;
  kernel.word = reinterpret_cast<uint64_t>(target.address);
  kernel.old = reinterpret_cast<uint64_t>(chunk);
  const Status status = queues.run(*target.device, Kernel{kernel});
  std::memcpy(old, chunk, sizeof *old);
  queues.give_chunk(*target.device, chunk);
  return status;
}

}  // namespace

AtomicKernel atomic_kernel(unsigned op, unsigned size, uint64_t operand, uint64_t compare) {
  static constexpr AtomicOp kOps[] = {AtomicOp::add,     AtomicOp::bit_and, AtomicOp::bit_or,
                                      AtomicOp::bit_xor, AtomicOp::swap,    AtomicOp::compare_swap};
  AtomicKernel kernel{};
  kernel.operand = operand;
  kernel.compare = compare;
  kernel.op = kOps[op];
  kernel.bytes = size;
  return kernel;
}

Status signal_on_device(Engine& engine, const Target& target, uint32_t op, uint64_t value) {
  AtomicKernel kernel{};
  kernel.operand = value;
  kernel.op = op == TW_SIGNAL_ADD ? AtomicOp::add : AtomicOp::swap;
  uint64_t old = 0;
  return apply_on_device(engine, target, kernel, &old);
}

void on_atomic(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  AtomicBody fields;
  if (!body.take(&fields)) return engine.violation(peer, "an atomic too short for its own fields");
  if ((fields.size != 4 && fields.size != 8) || fields.code > TW_ATOMIC_CSWAP) {
    return engine.violation(peer, "an atomic of unknown size or kind");
  }
  Status status;
  uint64_t old = 0;
  {
    Registry::Reading reading(engine.registry());
    Target target;
    status = engine.registry().resolve(reading, header.a, header.b, fields.size, TW_MEMORY_ATOMIC, &target);
    if (status == TW_OK && reinterpret_cast<uintptr_t>(target.address) % fields.size != 0) status = TW_ERR_MISALIGNED;
    if (status == TW_OK && target.device != nullptr) {
      const AtomicKernel kernel = atomic_kernel(fields.code, fields.size, fields.operand, fields.compare);
      status = at_device(engine.registry(), reading, header.a, [&] { return apply_on_device(engine, target, kernel, &old); });
    } else if (status == TW_OK) {
      old = apply_atomic(target.address, fields.size, fields.code, fields.operand, fields.compare);
    }
  }
  if (fields.fetch == 0) return conclude(engine, peer, header, fields.op, status);
  if (status == TW_OK) return engine.send_control(peer, make_header(Frame::atomic_reply, 0, fields.op, old), nullptr);
  const uint64_t code = static_cast<uint64_t>(static_cast<int64_t>(status));
  engine.send_control(peer, make_header(Frame::fin, 0, fields.op, code), nullptr);
}

void on_atomic_reply(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes) {
  OpRun* run = engine.runs().answered(header.a, peer);
  if (run == nullptr || run->protocol != &kAtomicFrames || run->op->result == nullptr) return;  // ended meanwhile
  deliver_old(*run->op, header.b);
  confirm(peer, *run);
  engine.complete(*run, TW_OK);
}

Status start_atomic(Engine& engine, const OpDesc& op, const Completion& completion) {
  if ((op.word != 4 && op.word != 8) || op.atomic_op > TW_ATOMIC_CSWAP) {
    return fail(TW_ERR_INVALID, "an atomic is on 4 or 8 bytes and one of TW_ATOMIC_*");
  }
  OpDesc checked = op;
  checked.length = op.word;
  checked.layout = checked.remote_layout = nullptr;
  if (Status s = check_target(checked, TW_MEMORY_ATOMIC); is_error(s)) return s;
  if ((op.remote->key.base + op.remote_offset) % op.word != 0) {
    return fail(TW_ERR_MISALIGNED, "the word at offset %llu is not aligned to its %u bytes",
                static_cast<unsigned long long>(op.remote_offset), op.word);
  }
  if (completion.request != nullptr) *completion.request = TW_REQUEST_NONE;
  if (of_device(*op.remote)) return launch_one_sided(engine, checked, completion, kAtomicDevice);
  // The short form, as of puts: a word that is mapped here is the table's first answer.
  if (op.remote->mapped != nullptr && !fenced(*op.peer)) {
    if (const Status status = atomic_mapped(checked); !frames_decide(status)) return status;
  }
  const Status status = op.peer->link != nullptr ? move_at_once(checked, access_of(checked)) : Status{TW_AGAIN};
  return status == TW_AGAIN ? launch_one_sided(engine, checked, completion, kDeferred) : status;
}

}  // namespace thalweg::impl
