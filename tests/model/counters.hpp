// SPDX-License-Identifier: Apache-2.0
// Where the counters of a program start: near their wraps, those of 64 bits near 2^32 and 2^63, credits as of a connection that has
// been in use. A program says which kinds do (Program::counters), its seed says where.
#pragma once
#include <cstdint>
#include <string>

#include "model/program.hpp"
#include "protocols/engine.hpp"
#include "protocols/peer.hpp"

namespace thalweg::model {
using namespace thalweg::impl;

FirstNumbers first_numbers(const Program& program, unsigned worker);
/// Before it is posted to.
void start_numbers(const Program& program, unsigned worker, unsigned to, Peer& peer);
/// Behind its attach: some of what may arrive unasked has come, was consumed, and is not given back yet.
void start_credits(const Program& program, unsigned worker, unsigned to, Peer& peer);
/// At rest: what one side may still send, and what the other one holds of it or has not given back yet, is what was granted.
std::string check_credits(const Peer& from, const Peer& to);
/// What an exported word holds at first, of 4 or 8 bytes.
uint64_t first_word(const Program& program, unsigned worker, unsigned memory, unsigned word, bool narrow);

}  // namespace thalweg::model
