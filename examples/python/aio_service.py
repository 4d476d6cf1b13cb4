# SPDX-License-Identifier: Apache-2.0
"""A small asyncio service: it sums arrays for several clients at once, each on a connection of its own."""

import asyncio
import multiprocessing
import os

import numpy as np
import thalweg as tw
from thalweg import aio

CLIENTS, REQUESTS = 4, 25


async def attend(endpoint):
    """One client, until it says None."""
    while (array := await endpoint.recv_object()) is not None:
        await endpoint.send_object(float(array.sum()))


async def service(pipe, key):
    async with aio.Worker(tw.Context(job_key=key)) as worker:
        with worker.listen("127.0.0.1:0") as listener:
            pipe.send(listener.port)
            clients = [asyncio.create_task(attend(await listener.accept())) for _ in range(CLIENTS)]
            await asyncio.gather(*clients)


async def client(worker, port, seed):
    endpoint = await worker.connect(f"127.0.0.1:{port}")
    random = np.random.default_rng(seed)
    for _ in range(REQUESTS):
        array = random.integers(0, 1000, random.integers(1, 50_000)).astype(np.float64)
        await endpoint.send_object(array)
        assert await endpoint.recv_object() == array.sum()
    await endpoint.send_object(None)
    await endpoint.close()


async def clients(port, key):
    async with aio.Worker(tw.Context(job_key=key)) as worker:
        await asyncio.gather(*(client(worker, port, seed) for seed in range(CLIENTS)))


def serve(pipe, key):
    asyncio.run(service(pipe, key))


if __name__ == "__main__":
    key = os.urandom(32)
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there, key), daemon=True)
    server.start()
    there.close()  # the server's: its end is then heard
    asyncio.run(asyncio.wait_for(clients(here.recv(), key), 60))
    server.join(20)
    assert server.exitcode == 0
    print(f"aio_service: {CLIENTS} clients, {REQUESTS} requests each, all sums right")
