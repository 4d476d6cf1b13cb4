// SPDX-License-Identifier: Apache-2.0
// Random prepared programs: what a queue of a device runs again and again, block by block, by the text that GPUs run
// (devices/program/), in one thread. The seed decides which block goes on next, when what is waited for comes, and where a run fails.
// Counters start as if the program had run for long: blocks near 2^32 of them, messages near 2^48, values of signals near 2^64.
#pragma once
#include <cstdint>
#include <string>

namespace thalweg::model {

enum class Form : uint8_t { copies, chain, wait, channel, messages, exchange, count_ };
const char* name_of(Form form);

/// One program, or two joined by a channel; exchange: by a channel for each message.
struct Prepared {
  uint64_t seed = 0;
  Form form = Form::copies;
  uint32_t blocks = 1, far_blocks = 1;  // of the receiver
  uint32_t bytes = 64;
  uint32_t steps = 1;     // copies, or messages of a run
  uint32_t runs = 3;      // triggered
  uint64_t before = 0;    // runs that are over
  uint64_t messages = 0;  // of a channel that are over
  uint64_t value = 0;     // of the signals' words in run 0
  bool adds = false;      // the signals add
  bool behind = false;    // the copy waits for the wait
  uint32_t fails = ~0u;   // which of `runs`: by a wait that is aborted, or a receive buffer that is too short
};

Prepared generate_prepared(uint64_t seed);
/// What went wrong, or "".
std::string run(const Prepared& program);
/// As a test to be pasted.
std::string test_of(const Prepared& program, const std::string& name);

}  // namespace thalweg::model
