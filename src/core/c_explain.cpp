// SPDX-License-Identifier: Apache-2.0
// C interface: which way an operation takes, and why.
#include "core/c_checks.hpp"
#include "protocols/operation_routes.hpp"

using namespace thalweg::impl;

namespace {

/// Those of the operation that is asked about, whichever that is.
constexpr Takes kExplain{"tw_endpoint_explain_buffer", fields::increment - 1, 2 * TW_OP_RENDEZVOUS - 1, false};

/// remote null: one-sided operations to each kind of target memory. address null: of ordinary memory.
Status explain_to(tw_endpoint& endpoint, Verb verb, const void* address, size_t length, RemoteRegion* remote,
                  const tw_op_options* given, char* buffer, size_t* size) {
  std::string text;
  OpDesc op;
  op.verb = verb;
  op.length = length;
  const Options<tw_op_options> options(given, kOpDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (Status s = check_options(*options, kExplain); is_error(s)) return s;
  const bool callbacks = options->layout != nullptr && options->layout->calls != nullptr;
  const Status local = address != nullptr || callbacks ? set_local(op, address, length, *options) : Status{TW_OK};
  const LocalHold hold(op);
  if (is_error(local)) return local;
  drop_dense_layout(op);
  if (remote != nullptr) {
    if (const Status status = check_local(op, *remote); is_error(status)) return status;
  }
  op.remote_layout = options->remote_layout;
  if (op.remote_layout != nullptr) {
    if (const Status status = check_named(*op.remote_layout); is_error(status)) return status;
  }
  {
    const Engine::Guard guard(*endpoint.worker->engine);
    text = std::string("transport: ") + (endpoint.transport[0] != 0 ? endpoint.transport : "none yet (connecting)") + "\n";
    if (!endpoint.note.empty()) text += "note: " + endpoint.note + "\n";
    op.peer = &*endpoint.peer;
    op.word = length == 4 ? 4 : 8;
    if (address == nullptr) op.flags |= options->flags & ~kOpInternal;
    if (const Status status = set_notification(op, *options); is_error(status)) return status;
    op.remote = remote;
    text += explain(op);
  }
  return copy_out(text.c_str(), text.size() + 1, buffer, size);
}

constexpr char kVerbs[] = "send, put, get, am, bytes, atomic, signal, put_blocks, get_blocks";

bool blocks(Verb verb) { return verb == Verb::put_blocks || verb == Verb::get_blocks; }

Status refuse_verb(const char* verb, const char* known) {
  return fail(TW_ERR_INVALID, "verb \"%s\" is none of %s", verb == nullptr ? "" : verb, known);
}

}  // namespace

extern "C" {

tw_status tw_endpoint_explain(tw_endpoint* endpoint, const char* verb, size_t length, char* buffer, size_t* size) {
  const Status status = check(endpoint);
  if (is_error(status)) return status;
  Verb what = Verb::send;
  if (verb == nullptr || !verb_named(verb, &what)) return refuse_verb(verb, kVerbs);
  return explain_to(*endpoint, what, nullptr, length, nullptr, nullptr, buffer, size);
}

tw_status tw_endpoint_explain_buffer(tw_endpoint* endpoint, const char* verb, const void* address, size_t length,
                                     tw_remote_memory* remote, const tw_op_options* options, char* buffer, size_t* size) {
  const Status status = check(endpoint);
  if (is_error(status)) return status;
  Verb what = Verb::send;
  if (verb == nullptr || !verb_named(verb, &what)) return refuse_verb(verb, kVerbs);
  RemoteRegion* region = region_of(remote);
  const bool one_sided = what == Verb::put || what == Verb::get || what == Verb::atomic || blocks(what);
  if ((region != nullptr) != one_sided)
    return fail(TW_ERR_INVALID, "puts, gets, atomics and blocks go to remote memory, others do not");
  if (region != nullptr && region->peer != &*endpoint->peer) {
    return fail(TW_ERR_INVALID, "the remote memory was imported through another endpoint");
  }
  return explain_to(*endpoint, what, address, length, region, options, buffer, size);
}

tw_status tw_remote_memory_explain(tw_remote_memory* remote, const char* verb, size_t length, char* buffer, size_t* size) {
  RemoteRegion* region = region_of(remote);
  if (region == nullptr) return fail(TW_ERR_INVALID, "the remote memory is NULL");
  if (region->peer == nullptr) return fail(TW_ERR_CLOSED, "the endpoint this memory was imported through is closed");
  tw_endpoint* endpoint = region->peer->endpoint;
  const Status status = check(endpoint);
  if (is_error(status)) return status;
  Verb what = Verb::send;
  if (verb != nullptr) verb_named(verb, &what);
  if (what != Verb::put && what != Verb::get && what != Verb::atomic && !blocks(what))
    return refuse_verb(verb, "put, get, atomic, put_blocks, get_blocks");
  return explain_to(*endpoint, what, nullptr, length, region, nullptr, buffer, size);
}

}  // extern "C"
