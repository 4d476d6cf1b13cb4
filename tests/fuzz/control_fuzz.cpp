// SPDX-License-Identifier: Apache-2.0
// Messages between proxies: whatever parses, is written as the same message again.
#include <cstdlib>

#include "plans/control_wire.hpp"

using namespace thalweg::impl;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ControlMessage message;
  if (is_error(parse_control(reinterpret_cast<const std::byte*>(data), size, &message))) return 0;
  const std::vector<std::byte> written = write_control(message);
  ControlMessage again;
  if (is_error(parse_control(written.data(), written.size(), &again))) std::abort();
  const bool same = again.type == message.type && again.name == message.name && again.epoch == message.epoch &&
                    again.partner == message.partner && again.number == message.number && again.offset == message.offset &&
                    again.index == message.index && again.capacity == message.capacity && again.status == message.status &&
                    again.key == message.key && again.text == message.text && again.layout == message.layout;
  if (!same) std::abort();
  return 0;
}
