// SPDX-License-Identifier: Apache-2.0
// Answers about device memory: put together, and refused when a peer breaks a rule.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/platform/process.hpp"
#include "memory/device_names.hpp"
#include "transports/device_memory/answer.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kIncarnation = 77, kSegment = 0xabcdef;

std::vector<ExportedMemory> pieces_of(size_t count, ExportForm form = ExportForm::descriptor) {
  std::vector<ExportedMemory> pieces(count);
  for (size_t i = 0; i < count; ++i) {
    ExportHandle& handle = pieces[i].handle;
    handle.incarnation = kIncarnation;
    handle.buffer_id = i + 1;
    handle.base = 0x10000 + i * 4096;
    handle.length = 4096;
    handle.form = form;
    handle.kind = form == ExportForm::descriptor ? MemoryKind::vmm : MemoryKind::device;
    const uint64_t random = random_id();
    std::memcpy(handle.handle, &random, sizeof random);
    if (form == ExportForm::descriptor) pieces[i].fd = UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC));
  }
  return pieces;
}

Status add(DeviceAssembly& assembly, const DevicePart& part, int spare_fds = 0) {
  std::vector<UniqueFd> fds;
  for (int fd : part.fds) fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  for (; spare_fds > 0; --spare_fds) fds.emplace_back(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (; spare_fds < 0; ++spare_fds) fds.pop_back();
  return assembly.add(part.bytes, std::move(fds), kIncarnation);
}

TEST(DeviceAnswer, PartsMakeUpTheWhole) {
  const auto pieces = pieces_of(19);
  DeviceAssembly assembly;
  EXPECT_EQ(add(assembly, write_device_part(kSegment, pieces, 0)), TW_IN_PROGRESS);
  EXPECT_EQ(add(assembly, write_device_part(kSegment, pieces, 8)), TW_IN_PROGRESS);
  EXPECT_EQ(add(assembly, write_device_part(kSegment, pieces, 16)), TW_OK);
  EXPECT_EQ(assembly.segment, kSegment);
  EXPECT_EQ(assembly.status, TW_OK);
  ASSERT_EQ(assembly.pieces.size(), 19u);
  for (size_t i = 0; i < 19; ++i) {
    EXPECT_EQ(std::memcmp(&assembly.pieces[i].handle, &pieces[i].handle, sizeof(ExportHandle)), 0);
    EXPECT_TRUE(assembly.pieces[i].fd);
  }
  DeviceAssembly single;
  EXPECT_EQ(add(single, write_device_part(kSegment, pieces_of(1, ExportForm::ipc_handle), 0)), TW_OK);
  EXPECT_FALSE(single.pieces[0].fd);
}

TEST(DeviceAnswer, AnErrorIsOneOfFour) {
  const std::pair<int64_t, Status> said[] = {{TW_ERR_UNSUPPORTED, TW_ERR_UNSUPPORTED},
                                             {TW_ERR_LIMIT, TW_ERR_LIMIT},
                                             {TW_ERR_STALE, TW_ERR_STALE},
                                             {TW_ERR_NO_DESCRIPTORS, TW_ERR_NO_DESCRIPTORS},
                                             {TW_IN_PROGRESS, TW_ERR_STALE},
                                             {TW_ERR_PROTOCOL, TW_ERR_STALE},
                                             {INT64_MIN, TW_ERR_STALE}};
  for (const auto& [status, meant] : said) {
    DevicePart part;
    const DeviceAnswer answer{kSegment, status, 0, 0};
    part.bytes.resize(sizeof answer);
    std::memcpy(part.bytes.data(), &answer, sizeof answer);
    DeviceAssembly assembly;
    EXPECT_EQ(add(assembly, part), TW_OK);
    EXPECT_EQ(assembly.status, meant);
    EXPECT_TRUE(assembly.pieces.empty());
    EXPECT_EQ(add(assembly, part, 1), TW_ERR_PROTOCOL) << "an error with a descriptor";
  }
}

/// A part lost its descriptors because there was no free one here: the answer is an error when all of it has come.
TEST(DeviceAnswer, APartWithoutItsDescriptorsFailsTheWhole) {
  const auto pieces = pieces_of(19);
  for (const size_t lost : {size_t(0), size_t(8), size_t(16)}) {
    DeviceAssembly assembly;
    for (int round = 0; round < 2; ++round) {
      for (size_t first = 0; first < 19; first += 8) {
        const DevicePart part = write_device_part(kSegment, pieces, first);
        const bool without = round == 0 && first == lost;
        const Status status = without ? assembly.add(part.bytes, {}, kIncarnation, true) : add(assembly, part);
        EXPECT_EQ(status, first == 16 ? TW_OK : TW_IN_PROGRESS) << lost;
      }
      EXPECT_EQ(assembly.status, round == 0 ? TW_ERR_NO_DESCRIPTORS : TW_OK);
      EXPECT_EQ(std::exchange(assembly.pieces, {}).size(), round == 0 ? 0u : 19u);
    }
  }
}

struct Rule {
  const char* name;
  std::function<void(DeviceAnswer&, ExportHandle*)> break_it;
};

TEST(DeviceAnswer, EveryRuleIsChecked) {
  const Rule rules[] = {
      {"no more pieces than announced", [](DeviceAnswer& a, ExportHandle*) { a.total = 2; }},
      {"announced pieces are bounded", [](DeviceAnswer& a, ExportHandle*) { a.total = DeviceNames::kMaxPieces + 1; }},
      {"parts begin at the beginning", [](DeviceAnswer& a, ExportHandle*) { a.first = 1; }},
      {"counts do not overflow", [](DeviceAnswer& a, ExportHandle*) { a.first = UINT32_MAX; }},
      {"handles come without an error", [](DeviceAnswer& a, ExportHandle*) { a.status = TW_ERR_STALE; }},
      {"known forms", [](DeviceAnswer&, ExportHandle* h) { h[1].form = static_cast<ExportForm>(9); }},
      {"some form", [](DeviceAnswer&, ExportHandle* h) { h[1].form = ExportForm::none; }},
      {"descriptors with each", [](DeviceAnswer&, ExportHandle* h) { h[1].form = ExportForm::ipc_handle; }},
      {"kinds that can be exported", [](DeviceAnswer&, ExportHandle* h) { h[0].kind = MemoryKind::managed; }},
      {"known kinds", [](DeviceAnswer&, ExportHandle* h) { h[0].kind = MemoryKind::count_; }},
      {"of the peer's process", [](DeviceAnswer&, ExportHandle* h) { h[2].incarnation = 78; }},
      {"not empty", [](DeviceAnswer&, ExportHandle* h) { h[2].length = 0; }},
      {"not endless", [](DeviceAnswer&, ExportHandle* h) { h[2].length = uint64_t{1} << 50; }},
      {"not past the last address", [](DeviceAnswer&, ExportHandle* h) { h[0].base = UINT64_MAX - 100; }},
      {"one behind the other", [](DeviceAnswer&, ExportHandle* h) { h[1].base += 4096; }},
  };
  for (const Rule& rule : rules) {
    DevicePart part = write_device_part(kSegment, pieces_of(3), 0);
    std::vector<UniqueFd> fds;
    for (int i = 0; i < 3; ++i) fds.emplace_back(open("/dev/null", O_RDWR | O_CLOEXEC));
    DeviceAnswer answer;
    ExportHandle handles[3];
    std::memcpy(&answer, part.bytes.data(), sizeof answer);
    std::memcpy(handles, part.bytes.data() + sizeof answer, sizeof handles);
    rule.break_it(answer, handles);
    std::memcpy(part.bytes.data(), &answer, sizeof answer);
    std::memcpy(part.bytes.data() + sizeof answer, handles, sizeof handles);
    DeviceAssembly assembly;
    EXPECT_EQ(assembly.add(part.bytes, std::move(fds), kIncarnation), TW_ERR_PROTOCOL) << rule.name;
  }
}

TEST(DeviceAnswer, LengthsAndDescriptorsMustFit) {
  const auto pieces = pieces_of(3);
  const DevicePart whole = write_device_part(kSegment, pieces, 0);
  for (size_t length = 0; length < whole.bytes.size(); ++length) {
    const DevicePart part{{whole.bytes.begin(), whole.bytes.begin() + static_cast<ptrdiff_t>(length)}, whole.fds};
    DeviceAssembly assembly;
    EXPECT_EQ(add(assembly, part), TW_ERR_PROTOCOL) << length;
  }
  DeviceAssembly one_more, one_less;
  EXPECT_EQ(add(one_more, whole, 1), TW_ERR_PROTOCOL);
  EXPECT_EQ(add(one_less, whole, -1), TW_ERR_PROTOCOL);
  // Two handles of the driver's own are two imports, not one.
  DeviceAssembly two;
  EXPECT_EQ(add(two, write_device_part(kSegment, pieces_of(2, ExportForm::ipc_handle), 0)), TW_ERR_PROTOCOL);
}

TEST(DeviceAnswer, PartsOfDifferentAnswersDoNotMix) {
  const auto pieces = pieces_of(12), others = pieces_of(11);
  for (const DevicePart& second : {write_device_part(kSegment + 1, pieces, 8), write_device_part(kSegment, others, 8),
                                   write_device_part(kSegment, pieces, 0)}) {
    DeviceAssembly assembly;
    ASSERT_EQ(add(assembly, write_device_part(kSegment, pieces, 0)), TW_IN_PROGRESS);
    EXPECT_EQ(add(assembly, second), TW_ERR_PROTOCOL);
  }
}

}  // namespace
}  // namespace thalweg::impl
