# SPDX-License-Identifier: Apache-2.0
"""UCXX's asyncio interface, compared: a listener, tagged messages, active messages, objects, closing."""

from __future__ import annotations

import asyncio

import numpy
import ucxx

SIZES = (1, 1000, 65_537, 5_000_000)


async def main() -> None:
    served = asyncio.Event()

    async def serve(endpoint: ucxx.core.Endpoint) -> None:
        for size in SIZES:
            buffer = numpy.empty(size, "u1")
            await endpoint.recv(buffer)
            await endpoint.send(buffer[::-1].copy())
        for _ in SIZES:
            await endpoint.am_send(await endpoint.am_recv())
        await endpoint.close()
        served.set()

    listener = ucxx.create_listener(serve)
    endpoint = await ucxx.create_endpoint(ucxx.get_address(), listener.port)
    for size in SIZES:
        out, back = numpy.random.randint(0, 256, size).astype("u1"), numpy.empty(size, "u1")
        await endpoint.send(out)
        await endpoint.recv(back)
        assert (back == out[::-1]).all()
    print("ucxx_all: messages: right", flush=True)
    for size in SIZES:
        out = numpy.random.randint(0, 256, size).astype("u1")
        await endpoint.am_send(out)
        assert (numpy.asarray(await endpoint.am_recv()).view("u1") == out).all()
    print("ucxx_all: active messages: right", flush=True)
    await served.wait()
    await endpoint.close()
    listener.close()
    print("ucxx_all: closing: right", flush=True)


asyncio.run(main())
