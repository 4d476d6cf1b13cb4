// SPDX-License-Identifier: Apache-2.0
// The list of emulated devices.
#include "devices/emulated/backend.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "base/log.hpp"
#include "devices/emulated/emulated.hpp"
#include "devices/registry.hpp"

namespace thalweg::impl::emulated {
namespace {

class EmulatedBackend final : public Backend {
 public:
  const char* name() const override { return "emulated"; }
  Status identify(uint64_t address, BufferInfo* info) override {
    const std::lock_guard lock(mutex);
    for (EmulatedDevice* device : list) {
      if (device->describe(address, info)) return TW_OK;
    }
    return TW_ERR_NO_MATCH;
  }
  Status devices(std::vector<Device*>* out) override {
    const std::lock_guard lock(mutex);
    out->assign(list.begin(), list.end());
    return list.empty() ? fail(TW_ERR_DEVICE, "no emulated device is open; set THALWEG_EMULATED=devices=1") : TW_OK;
  }
  std::mutex mutex;
  std::vector<EmulatedDevice*> list;
};

EmulatedBackend& all() {
  static auto* const backend = new EmulatedBackend;  // until exit: the registry keeps it
  return *backend;
}

}  // namespace

Backend& backend() { return all(); }

void enlist(EmulatedDevice* device) {
  {
    const std::lock_guard lock(all().mutex);
    all().list.push_back(device);
  }
  add_backend(&all());
}

void strike(EmulatedDevice* device) {
  const std::lock_guard lock(all().mutex);
  std::erase(all().list, device);
}

bool find_place(uint64_t address, uint64_t length, Place* out) {
  const std::lock_guard lock(all().mutex);
  for (const EmulatedDevice* device : all().list) {
    out->holder = device->find(address, length);
    if (out->holder != nullptr) {
      out->device = device;
      out->pointer = out->holder->view + (address - out->holder->address);
      return true;
    }
    if (device->owns(address)) return false;
  }
  out->pointer = reinterpret_cast<std::byte*>(address);
  return true;
}

bool overlaps(uint64_t address, uint64_t length) {
  const std::lock_guard lock(all().mutex);
  return std::any_of(all().list.begin(), all().list.end(),
                     [&](const EmulatedDevice* device) { return device->overlaps(address, length); });
}

void open_from_environment() {
  const char* text = std::getenv("THALWEG_EMULATED");
  if (text == nullptr || *text == 0) return;
  std::vector<Options> options;
  Status status = parse_options(text, &options);
  for (unsigned i = 0; i < options.size() && !is_error(status); ++i) {
    std::unique_ptr<EmulatedDevice> device;
    status = EmulatedDevice::open(i, options[i], &device);
    device.release();  // until exit, NOLINT(bugprone-unused-return-value)
  }
  if (is_error(status)) log(LogLevel::error, "THALWEG_EMULATED: %s", last_error());
}

}  // namespace thalweg::impl::emulated
