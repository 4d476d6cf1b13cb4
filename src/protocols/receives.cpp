// SPDX-License-Identifier: Apache-2.0
// Posting tagged receives, and taking messages that came before. See receives.hpp; what frames do to them is in eager.cpp.
#include "protocols/receives.hpp"

#include "protocols/device_queues.hpp"
#include "protocols/eager.hpp"
#include "protocols/engine.hpp"
#include "protocols/flow.hpp"
#include "protocols/match.hpp"
#include "protocols/offers.hpp"
#include "protocols/tracing.hpp"

namespace thalweg::impl {

Receives::Receives(Engine& engine, uint64_t first)
    : engine_(engine), matchers_{std::make_unique<Matcher>(first), std::make_unique<Matcher>(first)} {}

Receives::~Receives() = default;

Receives::Held Receives::held() const {
  Held held;
  for (const auto& matcher : matchers_) {
    held.posted += matcher->posted_count();
    held.unexpected += matcher->unmatched_count();
  }
  held.posted += (waited() != nullptr) + (sole() != nullptr);
  return held;
}

void Receives::end_all(Status status, const char* why) {
  for (const auto& matcher : matchers_) {
    size_t from = 0;
    while (OpRun* run = matcher->any_posted(&from)) engine_.complete(*run, status, why);
  }
}

void Receives::lose(Peer& peer) {
  for (const auto& matcher : matchers_) let_go(engine_, &peer, matcher->lose(peer));
}

void Receives::orphan(Peer& peer) {
  let_go(engine_, &peer, matcher(uint8_t{kFrameGroup}).drop(peer, true));
  matcher().orphan(peer);
}

std::string truncated_text(uint64_t message, uint64_t buffer) {
  return "message of " + std::to_string(message) + " bytes for a buffer of " + std::to_string(buffer) +
         " bytes: post a larger one, or probe for the length first";
}

namespace {

[[gnu::cold]] bool take_unexpected(Engine& engine, OpRun& run) {
  Matcher& space = engine.receives().matcher(*run.op);
  tw_message* message = space.find(run.op->tag, run.op->mask, run.op->peer);
  if (message == nullptr) return false;
  space.take_out(*message);
  receive_unexpected(engine, run, *message);
  return true;
}

[[gnu::always_inline]] inline Status place_receive(Engine& engine, OpRun& run) {
  const OpDesc& op = *run.op;
  run.info = {};
  if (engine.receives().matcher(op).unmatched() && take_unexpected(engine, run)) [[unlikely]]
    return TW_IN_PROGRESS;
  run.cancelable = true;
  if (op.peer != nullptr) engine.bind(run, *op.peer);
  engine.receives().to_match();
  engine.receives().matcher(op).post(run);
  return TW_IN_PROGRESS;
}

inline OpRun* post_run(Engine& engine, void* buffer, size_t length, uint64_t tag, uint64_t mask,
                       const Completion* completion = nullptr) {
  OpRun* run = engine.acquire_blank();
  if (run == nullptr) [[unlikely]]
    return nullptr;
  // Field by field: copying a whole OpDesc that was just written would wait for its stores.
  OpDesc& op = run->own;
  op.verb = Verb::recv;
  op.flags = 0;
  op.peer = nullptr;
  op.tag = tag;
  op.mask = mask;
  op.address = static_cast<std::byte*>(buffer);
  op.length = length;
  op.layout = op.remote_layout = nullptr;
  if (completion != nullptr) {  // first: where the message is here, the run may be gone behind place_receive()
    name_completion(*run, *completion);
    engine.hand_out(*run, *completion);
  }
  if (trace::on()) [[unlikely]]
    trace_begin(engine, *run);
  Receives& receives = engine.receives();
  if (receives.nothing_short() && receives.matcher().nothing_to_match()) [[likely]] {
    run->info = {};
    run->cancelable = true;
    receives.set_sole(run);
  } else {
    place_receive(engine, *run);
  }
  return run;
}

/// The peer may have posted its send, and there may be no progress from here on: starts what can be started.
Status post_device(Engine& engine, OpRun& run) {
  const Engine::InCall in_call(engine);
  place_receive(engine, run);
  if (!run.posted) return TW_IN_PROGRESS;
  const bool large = worth_hiding(run.op->length, engine.options().hidden_from), offered = make_offer(engine, run);
  if (large && offered) await_rts(*offered_to(run));
  if (large) engine.take_frames();
  return TW_IN_PROGRESS;
}

void post_waited(Engine& engine, WaitedReceive& receive) {
  receive.run = post_run(engine, receive.address, receive.length, receive.tag, receive.mask);
  if (receive.run == nullptr) receive.status = TW_ERR_LIMIT;
}

}  // namespace

[[gnu::noinline]] void Receives::post_short_forms() {
  WaitedReceive* const waiting = waited();
  set_waited(nullptr);
  if (waiting != nullptr) post_waited(engine_, *waiting);
  OpRun* const only = sole();
  set_sole(nullptr);
  if (only != nullptr) matcher().post(*only);
}

Status Engine::post_receive(const OpDesc& op, const Completion& completion) {
  Guard guard(*this);
  if (op.peer != nullptr && is_error(op.peer->state) && receives_.matcher(op).find(op.tag, op.mask, op.peer) == nullptr) {
    return impl::fail(op.peer->state, "%s", op.peer->why.c_str());
  }
  OpRun* run = acquire(op, completion);
  if (run == nullptr) [[unlikely]]
    return TW_ERR_LIMIT;
  hand_out(*run, completion);
  return (op.flags & kOpDevice) != 0 ? post_device(*this, *run) : place_receive(*this, *run);
}

Status post_short(Engine& engine, void* buffer, size_t length, uint64_t tag, uint64_t mask, tw_request* request) {
  const Engine::Guard guard(engine);
  OpRun* run = post_run(engine, buffer, length, tag, mask);
  if (run == nullptr) [[unlikely]]
    return TW_ERR_LIMIT;
  *request = engine.runs().number(*run);
  return TW_IN_PROGRESS;
}

Status post_short(Engine& engine, void* buffer, size_t length, uint64_t tag, uint64_t mask, const Completion& completion) {
  const Engine::Guard guard(engine);
  return post_run(engine, buffer, length, tag, mask, &completion) != nullptr ? TW_IN_PROGRESS : TW_ERR_LIMIT;
}

void post_wait(Engine& engine, WaitedReceive& receive) {
  const Engine::Guard guard(engine);
  Receives& receives = engine.receives();
  if (trace::on() || engine.options().multi_threaded || !receives.matcher().nothing_to_match() || !receives.nothing_short())
    return post_waited(engine, receive);
  receives.set_waited(&receive);
}

Status end_wait(Engine& engine, WaitedReceive& receive) {
  OpRun* run = receive.run;
  if (run == nullptr) {
    // A limit has set the text itself.
    if (receive.status == TW_ERR_TRUNCATED) set_last_error(truncated_text(receive.info.length, receive.length));
    return receive.status;
  }
  const Status status = run->status.load(std::memory_order_acquire);
  receive.info = run->info;
  if (is_error(status)) set_last_error(Engine::text_of(*run));
  const Engine::Guard guard(engine);
  engine.completions().let_go(*run);
  return status;
}

Status probe(Engine& engine, uint64_t tag, uint64_t mask, const Peer* source, tw_recv_info* info, tw_message** message) {
  const Engine::Guard guard(engine);
  Matcher& matcher = engine.receives().matcher();
  tw_message* found = matcher.find(tag, mask, source);
  if (found == nullptr) return TW_ERR_NO_MATCH;
  if (info != nullptr) *info = found->info;
  if (message == nullptr) return TW_OK;
  matcher.take_out(*found);
  matcher.hold(*found);
  *message = found;
  return TW_OK;
}

Status receive_message(tw_message* message, const OpDesc& op, const Completion& completion) {
  Engine& engine = *message->engine;
  const Engine::Guard guard(engine);
  OpRun* run = engine.acquire(op, completion);
  if (run == nullptr) return TW_ERR_LIMIT;
  engine.hand_out(*run, completion);
  engine.receives().matcher().unhold(*message);
  const Engine::InCall in_call(engine);
  receive_unexpected(engine, *run, *message);
  return TW_IN_PROGRESS;
}

}  // namespace thalweg::impl
