# SPDX-License-Identifier: Apache-2.0
"""How queues of devices wait for the peers of plans: in the plans' kernels, or in a kernel of one block ahead of them."""

import os

import pytest
import thalweg as tw
from peers import connected

BYTES, ROUNDS, PLACE = 5003, 4, "emulated:0"


def take(endpoint, pipe, waits):
    """The other process: receives by a plan on a queue that waits so, and says what came and how it waited."""
    context = endpoint.worker.context
    target, copied = tw.Memory.allocate(context, BYTES, place=PLACE), bytearray(BYTES)
    with tw.Queue(context, PLACE, waits=waits) as queue, tw.Plan(context, place=PLACE) as plan:
        plan.recv(endpoint, target, 5)
        plan.prepare(20)
        pipe.send("prepared")
        for _ in range(ROUNDS):
            tw.copy(context, target, b"\xa5" * BYTES)
            plan.trigger(queue)
            queue.synchronize()
            tw.copy(context, copied, target)
            pipe.send(bytes(copied))
        pipe.send(plan.explain())
        pipe.recv()


@pytest.mark.parametrize("waits", ["auto", "kernel", "ahead"])
def test_a_message_arrives_however_its_queue_waits(waits):
    with connected(take, waits, transport="shm") as (endpoint, pipe):
        context = endpoint.worker.context
        source = tw.Memory.allocate(context, BYTES, place=PLACE)
        with tw.Queue(context, PLACE) as queue, tw.Plan(context, place=PLACE) as plan:
            plan.send(endpoint, source, 5)
            plan.prepare(20)
            assert pipe.recv() == "prepared"
            for _ in range(ROUNDS):
                payload = os.urandom(BYTES)
                tw.copy(context, source, payload)
                plan.trigger(queue)
                queue.synchronize()
                assert pipe.recv() == payload
            assert ("so did the last run" in pipe.recv()) == (waits == "ahead")
        pipe.send("end")


def test_an_unknown_way_to_wait_is_refused(context):
    with pytest.raises(tw.InvalidError, match="waits is"):
        tw.Queue(context, PLACE, waits="soon")
