// SPDX-License-Identifier: Apache-2.0
// Asymmetric barriers: the frequent side pays nothing, the rare side asks the kernel to run a full barrier on every core
// that runs a registered process. Used by the sleeper of a ring (rare) against its writer (frequent), across processes.
#pragma once

namespace thalweg::impl::membarrier {

/// Registers this process as one whose cores take part (MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED); false when the kernel or
/// a sandbox does not allow it. Cached; again after fork. Both sides must have registered before either relies on it.
bool available();

/// A full barrier on this core and on every core that runs a registered process. Falls back to a fence of this core only
/// when not available(): then the other side needs a full barrier of its own.
void global();

}  // namespace thalweg::impl::membarrier
