// SPDX-License-Identifier: Apache-2.0
// Frames from a hostile, authenticated peer into an engine that has something of everything under way: no crash, no write
// outside of what was offered, held memory within its bounds.
//
// Input: pieces of 20 bytes (type, flags, id, selector, a, b) each followed by up to 255 body bytes. The selector replaces
// a by a live op number, a registered key or a small value, so that inputs reach past the first checks.
#include <cstdlib>

#include "../unit/protocols/fake_port.hpp"
#include "protocols/active.hpp"

namespace {

using namespace thalweg::test;

OpDesc operation(Verb verb, Peer& peer, std::byte* address, size_t length, uint64_t tag) {
  OpDesc op;
  op.verb = verb;
  op.peer = &peer;
  op.address = address;
  op.length = length;
  op.tag = tag;
  op.mask = ~uint64_t{0};
  return op;
}

tw_status keep_some(void* arg, const tw_am_message* message) {
  auto& kept = *static_cast<std::vector<tw_am_data*>*>(arg);
  if (kept.size() >= 8) return TW_OK;
  kept.push_back(message->descriptor);
  return TW_IN_PROGRESS;
}

constexpr uint32_t kFeatures[] = {kLinkMaps, kLinkSingleCopy, kLinkByReference};

FakeOptions options_of(unsigned choice) {
  FakeOptions options;
  for (unsigned i = 0; i < std::size(kFeatures); ++i)
    if ((choice & 1u << i) != 0) options.features |= kFeatures[i];
  options.kernel_fails = true;  // the peer's addresses are not ours
  return options;
}

/// What outlives a run: two engines and the memory that one of them exports.
struct Rig {
  World world;
  std::vector<tw_am_data*> kept;
  std::vector<std::byte> buffer = std::vector<std::byte>(8192), large = std::vector<std::byte>(300000),
                         memory = std::vector<std::byte>(4096);
  KeyBody key{};
  explicit Rig(unsigned choice) : world(options_of(choice)) {
    set_handler(*world.right, 1, keep_some, &kept);
    tw_memory* region = nullptr;
    if (world.registry_b.register_memory(memory.data(), memory.size(), TW_MEMORY_ALL, &region) != TW_OK) std::abort();
    if (world.registry_b.export_range(region, 0, memory.size(), TW_MEMORY_ALL, &key) != TW_OK) std::abort();
  }
};

Rig& rig_of(unsigned choice) {
  static Rig* rigs[1u << std::size(kFeatures)];  // never freed
  Rig*& rig = rigs[choice % std::size(rigs)];
  if (rig == nullptr) rig = new Rig(choice);
  return *rig;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  auto& [w, kept, buffer, large, memory, key] = rig_of(data[0]);
  w.connect();
  std::vector<uint64_t> ops(5);
  w.right->post_receive(operation(Verb::recv, w.b, buffer.data(), 1000, 1), {&ops[0]});
  w.right->post_receive(operation(Verb::recv, w.b, buffer.data() + 2000, 3000, 2), {&ops[1]});
  w.right->start(operation(Verb::send, w.b, large.data(), large.size(), 3), {&ops[2]});
  w.right->start(operation(Verb::bytes_recv, w.b, buffer.data() + 6000, 1000, 0), {&ops[3]});
  OpDesc sync = operation(Verb::send, w.b, large.data(), 100, 4);
  sync.flags = TW_OP_SYNC;
  w.right->start(sync, {&ops[4]});
  ops.push_back(key.rkey);

  for (size_t at = 1; at + 21 <= size && w.b.state == TW_OK;) {
    FrameHeader header{};
    header.type = static_cast<uint8_t>((data[at] & kFrameTypeMask) | kMustUnderstand);
    header.flags = data[at + 1];
    header.id = static_cast<uint16_t>(data[at + 2] % 4);
    std::memcpy(&header.a, data + at + 4, 8);
    std::memcpy(&header.b, data + at + 12, 8);
    if (data[at + 3] < 128) header.a = ops[data[at + 3] % ops.size()];
    if ((data[at + 3] & 64) != 0) header.b &= 0xfff;
    if (data[at + 3] >= 192) header.a &= 0x7;
    size_t n = std::min<size_t>(data[at + 20], size - at - 21);
    at += 21;
    std::vector<std::byte> body(n);
    if (n != 0) std::memcpy(body.data(), data + at, n);
    at += n;
    header.length = static_cast<uint32_t>(n);
    w.pb->inject(*w.lb, header, body);
    w.right->progress();
    if (w.b.held_bytes > w.b.granted_bytes && w.b.state == TW_OK) std::abort();
    // Receives that were used up are posted again.
    for (int i = 0; i < 2; ++i) {
      if (Engine::test(ops[i]) == TW_IN_PROGRESS) continue;
      Engine::release(ops[i]);
      ops[i] = 0;
      if (w.b.state == TW_OK) {
        w.right->post_receive(operation(Verb::recv, w.b, buffer.data() + i * 2000, 1000 + i * 2000, 1 + i), {&ops[i]});
      }
    }
  }
  for (tw_am_data* data_kept : kept) active_release(data_kept);
  w.right->fail(w.b, TW_ERR_CLOSED, "the end of the input");
  for (size_t i = 0; i < 5; ++i) {
    if (ops[i] != 0 && Engine::test(ops[i]) == TW_IN_PROGRESS) std::abort();  // everything ends with the peer
    Engine::release(ops[i]);
  }
  kept.clear();
  w.begin_again();
  if (w.right->runs().alive() != 0) std::abort();  // nothing of the input stays behind
  return 0;
}
