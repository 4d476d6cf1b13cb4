# SPDX-License-Identifier: Apache-2.0
"""NCCL's captured collectives of float32 as thalweg-gpu-collectives measures them, NVLink multicast off.

100 or 20 in a graph, whichever is faster (of more than 1 MiB: 20, than 256 MiB: 5), launched three times.

usage: nccl_collectives.py [RANKS]
       nccl_collectives.py --table FOLDER            both results, as run.sh leaves them, side by side
       nccl_collectives.py --dispatch [RANKS]        thalweg-gpu-dispatch's: 10 in a graph, counts that the host knows
       nccl_collectives.py --dispatch-table FOLDER
"""

import json
import os
import pathlib
import sys
import time

LAUNCHES, TIMES = 3, 12
EXPERTS, TOP, ROW = 256, 8, 7168
MASK = (1 << 64) - 1


def call(kind, send, recv, size):
    import torch.distributed as dist

    if kind == "allreduce":
        dist.all_reduce(send)
    elif kind == "allgather":
        dist.all_gather_into_tensor(recv, send[: send.numel() // size])
    elif kind == "reduce_scatter":
        dist.reduce_scatter_tensor(recv[: recv.numel() // size], send)
    elif kind == "alltoall":
        dist.all_to_all_single(recv, send)
    else:
        dist.broadcast(send, 0)


def timed(kind, nbytes, size):
    import torch

    send = torch.ones(nbytes // 4, device="cuda")
    recv = torch.zeros_like(send)

    def once():
        call(kind, send, recv, size)

    for _ in range(5):
        once()
    torch.cuda.synchronize()
    graphs = (100, 20) if nbytes <= 1 << 20 else (20,) if nbytes <= 1 << 28 else (5,)
    return min(replayed(once, in_graph) for in_graph in graphs)


def replayed(once, in_graph):
    import torch
    import torch.distributed as dist

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(in_graph):
            once()
    times = []
    for k in range(-2, TIMES):
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(LAUNCHES):
            graph.replay()
        torch.cuda.synchronize()
        if k >= 0:
            times.append((time.perf_counter() - begin) * 1e6 / (in_graph * LAUNCHES))
    most = torch.tensor(sorted(times), device="cuda")
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return most[len(times) // 2].item()


def join(rank, size):
    """The version of NCCL."""
    import torch
    import torch.distributed as dist

    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", NCCL_NVLS_ENABLE="0")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=size)
    return ".".join(map(str, torch.cuda.nccl.version()))


def work(rank, size):
    version = join(rank, size)
    for kind in ("allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast"):
        for nbytes in (8, 4096, *(1 << k for k in range(14, 31, 2))):
            if nbytes < 64 and kind not in ("allreduce", "broadcast"):
                continue
            if nbytes > 1 << 28 and kind not in ("allreduce", "allgather"):
                continue
            us = timed(kind, nbytes, size)
            if rank == 0:
                print(
                    json.dumps({"collective": kind, "nccl": version, "ranks": size, "bytes": nbytes, "us": round(us, 2)}),
                    flush=True,
                )
    os._exit(0)


def mixed(x):
    """As in dispatch.cpp."""
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def routed(tokens, size):
    """Rows of each rank to each: a token once to each rank that has one of its experts."""
    counts = [[0] * size for _ in range(size)]
    for rank in range(size):
        for token in range(rank * tokens, (rank + 1) * tokens):
            drawn, i = set(), 0
            while len(drawn) < TOP:
                i += 1
                drawn.add(mixed(token * 1024 + i) % EXPERTS)
            for to in {expert * size // EXPERTS for expert in drawn}:
                counts[rank][to] += 1
    return counts


def work_dispatch(rank, size):
    import torch
    import torch.distributed as dist

    version = join(rank, size)
    for tokens in (128, 4096):
        counts = routed(tokens, size)
        out, back = counts[rank], [counts[other][rank] for other in range(size)]
        for kind, sends, receives in (("dispatch", out, back), ("combine", back, out)):
            send = torch.ones(sum(sends), ROW, dtype=torch.bfloat16, device="cuda")
            recv = torch.zeros(sum(receives), ROW, dtype=torch.bfloat16, device="cuda")

            def once(recv=recv, send=send, receives=receives, sends=sends):
                dist.all_to_all_single(recv, send, receives, sends)

            for _ in range(5):
                once()
            torch.cuda.synchronize()
            us = replayed(once, 10)
            nbytes = sum(map(sum, counts)) * ROW * 2 // size
            line = {"collective": kind, "nccl": version, "tokens": tokens, "ranks": size, "bytes": nbytes, "us": round(us, 2)}
            if rank == 0:
                print(json.dumps(line), flush=True)
    os._exit(0)


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")] if path.exists() else []


def table(folder):
    nccl = {(one["collective"], one["bytes"]): one["us"] for one in lines_of(folder / "nccl-collectives.jsonl")}
    ours = {}
    for one in lines_of(folder / "collectives.jsonl"):
        ours.setdefault((one["collective"], one["bytes"]), {})[one["algorithm"]] = one["us"]
    names = ("NCCL us", "chosen us", "ratio", "ll us", "ll128 us", "simple us", "phases us", "windows us", "slots us")
    print(f"{'':14} {'bytes':>10}", *(f"{name:>{6 if name == 'ratio' else 10}}" for name in names))
    for (kind, nbytes), by in ours.items():
        peer = nccl.get((kind, nbytes))
        ratio = f"{by['chosen'] / peer:6.2f}" if peer else "      "
        cells = [f"{one:10.2f}" if one is not None else " " * 10 for one in (peer, by.get("chosen"))]
        rest = [
            f"{one:10.2f}" if one is not None else " " * 10
            for one in (by.get(name) for name in ("ll", "ll128", "simple", "two_phases", "symmetric", "symmetric_simple"))
        ]
        print(f"{kind:14} {nbytes:10} {' '.join(cells)} {ratio} {' '.join(rest)}")


def dispatch_table(folder):
    nccl = {(one["collective"], one["tokens"], one["bytes"]): one["us"] for one in lines_of(folder / "nccl-dispatch.jsonl")}
    print(f"{'':10} {'tokens':>7} {'bytes':>11} {'NCCL us':>10} {'us':>10} {'ratio':>6} {'GB/s':>7}  (GB/s: own rows too)")
    for one in lines_of(folder / "dispatch.jsonl"):
        peer = nccl.get((one["collective"], one["tokens"], one["bytes"]))
        theirs = f"{peer:10.2f}" if peer else " " * 10
        ratio = f"{one['us'] / peer:6.2f}" if peer else " " * 6
        speed = one["bytes"] / one["us"] / 1e3
        print(f"{one['collective']:10} {one['tokens']:7} {one['bytes']:11} {theirs} {one['us']:10.2f} {ratio} {speed:7.1f}")


def main():
    tables = {"--table": table, "--dispatch-table": dispatch_table}
    if sys.argv[1:2] and sys.argv[1] in tables:
        return tables[sys.argv[1]](pathlib.Path(sys.argv[2]))
    import torch.multiprocessing as mp

    dispatch = sys.argv[1:2] == ["--dispatch"]
    given = sys.argv[2:] if dispatch else sys.argv[1:]
    ranks = int(given[0]) if given else 2
    mp.spawn(work_dispatch if dispatch else work, args=(ranks,), nprocs=ranks)


if __name__ == "__main__":
    main()
