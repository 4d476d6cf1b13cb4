# SPDX-License-Identifier: Apache-2.0
"""What benchmarks/cpu/late_signal.cpp measures, in Python: how late Signal.wait ends when the signal comes late.

usage: late_signal.py [ROUNDS]     prints signal_wait,DELAY,microseconds from the put to the end of the wait,us: medians
"""

import statistics
import struct
import sys
import time

import latency
import thalweg

DELAYS = (0, 50, 200, 1000, 5000)  # us


def main():
    """The first process waits, the second one puts."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    rank, pipe, _ = latency.start()
    worker = thalweg.Worker(thalweg.Context())
    endpoint = worker.connect(latency.exchange(pipe, worker.address), transport="shm")
    endpoint.wait(10)
    memory, signal = thalweg.Memory.allocate(worker.context, 64), thalweg.Signal(worker)
    remote = thalweg.RemoteMemory(endpoint, latency.exchange(pipe, memory.export()))
    far = thalweg.RemoteSignal(endpoint, latency.exchange(pipe, signal.export()))
    view, now, step = memoryview(memory), time.monotonic_ns, 0
    for delay in DELAYS:
        late = []
        for _ in range(rounds):
            step += 1
            if rank == 0:
                far.post(step)
                signal.wait(step, timeout=20)
                late.append((now() - struct.unpack_from("q", view)[0]) / 1e3)
            else:
                signal.wait(step, timeout=20)
                until = now() + delay * 1000
                while now() < until:
                    pass
                endpoint.put(struct.pack("q", now()), remote, signal=far, value=step)
        if rank == 0:
            print(f"signal_wait,{delay},{statistics.median(late):.3f},us", flush=True)
    latency.exchange(pipe, b"end")
    view.release()


if __name__ == "__main__":
    main()
