// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedule.hpp"

namespace thalweg::impl {

uint32_t Schedule::add(CollectiveStep step, std::span<const uint32_t> of) {
  step.first_after = static_cast<uint32_t>(after.size());
  step.after = static_cast<uint32_t>(of.size());
  after.insert(after.end(), of.begin(), of.end());
  steps.push_back(step);
  return static_cast<uint32_t>(steps.size() - 1);
}

uint32_t Schedule::send(uint32_t peer, const Part& from, std::span<const uint32_t> of) {
  CollectiveStep step{StepVerb::send};
  step.peer = peer;
  step.from = from;
  return add(step, of);
}

uint32_t Schedule::recv(uint32_t peer, const Part& to, std::span<const uint32_t> of) {
  CollectiveStep step{StepVerb::recv};
  step.peer = peer;
  step.to = to;
  return add(step, of);
}

uint32_t Schedule::copy(const Part& to, const Part& from, std::span<const uint32_t> of) {
  CollectiveStep step{StepVerb::copy};
  step.to = to;
  step.from = from;
  return add(step, of);
}

uint32_t Schedule::reduce(const Part& to, std::span<const Part> from, std::span<const uint32_t> of) {
  CollectiveStep step{StepVerb::reduce};
  step.to = to;
  step.first_source = static_cast<uint32_t>(sources.size());
  step.sources = static_cast<uint32_t>(from.size());
  sources.insert(sources.end(), from.begin(), from.end());
  return add(step, of);
}

Part Schedule::take_scratch(uint64_t length) {
  constexpr uint64_t kAlign = 64;
  const Part part{Where::scratch, scratch, length};
  scratch += (length + kAlign - 1) / kAlign * kAlign;
  return part;
}

}  // namespace thalweg::impl
