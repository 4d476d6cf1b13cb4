// SPDX-License-Identifier: Apache-2.0
// Who moves which part of a step.
#pragma once
#include "thalweg/device/side.hpp"

namespace thalweg::device {

/// How what a step moves is divided: item k, of `item` packed bytes, is of sharer (k + the items of earlier steps) modulo `all`, so that
/// many small steps are under way at once. A step without bytes has a sharer, too. Sharers are warps, `warps` of a block; all: powers of two.
struct ItemShare {
  u32 rank, all, item, warps;

  THALWEG_DEVICE u64 first(const Step& step) const { return u64{(rank - step.recv_buffer) & (all - 1)} * item; }
  THALWEG_DEVICE bool has(const Step& step) const {
    const u64 at = first(step);
    return at < step.bytes || at == 0;
  }
  THALWEG_DEVICE u32 sharers(const Step& step) const {
    const u64 beyond = u64{all - 1} * item;  // the last one's first byte
    return step.bytes > beyond ? all : step.bytes == 0 ? 1 : static_cast<u32>(divide(step.bytes - 1, item)) + 1;
  }
  /// Of the sharers, those of this one's block.
  THALWEG_DEVICE u32 sharers_in_block(const Step& step) const {
    const u32 count = sharers(step), begin = ((rank & ~(warps - 1)) - step.recv_buffer) & (all - 1), end = begin + warps;
    const u32 ahead = count <= begin ? 0 : count < end ? count - begin : warps;
    const u32 around = end <= all ? 0 : count < end - all ? count : end - all;  // the first ones are in the block of the last
    return ahead + around < warps ? ahead + around : warps;
  }
  /// Blocks that have sharers.
  THALWEG_DEVICE u32 blocks(const Step& step) const {
    const u32 first = step.recv_buffer & (all - 1), last = first + sharers(step) - 1;
    const u32 spanned = last / warps - first / warps + 1;
    return spanned < all / warps ? spanned : all / warps;
  }
};

}  // namespace thalweg::device
