// SPDX-License-Identifier: Apache-2.0
// The part of NVML's documented binary interface that is called here, declared so that a build needs none of its headers. Names are
// NVML's without their prefix. Old drivers lack the last ones.
#pragma once
#include <cstdint>

namespace thalweg::impl::topology::nvml {

using Result = int;
using Device = struct DeviceObject*;
constexpr Result kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3;

struct PciInfo {
  char legacy_address[16];
  unsigned domain, bus, device, ids, subsystem;
  char address[32];  // "00000000:1B:00.0"
};
static_assert(sizeof(PciInfo) == 68);

struct Memory {
  unsigned long long total, free, used;  // bytes
};

struct FieldValue {
  unsigned field, scope;
  long long time, latency;
  unsigned type;
  Result result;
  union {
    double number;
    unsigned whole;
    unsigned long long bits;
  } value;
};
static_assert(sizeof(FieldValue) == 40);

constexpr unsigned kSpeedOfLinks = 90;  // a field: megabytes per second in each direction, of all links that are up
constexpr unsigned kUnsignedType = 1;   // of a field's value
constexpr unsigned kErrorCounters = 4;  // of a link: replay, recovery, CRC of flits, CRC of data
constexpr unsigned kMostLinks = 18;
enum RemoteType : unsigned { kRemoteGpu = 0, kRemoteCpu = 1, kRemoteSwitch = 2 };

constexpr unsigned kPeerUses[] = {0, 1, 2, 3};  // P2P capabilities: read, write, NVLink, atomics
constexpr unsigned kPeerStatuses = 7;           // numbers from 0 on: ok, and six reasons why not

/// By the driver's number of an NVLink's version (1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0): its first digit.
constexpr unsigned kVersions[] = {0, 1, 2, 2, 3, 3, 4, 5};

/// F(name, symbol, parameters)
#define THALWEG_NVML_FUNCTIONS(F)                                                             \
  F(init, "nvmlInit_v2", ())                                                                  \
  F(shutdown, "nvmlShutdown", ())                                                             \
  F(driver, "nvmlSystemGetDriverVersion", (char* text, unsigned length))                      \
  F(count, "nvmlDeviceGetCount_v2", (unsigned* count))                                        \
  F(device, "nvmlDeviceGetHandleByIndex_v2", (unsigned index, Device* device))                \
  F(uuid, "nvmlDeviceGetUUID", (Device device, char* text, unsigned length))                  \
  F(name, "nvmlDeviceGetName", (Device device, char* text, unsigned length))                  \
  F(memory, "nvmlDeviceGetMemoryInfo", (Device device, Memory * memory))                      \
  F(pci, "nvmlDeviceGetPciInfo_v3", (Device device, PciInfo * info))                          \
  F(generation, "nvmlDeviceGetMaxPcieLinkGeneration", (Device device, unsigned* generation))  \
  F(lanes, "nvmlDeviceGetCurrPcieLinkWidth", (Device device, unsigned* lanes))                \
  F(most_lanes, "nvmlDeviceGetMaxPcieLinkWidth", (Device device, unsigned* lanes))            \
  F(state, "nvmlDeviceGetNvLinkState", (Device device, unsigned link, unsigned* active))      \
  F(version, "nvmlDeviceGetNvLinkVersion", (Device device, unsigned link, unsigned* version)) \
  F(remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2", (Device device, unsigned link, PciInfo* info))

#define THALWEG_NVML_OPTIONAL(F)                                                                        \
  F(remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType", (Device device, unsigned link, unsigned* type)) \
  F(fields, "nvmlDeviceGetFieldValues", (Device device, int count, FieldValue* values))                 \
  F(peers, "nvmlDeviceGetP2PStatus", (Device device, Device other, unsigned use, unsigned* status))     \
  F(errors, "nvmlDeviceGetNvLinkErrorCounter", (Device device, unsigned link, unsigned counter, unsigned long long* value))

struct Api {
#define THALWEG_NVML_MEMBER(name, symbol, parameters) Result(*name) parameters = nullptr;
  THALWEG_NVML_FUNCTIONS(THALWEG_NVML_MEMBER)
  THALWEG_NVML_OPTIONAL(THALWEG_NVML_MEMBER)
#undef THALWEG_NVML_MEMBER
};

}  // namespace thalweg::impl::topology::nvml
