// SPDX-License-Identifier: Apache-2.0
#include "plans/control_wire.hpp"

#include "base/told_status.hpp"
#include "core/wire_bytes.hpp"
#include "memory/remote.hpp"

namespace thalweg::impl {
namespace {

constexpr uint8_t kVersion = 6;
constexpr size_t kTextMax = 512, kLayoutMax = 66000;
static_assert(kLayoutMax >= kMaxWirePieces * sizeof(tw_piece) + 64 && kControlMax >= kLayoutMax + kTextMax + 8192,
              "a longer message is dropped without an answer");

Status malformed(const char* what) { return fail(TW_ERR_PROTOCOL, "a peer's plans sent %s", what); }

}  // namespace

std::string text_of(const ChannelName& name) {
  const std::string number = std::to_string(name.tag);
  return name.group == 0 ? "channel " + number : "channel " + number + " of a group's collectives";
}

std::vector<std::byte> write_control(const ControlMessage& message) {
  ByteWriter out;
  out.u8(kVersion);
  out.u8(static_cast<uint8_t>(message.type));
  out.u8(message.from_sender ? 1 : 0);
  out.u8(message.on_device);
  out.u64(message.name.sender);
  out.u64(message.name.receiver);
  out.u64(message.name.tag);
  out.u64(message.name.group);
  out.u32(message.epoch);
  out.u32(message.partner);
  out.raw(message.uuid.data(), message.uuid.size());
  out.u64(message.number);
  out.u64(message.offset);
  out.u16(message.index);
  out.u64(message.capacity);
  out.u32(static_cast<uint32_t>(message.status));
  out.block(message.key.data(), message.key.size());
  out.text(message.text.substr(0, kTextMax));
  out.u32(static_cast<uint32_t>(message.layout.size()));
  out.raw(message.layout.data(), message.layout.size());
  return std::move(out.bytes);
}

Status parse_control(const std::byte* bytes, size_t length, ControlMessage* out) {
  ByteReader in(bytes, length);
  if (in.u8() != kVersion) return malformed("a message of another version");
  const uint8_t type = in.u8();
  if (type == 0 || type >= static_cast<uint8_t>(Control::count_)) return malformed("a message of no known type");
  out->type = static_cast<Control>(type);
  out->from_sender = in.u8() != 0;
  out->on_device = in.u8();
  out->name.sender = in.u64();
  out->name.receiver = in.u64();
  out->name.tag = in.u64();
  out->name.group = in.u64();
  out->epoch = in.u32();
  out->partner = in.u32();
  in.raw(out->uuid.data(), out->uuid.size());
  out->number = in.u64();
  out->offset = in.u64();
  out->index = in.u16();
  out->capacity = in.u64();
  out->status = told_status(static_cast<int32_t>(in.u32()));
  out->key = in.block(kKeySize);
  out->text = in.text(kTextMax);
  const uint32_t layout = in.u32();
  if (!in.good() || layout > kLayoutMax) return malformed("a malformed message");
  // One that nobody names yet is kept.
  if (out->type == Control::open && (layout != 0 || !out->text.empty())) return malformed("an `open` with a text or a layout");
  out->layout.resize(layout);
  in.raw(out->layout.data(), layout);
  return in.done() ? Status{TW_OK} : malformed("a malformed message");
}

}  // namespace thalweg::impl
