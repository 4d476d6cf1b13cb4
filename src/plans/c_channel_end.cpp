// SPDX-License-Identifier: Apache-2.0
// C interface: ends of channels for kernels.
#include "core/c_checks.hpp"
#include "plans/channel_end.hpp"

using namespace thalweg::impl;

namespace {

constexpr tw_channel_options kDefaults = TW_CHANNEL_OPTIONS_INIT;

Status check(const tw_channel_end* end, const void* out) {
  if (end == nullptr) return fail(TW_ERR_INVALID, "the channel's end is NULL");
  if (out == nullptr) return fail(TW_ERR_INVALID, "the place for the answer is NULL");
  return end->born.check("channel's end");
}

Status bind(tw_endpoint* endpoint, uint64_t channel, bool sends, std::span<const tw_channel_buffer> buffers,
            const tw_channel_options* given, tw_channel_end** out) {
  if (Status s = thalweg::impl::check(endpoint); is_error(s)) return s;
  if (out == nullptr) return fail(TW_ERR_INVALID, "the place for the channel's end is NULL");
  *out = nullptr;
  const Options<tw_channel_options> options(given, kDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  Proxy* proxy = nullptr;
  if (Status s = Proxy::of(endpoint->worker->context, &proxy); is_error(s)) return s;
  proxy->release_left(false);
  auto made = std::make_unique<tw_channel_end>(*proxy, *endpoint);
  if (Status s = made->bind(channel, sends, buffers, *options); is_error(s)) return s;
  *out = made.release();
  return TW_OK;
}

}  // namespace

extern "C" {

tw_status tw_channel_bind_send(tw_endpoint* endpoint, uint64_t channel, const tw_channel_options* options,
                               tw_channel_end** end) {
  return bind(endpoint, channel, true, {}, options, end);
}

tw_status tw_channel_bind_recv(tw_endpoint* endpoint, const tw_channel_buffer* buffers, size_t count, uint64_t channel,
                               const tw_channel_options* options, tw_channel_end** end) {
  if (buffers == nullptr || count == 0) return fail(TW_ERR_INVALID, "a receiving end needs buffers to receive into");
  return bind(endpoint, channel, false, {buffers, count}, options, end);
}

tw_status tw_channel_end_address(const tw_channel_end* end, void** address) {
  if (Status s = check(end, address); is_error(s)) return s;
  *address = reinterpret_cast<void*>(end->address);
  return TW_OK;
}

tw_status tw_channel_end_guard(const tw_channel_end* end, tw_device_guard* guard) {
  if (Status s = check(end, guard); is_error(s)) return s;
  *guard = end->guard;
  return TW_OK;
}

tw_status tw_channel_end_recv_buffer(const tw_channel_end* end, size_t index, uint32_t* recv_buffer) {
  if (Status s = check(end, recv_buffer); is_error(s)) return s;
  if (index >= end->recv_buffers.size())
    return fail(TW_ERR_INVALID, "there is no buffer %zu: the end has %zu", index, end->recv_buffers.size());
  *recv_buffer = end->recv_buffers[index];
  return TW_OK;
}

tw_status tw_channel_end_explain(const tw_channel_end* end, char* buffer, size_t* size) {
  if (Status s = check(end, size); is_error(s)) return s;
  const std::string text = end->explain();
  return copy_out(text.c_str(), text.size() + 1, buffer, size);
}

tw_status tw_channel_end_check(tw_channel_end* end) {
  if (Status s = check(end, end); is_error(s)) return s;
  return end->check();
}

tw_status tw_channel_end_release(tw_channel_end* end) {
  if (end == nullptr || end->born.forked()) return TW_OK;
  const std::unique_ptr<tw_channel_end> gone(end);
  return end->release();
}

}  // extern "C"
