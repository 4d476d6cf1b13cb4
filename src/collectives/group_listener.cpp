// SPDX-License-Identifier: Apache-2.0
#include "collectives/group_listener.hpp"

#include <memory>
#include <new>

#include "collectives/collectives.hpp"

namespace thalweg::impl {

GroupListener::GroupListener(Collectives& owner, uint64_t tag, bool drops)
    : engine_(owner.engine()), owner_(&owner), tag_(tag), drops_(drops) {}

GroupListener* GroupListener::open(Collectives& owner, uint64_t tag, bool drops) {
  auto* const made = new (std::nothrow) GroupListener(owner, tag, drops);
  if (made != nullptr) made->post();
  return made;
}

void GroupListener::post() {
  OpDesc op;
  op.verb = Verb::recv;
  op.flags = kOpGroup;
  op.tag = tag_;
  op.mask = drops_ ? kGroupMask : ~uint64_t{0};
  op.address = drops_ ? nullptr : reinterpret_cast<std::byte*>(&message_);
  op.length = drops_ ? 0 : sizeof message_;
  Completion completion = calls(on_end, this);
  completion.request = &request_;
  if (engine_.post_receive(op, completion) != TW_IN_PROGRESS) request_ = TW_REQUEST_NONE;
}

void GroupListener::close() {
  owner_ = nullptr;
  if (request_ == TW_REQUEST_NONE) {
    delete this;
  } else if (!drops_) {
    (void)engine_.cancel(request_);  // its end deletes it
  }
}

void GroupListener::on_end(void* arg, tw_request, Status status, const tw_recv_info* info) {
  auto* const self = static_cast<GroupListener*>(arg);
  const Engine::Guard guard(self->engine_);
  self->request_ = TW_REQUEST_NONE;
  if (self->drops_ && (status == TW_OK || status == TW_ERR_TRUNCATED)) {
    if (self->owner_ != nullptr && info->tag == (self->tag_ | give_up_tag(0))) self->owner_->heard(info->endpoint);
    return self->post();
  }
  if (self->owner_ == nullptr) return delete self;
  // One that is too long is a failure, too. Once the group has failed, those that come next go to the listener that drops.
  if (!self->drops_ && (!is_error(status) || status == TW_ERR_TRUNCATED))
    if (!self->owner_->given_up(self->message_, info->length, info->endpoint)) self->post();
}

namespace {

struct Telling {
  GiveUp message;
  std::shared_ptr<std::atomic<uint32_t>> under_way;
  ~Telling() { under_way->fetch_sub(1, std::memory_order_release); }
};

}  // namespace

void send_give_up(Engine& engine, Peer& peer, uint64_t tag, const GiveUp& message,
                  const std::shared_ptr<std::atomic<uint32_t>>& under_way) {
  auto telling = std::unique_ptr<Telling>(new (std::nothrow) Telling{message, under_way});
  if (telling == nullptr) return;
  under_way->fetch_add(1, std::memory_order_relaxed);
  OpDesc op;
  op.verb = Verb::send;
  op.flags = kOpGroup;
  op.peer = &peer;
  op.tag = tag;
  op.address = reinterpret_cast<std::byte*>(&telling->message);
  op.length = sizeof telling->message;
  const auto sent = [](void* arg, tw_request, Status, const tw_recv_info*) { delete static_cast<Telling*>(arg); };
  if (engine.start(op, calls(sent, telling.get())) == TW_IN_PROGRESS) telling.release();
}

}  // namespace thalweg::impl
