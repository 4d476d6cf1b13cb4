# SPDX-License-Identifier: Apache-2.0
"""NCCL's captured collectives of float32 as thalweg-gpu-collectives measures them, NVLink multicast off.

100 or 20 in a graph, whichever is faster (of more than 1 MiB: 20), launched three times.

usage: nccl_collectives.py [RANKS]
       nccl_collectives.py --table FOLDER   both results, as run.sh leaves them, side by side
"""

import json
import os
import pathlib
import sys
import time

LAUNCHES, TIMES = 3, 12


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
    for _ in range(5):
        call(kind, send, recv, size)
    torch.cuda.synchronize()
    return min(replayed(kind, send, recv, size, in_graph) for in_graph in ((100, 20) if nbytes <= 1 << 20 else (20,)))


def replayed(kind, send, recv, size, in_graph):
    import torch
    import torch.distributed as dist

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(in_graph):
            call(kind, send, recv, size)
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


def work(rank, size):
    import torch
    import torch.distributed as dist

    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", NCCL_NVLS_ENABLE="0")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=size)
    version = ".".join(map(str, torch.cuda.nccl.version()))
    for kind in ("allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast"):
        for nbytes in (8, 4096, *(1 << k for k in range(14, 29, 2))):
            if nbytes < 64 and kind not in ("allreduce", "broadcast"):
                continue
            us = timed(kind, nbytes, size)
            if rank == 0:
                print(
                    json.dumps({"collective": kind, "nccl": version, "ranks": size, "bytes": nbytes, "us": round(us, 2)}),
                    flush=True,
                )
    os._exit(0)


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")] if path.exists() else []


def table(folder):
    nccl = {(one["collective"], one["bytes"]): one["us"] for one in lines_of(folder / "nccl-collectives.jsonl")}
    ours = {}
    for one in lines_of(folder / "collectives.jsonl"):
        ours.setdefault((one["collective"], one["bytes"]), {})[one["algorithm"]] = one["us"]
    print(f"{'':14} {'bytes':>10} {'NCCL us':>10} {'chosen us':>10} {'ratio':>6} {'ll us':>10} {'simple us':>10}")
    for (kind, nbytes), by in ours.items():
        peer = nccl.get((kind, nbytes))
        ratio = f"{by['chosen'] / peer:6.2f}" if peer else "      "
        cells = [f"{one:10.2f}" if one is not None else " " * 10 for one in (peer, by.get("chosen"))]
        rest = [f"{one:10.2f}" if one is not None else " " * 10 for one in (by.get("ll"), by.get("simple"))]
        print(f"{kind:14} {nbytes:10} {' '.join(cells)} {ratio} {' '.join(rest)}")


def main():
    if sys.argv[1:2] == ["--table"]:
        return table(pathlib.Path(sys.argv[2]))
    import torch.multiprocessing as mp

    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    mp.spawn(work, args=(ranks,), nprocs=ranks)


if __name__ == "__main__":
    main()
