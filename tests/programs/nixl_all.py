# SPDX-License-Identifier: Apache-2.0
"""NIXL's UCX backend on host memory, compared: writes, reads, lists of pieces and notifications between two agents."""

from __future__ import annotations

import time

import numpy
from nixl_cu12 import nixl_agent, nixl_agent_config

SIZES = (64, 5000, 1 << 20, 16 << 20)


def wait(check, what: str) -> object:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if found := check():
            return found
    raise SystemExit(f"nixl_all: {what} did not come")


def pieces(memory: numpy.ndarray, count: int) -> list[tuple[int, int, int]]:
    step = memory.nbytes // count
    return [(memory.ctypes.data + i * step, step, 0) for i in range(count)]


here, there = (nixl_agent(name, nixl_agent_config(backends=["UCX"])) for name in ("here", "there"))
memories = {size: (numpy.random.randint(0, 256, size).astype("u1"), numpy.zeros(size, "u1")) for size in SIZES}
for mine, peers in memories.values():
    here.register_memory([(mine.ctypes.data, mine.nbytes, 0, "")], "DRAM")
    there.register_memory([(peers.ctypes.data, peers.nbytes, 0, "")], "DRAM")
here.add_remote_agent(there.get_agent_metadata())

for verb in ("WRITE", "READ"):
    for size, (mine, peers) in memories.items():
        for count in (1, 8):
            (mine if verb == "WRITE" else peers)[:] = numpy.random.randint(0, 256, size)
            sides = [here.get_xfer_descs(pieces(memory, count), "DRAM") for memory in (mine, peers)]
            told = f"{verb} {size} {count}".encode()
            transfer = here.initialize_xfer(verb, *sides, "there", told)
            state = here.transfer(transfer)
            wait(lambda state=state, transfer=transfer: state == "DONE" or here.check_xfer_state(transfer) == "DONE", "an end")
            assert wait(there.get_new_notifs, "a notification") == {"here": [told]}
            assert (mine == peers).all(), told
    print(f"nixl_all: {verb}: right", flush=True)
