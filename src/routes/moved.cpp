// SPDX-License-Identifier: Apache-2.0
#include "routes/moved.hpp"

#include <algorithm>

namespace thalweg::impl {
namespace {

void add_to(std::array<Moved::Count, kWays>& sum, const Moved& of) {
  for (size_t i = 0; i < kWays; ++i) {
    const Moved::Count count = of.of(static_cast<Way>(i));
    sum[i].operations += count.operations;
    sum[i].bytes += count.bytes;
  }
}

}  // namespace

void Traffic::add(const Moved& of) {
  const std::lock_guard lock(mutex_);
  alive_.push_back(&of);
}

void Traffic::remove(const Moved& of) {
  const std::lock_guard lock(mutex_);
  if (std::erase(alive_, &of) == 0) return;
  add_to(ended_, of);
  ended_named_ += of.named();
}

uint64_t Traffic::named() const {
  const std::lock_guard lock(mutex_);
  uint64_t sum = ended_named_;
  for (const Moved* of : alive_) sum += of->named();
  return sum;
}

std::array<Moved::Count, kWays> Traffic::sum() const {
  const std::lock_guard lock(mutex_);
  auto sum = ended_;
  for (const Moved* of : alive_) add_to(sum, *of);
  return sum;
}

std::string Traffic::json() const {
  const auto counts = sum();
  std::string text = "{";
  for (size_t i = static_cast<size_t>(Way::any) + 1; i < kWays; ++i) {
    text += std::string(text.size() > 1 ? ", " : "") + "\"" + name_of(static_cast<Way>(i)) +
            "\": {\"operations\": " + std::to_string(counts[i].operations) + ", \"bytes\": " + std::to_string(counts[i].bytes) +
            "}";
  }
  return text + "}";
}

}  // namespace thalweg::impl
