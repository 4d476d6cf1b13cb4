// SPDX-License-Identifier: Apache-2.0
// Whose pointer is it, and which GPUs are there.
#include "devices/cuda/backend.hpp"

#include <cstdio>
#include <utility>

#include "devices/cuda/device.hpp"
#include "devices/registry.hpp"
#include "devices/topology_reach.hpp"

namespace thalweg::impl::cuda {
namespace {

MemoryKind kind_of(unsigned type, bool managed, CuPool pool, CuContext context) {
  if (managed) return MemoryKind::managed;
  if (type == kHostMemory) return MemoryKind::pinned;
  if (pool != nullptr) return MemoryKind::pool;
  return context == nullptr ? MemoryKind::vmm : MemoryKind::device;  // mapped memory belongs to no context
}

/// "0000:1b:00.0"; empty: the driver does not say.
std::string address_of(const DriverApi& driver, int ordinal) {
  constexpr unsigned kPciBus = 33, kPciDevice = 34, kPciDomain = 50;  // attributes of a device
  int bus = 0, device = 0, domain = 0;
  for (const auto& [which, to] : {std::pair{kPciBus, &bus}, std::pair{kPciDevice, &device}, std::pair{kPciDomain, &domain}})
    if (driver.DeviceGetAttribute(to, which, ordinal) != result::success) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", static_cast<unsigned>(domain), static_cast<unsigned>(bus),
                static_cast<unsigned>(device));
  return text;
}

std::string& absence() {
  static auto* const text = new std::string;
  return *text;
}

}  // namespace

CudaBackend::CudaBackend(const DriverApi& driver) : driver_(driver), kernels_(driver_) {}
CudaBackend::~CudaBackend() = default;

Status CudaBackend::identify(uint64_t address, BufferInfo* info) {
  unsigned type = 0, which = kMemoryType;
  void* to = &type;
  // First whether it is any of the driver's: for host memory that takes half the time of the whole question.
  if (driver_.PointerGetAttributes(1, &which, &to, address) != result::success || type == 0) return TW_ERR_NO_MATCH;
  unsigned managed = 0, legacy = 0;
  int ordinal = -1;
  uint64_t buffer_id = 0, base = 0, length = 0, handle_types = 0;
  CuContext context = nullptr;
  CuPool pool = nullptr;
  unsigned attributes[] = {kIsManaged, kLegacyIpc,   kDeviceOrdinal, kBufferId, kRangeStart,
                           kRangeSize, kHandleTypes, kContext,       kPool};
  void* data[] = {&managed, &legacy, &ordinal, &buffer_id, &base, &length, &handle_types, &context, &pool};
  if (driver_.PointerGetAttributes(std::size(attributes), attributes, data, address) != result::success) return TW_ERR_NO_MATCH;
  if (count() == 0 && is_error(enumerate())) return TW_ERR_NO_MATCH;
  info->kind = kind_of(type, managed != 0, pool, context);
  CudaDevice* const home = device(ordinal);
  info->device = home != nullptr || info->kind != MemoryKind::pinned ? home : device(0);
  if (info->device == nullptr || device(0)->forked()) return TW_ERR_NO_MATCH;
  info->buffer_id = buffer_id;
  info->base = base;
  info->length = length;
  if (info->kind == MemoryKind::vmm) {  // the piece, where the range may be the whole reservation
    unsigned mapping[] = {kMappingBase, kMappingSize};
    void* piece[] = {&info->base, &info->length};
    if (driver_.PointerGetAttributes(2, mapping, piece, address) != result::success || info->length == 0) {
      info->base = base;
      info->length = length;
    }
  }
  info->host_access = info->kind == MemoryKind::pinned || info->kind == MemoryKind::managed;
  info->exportable = form_of(address, info->kind, legacy != 0, handle_types);
  return TW_OK;
}

ExportForm CudaBackend::form_of(uint64_t address, MemoryKind kind, bool legacy, uint64_t handle_types) const {
  if (kind != MemoryKind::device && kind != MemoryKind::vmm) return ExportForm::none;
  if (import_count.load(std::memory_order_acquire) != 0) {
    for (const auto& one : devices_) {
      if (one->is_import(address)) return ExportForm::none;
    }
  }
  if (kind == MemoryKind::device) return legacy ? ExportForm::ipc_handle : ExportForm::none;
  return (handle_types & kHandleDescriptor) != 0 ? ExportForm::descriptor : ExportForm::none;
}

CudaDevice* CudaBackend::device(int ordinal) const {
  if (ordinal < 0 || static_cast<unsigned>(ordinal) >= count()) return nullptr;
  return devices_[static_cast<unsigned>(ordinal)].get();
}

CudaDevice* CudaBackend::device(const Uuid& uuid) const {
  for (unsigned i = 0; i < count(); ++i) {
    if (devices_[i]->uuid() == uuid) return devices_[i].get();
  }
  return nullptr;
}

/// The driver is initialised. Makes no context.
Status CudaBackend::enumerate() {
  const std::lock_guard lock(mutex_);
  if (count_.load(std::memory_order_relaxed) != 0) return TW_OK;
  int count = 0;
  if (Status s = check(driver_.DeviceGetCount(&count), "counting the GPUs"); is_error(s)) return s;
  if (count == 0) return fail_cuda(result::no_device, "counting the GPUs");
  std::vector<std::unique_ptr<CudaDevice>> found;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    Uuid uuid;
    if (Status s = check(driver_.DeviceGetUuid(uuid.data(), ordinal), "asking for a GPU's UUID"); is_error(s)) return s;
    found.push_back(std::make_unique<CudaDevice>(*this, ordinal, uuid));
    if (const std::string address = address_of(driver_, ordinal); !address.empty()) set_pci_address(uuid, address);
  }
  devices_ = std::move(found);
  count_.store(static_cast<unsigned>(count), std::memory_order_release);
  return TW_OK;
}

Status CudaBackend::devices(std::vector<Device*>* out) {
  if (count() == 0) {
    if (Status s = check(driver_.Init(0), "initialising CUDA"); is_error(s)) return s;
    if (Status s = enumerate(); is_error(s)) return s;
  }
  out->clear();
  for (unsigned i = 0; i < count(); ++i) out->push_back(devices_[i].get());
  return TW_OK;
}

void open_backend() {
  DriverApi driver;
  if (is_error(load_driver(kDriverLibrary, &driver))) {
    absence() = last_error();
    return;
  }
  add_backend(new CudaBackend(driver));  // until exit
}

const std::string& why_absent() { return absence(); }

}  // namespace thalweg::impl::cuda
