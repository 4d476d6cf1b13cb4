// SPDX-License-Identifier: Apache-2.0
// Layouts of callbacks: the user's functions pack and unpack the bytes of one operation, in packed order and each byte once.
//
// Life: start_calls() makes the layout of one operation; its poster and its run hold references. The run's end calls finish
// before the request completes; a layout without a run finishes with the last reference. From the first call that fails on
// nothing more is called: bytes that still come are thrown away, and what is to be sent is not.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/told_status.hpp"
#include "memory/layout.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kMaxPacked = uint64_t{1} << 62;

using Size = unsigned long long;

void note_failure(LayoutCalls& calls, Status status) {
  calls.status = status;
  calls.text = last_error();
}

Status refuse_direction(bool unpacks) {
  return fail(TW_ERR_UNSUPPORTED, unpacks ? "the layout has no unpack: nothing is received into it; make it with one"
                                          : "the layout has no pack: nothing is sent from it; make it with one");
}

Status check_packed(const LayoutCalls& calls, uint64_t length, uint64_t* packed) {
  *packed = calls.given.packed_size(calls.state);
  if (*packed > kMaxPacked) return fail(TW_ERR_INVALID, "packed_size of the layout says more than 2^62 bytes");
  if (length == 0 || length == *packed) return TW_OK;
  return fail(TW_ERR_INVALID, "length %llu, but the layout packs %llu bytes: pass 0 or the same", static_cast<Size>(length),
              static_cast<Size>(*packed));
}

}  // namespace

Status make_callbacks(const tw_layout_callbacks_options& given, Layout** out) {
  if (given.start == nullptr || given.packed_size == nullptr || given.finish == nullptr ||
      (given.pack == nullptr && given.unpack == nullptr)) {
    return fail(TW_ERR_INVALID, "a layout of callbacks needs start, packed_size and finish, and pack or unpack");
  }
  auto layout = std::make_unique<Layout>();
  layout->calls = std::make_unique<LayoutCalls>();
  layout->calls->given = given;
  *out = layout.release();
  return TW_OK;
}

Status start_calls(const Layout& made, const void* buffer, uint64_t length, bool unpacks, Layout** out) {
  const tw_layout_callbacks_options& given = made.calls->given;
  if ((unpacks ? given.unpack == nullptr : given.pack == nullptr)) return refuse_direction(unpacks);
  std::unique_ptr<Layout> layout(new (std::nothrow) Layout());
  if (layout != nullptr) layout->calls.reset(new (std::nothrow) LayoutCalls());
  if (layout == nullptr || layout->calls == nullptr) return fail(TW_ERR_NO_MEMORY, "no memory for an operation with a layout");
  LayoutCalls& calls = *layout->calls;
  calls.given = given;
  const tw_status started = given.start(given.arg, buffer, length, unpacks ? TW_LAYOUT_UNPACK : TW_LAYOUT_PACK, &calls.state);
  if (started != TW_OK) {
    const Status status = told_error(started);
    return fail(status, "start of the layout refused the buffer: %s", status_name(status));
  }
  const Status status = check_packed(calls, length, &layout->bytes);
  if (is_error(status)) {
    given.finish(calls.state);
    return status;
  }
  calls.started = true;
  calls.made = &made;
  retain(&made);
  *out = layout.release();
  return TW_OK;
}

void finish_calls(const Layout& layout) {
  LayoutCalls& calls = *layout.calls;
  if (std::exchange(calls.started, false)) calls.given.finish(calls.state);
}

void end_calls(const Layout& layout) {
  LayoutCalls& calls = *layout.calls;
  finish_calls(layout);
  if (calls.made != nullptr) return release(calls.made);
  if (calls.given.destroy != nullptr) calls.given.destroy(calls.given.arg);
}

Status calls_failed(const Layout* layout) {
  if (layout == nullptr || layout->calls == nullptr || layout->calls->status == TW_OK) return TW_OK;
  set_last_error(layout->calls->text);
  return layout->calls->status;
}

Status check_named(const Layout& layout) {
  if (const Status status = layout.born.check("layout"); is_error(status)) return status;
  if (layout.calls == nullptr) return TW_OK;
  return fail(TW_ERR_UNSUPPORTED,
              "a layout of callbacks names no bytes: only messages, and the local side of puts and gets, take one; describe "
              "these bytes by tw_layout_strided or tw_layout_pieces");
}

void LayoutCursor::pack_by_calls(std::byte* to, size_t n) {
  LayoutCalls& calls = *layout_->calls;
  while (n > 0 && calls.status == TW_OK) {
    const uint64_t at = total_ - remaining_;
    const int64_t written = calls.given.pack(calls.state, at, to, n);
    if (written <= 0 || static_cast<uint64_t>(written) > n) {
      const Status status = told_error(written);
      note_failure(calls, fail(status, "pack of the layout failed at byte %llu: %s (it writes at least one byte, at most %zu)",
                               static_cast<Size>(at), status_name(status), n));
      break;
    }
    remaining_ -= static_cast<uint64_t>(written);
    to += written;
    n -= static_cast<size_t>(written);
  }
  remaining_ -= n;
}

void LayoutCursor::unpack_by_calls(const std::byte* from, size_t n) {
  LayoutCalls& calls = *layout_->calls;
  const uint64_t at = total_ - remaining_;
  remaining_ -= n;
  if (n == 0 || calls.status != TW_OK) return;
  const tw_status unpacked = calls.given.unpack(calls.state, at, from, n);
  if (unpacked == TW_OK) return;
  const Status status = told_error(unpacked);
  note_failure(calls, fail(status, "unpack of the layout refused bytes %llu to %llu: %s", static_cast<Size>(at),
                           static_cast<Size>(at + n), status_name(status)));
}

}  // namespace thalweg::impl
