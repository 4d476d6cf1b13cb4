# SPDX-License-Identifier: Apache-2.0
"""A process of the same user, connected over shm, that writes what it likes into the shared memory of its link. The link ends,
or what it says is nonsense that hurts it alone; the victim neither crashes nor hangs, and serves others."""

import random
import threading
import time

import pytest
import shm
import wire
from test_frames import BAD

VICTIM = """
context = tw.Context(transports="self,shm")
worker = tw.Worker(context)
say(address=worker.address.hex())
"""
MEETS = """
buffer = bytearray(64)
peer = worker.recv(buffer, 1).endpoint
say(met=True)
"""
ENDS = """
say(**attempt(worker.recv, buffer, 2, source=peer, timeout=20))
"""
SERVES = """
end = worker.recv(buffer, 77, timeout=30)
say(got=bytes(buffer[:end.length]).decode())
"""


@pytest.fixture
def start(victim, key, tmp_path):
    """Starts a victim; returns it and a function that makes links to it."""
    rings = []

    def go(code):
        b = victim(VICTIM + code, THALWEG_SOCKET_DIR=str(tmp_path))
        address = wire.Address.parse(bytes.fromhex(b.hear()["address"]))

        def link():
            rings.append(shm.Ring(key, address, str(tmp_path)))
            return rings[-1]

        return b, link

    yield go
    for each in rings:
        each.close()


def met(b, link):
    """A link that the victim knows."""
    ring = link()
    ring.send(wire.TAGGED, a=1, body=b"!")
    assert b.hear() == {"met": True}
    return ring


def serves(b, link):
    """Another peer is served."""
    link().send(wire.TAGGED, a=77, body=b"still here")
    assert b.hear() == {"got": "still here"}
    b.end()


@pytest.mark.parametrize("length", [5, 40, 41, 64, 4000])
def test_a_ring_by_hand(start, length):
    """That shm.py speaks the layout: more messages than a lap has slots, inline and in bulk."""
    count = 3 * shm.SLOTS
    b, link = start(f"""
buffer = bytearray({length})
right = 0
for i in range({count}):
    worker.recv(buffer, i, timeout=20)
    right += bytes(buffer) == bytes([i % 251]) * {length}
say(right=right)
""")
    ring = link()
    for i in range(count):
        while ring.room() < shm.SLOTS // 2 or ring.bulk_room() < 2 * shm.COPY_MAX:
            time.sleep(0)
        ring.send(wire.TAGGED, a=i, body=bytes([i % 251]) * length)
    assert b.hear() == {"right": count}
    b.end()


@pytest.mark.parametrize("length", [shm.COPY_MAX + 1, shm.BULK, 1 << 31, (1 << 32) - 1])
def test_a_length_beyond_the_ring_ends_the_link(start, length):
    b, link = start(MEETS + ENDS + SERVES)
    met(b, link).send(wire.TAGGED, a=2, length=length)
    said = b.hear()
    assert said.get("error") == "ProtocolError" and "longer than the shared ring" in said["text"], said
    serves(b, link)


@pytest.mark.parametrize("where", [shm.CONSUMED_SLOTS, shm.CONSUMED_BULK])
@pytest.mark.parametrize("claim", [1 << 20, 1 << 63, (1 << 64) - (1 << 20)])
def test_room_that_was_never_there_ends_the_link(start, where, claim):
    """The victim sends until it looks at what was given back."""
    b, link = start(
        MEETS
        + """
def send():
    for _ in range(1000):
        peer.send(bytes(4000), 3)
hear()
say(**attempt(send))
"""
        + SERVES
    )
    ring = met(b, link)
    ring.theirs[where // 8] = claim
    b.say()
    said = b.hear()
    assert said.get("error") == "ProtocolError" and "never had" in said["text"], said
    serves(b, link)


@pytest.mark.parametrize("what", list(BAD))
def test_frames_that_no_peer_may_send_end_the_link(start, what):
    b, link = start(MEETS + ENDS + SERVES)
    frame = dict(BAD[what])
    body = frame.get("body", b"")
    met(b, link).send(**frame | {"body": body})
    said = b.hear()
    assert said.get("error") == "ProtocolError", (what, said)
    serves(b, link)


@pytest.mark.parametrize("seed", range(4))
def test_nonsense_in_the_whole_ring(start, seed):
    """Slots of either lap, lengths, control words and bodies; a link for each attempt, because most end at the first frame."""
    b, link = start(MEETS + SERVES)
    met(b, link)
    draw = random.Random(seed)
    for _ in range(50):
        ring = link()
        slots = range(shm.SLOTS_AT // 8, shm.SLOTS_AT // 8 + 8 * draw.choice([1, 2, shm.SLOTS]))
        for at in (*slots, *draw.sample(range(shm.DIRECTION // 8), 100)):
            word = draw.getrandbits(64)
            if at in slots and at % 8 == 0 and draw.random() < 0.9:  # a known type, a length that fits, the first lap
                word = draw.randrange(400) | (0x40 | draw.randrange(64)) << 32 | draw.getrandbits(24) << 40 | shm.PARITY
            ring.mine[at] = word
        ring.ring()
    serves(b, link)


def test_words_that_change_while_they_are_read(start):
    """Good messages, whose lengths and bodies another thread rewrites all the time."""
    count = 3000
    b, link = start(
        MEETS
        + f"""
large = bytearray(20000)
def take():
    for _ in range({count}):
        worker.recv(large, 5, source=peer, timeout=20)
    return "all"
say(**attempt(take))
"""
        + SERVES
    )
    ring = met(b, link)
    stop = threading.Event()

    def rewrite():
        draw = random.Random(1)
        while not stop.is_set():
            ring.halves[shm.SLOTS_AT // 4 + draw.randrange(shm.SLOTS) * 16] = draw.choice([0, 1, 40, 41, 300, shm.COPY_MAX])
            ring.mine[shm.BULK_AT // 8 + draw.randrange(shm.BULK // 8)] = draw.getrandbits(64)

    thread = threading.Thread(target=rewrite)
    thread.start()
    try:
        for _ in range(count):
            while ring.room() < shm.SLOTS // 2 and not ring.ended():
                time.sleep(0)
            ring.send(wire.TAGGED, a=5, body=bytes(300))
    finally:
        stop.set()
        thread.join()
    said = b.hear()
    assert said == {"result": "all"} or said["error"] == "ProtocolError", said
    serves(b, link)


def offers_two(ring):
    ring.offer_ring()
    ring.offer_ring()


RING_LIES = {
    "of another size": lambda ring: ring.offer_ring(shm.DEEP + 4096),
    "wider": lambda ring: ring.offer_ring(shm.WIDE + 4096),
    "of another size than it says": lambda ring: ring.offer_ring(shm.WIDE, said=shm.DEEP),
    "tiny": lambda ring: ring.offer_ring(4096),
    "without memory": lambda ring: ring.offer_ring(with_memory=False),
    "one after the other": offers_two,
    "taken, never offered": lambda ring: ring.session.send(shm.RING_TAKEN, bytes(8)),
    "turned to, never offered": lambda ring: ring.send(wire.TAGGED, length=shm.TURN),
}


@pytest.mark.parametrize("what", list(RING_LIES))
def test_deep_rings_that_no_peer_may_have_end_the_link(start, what):
    b, link = start(MEETS + ENDS + SERVES)
    RING_LIES[what](met(b, link))
    said = b.hear()
    assert said.get("error") == "ProtocolError", (what, said)
    serves(b, link)


@pytest.mark.parametrize("size", [shm.DEEP, shm.WIDE])
def test_turns_without_end_are_harmless(start, size):
    """An offered ring is turned to, back, and to nothing: the third turn ends the link. Bodies in it are nonsense meanwhile."""
    b, link = start(MEETS + ENDS + SERVES)
    ring = met(b, link)
    ring.offer_ring(size)
    kind, _, _ = ring.session.receive()
    assert kind == shm.RING_TAKEN
    ring.send(wire.TAGGED, length=shm.TURN)
    ring.send(wire.TAGGED, length=shm.TURN)
    ring.send(wire.TAGGED, a=99, body=b"in the first one again")
    ring.send(wire.TAGGED, length=shm.TURN)
    said = b.hear()
    assert said.get("error") == "ProtocolError", said
    serves(b, link)


def test_a_copy_that_never_ends_holds_nobody_up(start):
    """The word that says "I am copying from your memory", left odd for ever: a live peer is waited for, within limits."""
    b, link = start(MEETS + SERVES)
    ring = met(b, link)
    ring.mine[shm.COPYING // 8] = 1
    ring.theirs[shm.COPYING // 8] = 1
    serves(b, link)


def test_copies_that_never_end_hold_nobody_up_at_the_ends_of_their_links(start):
    """They are not waited for once the peer has broken the rules, or has said goodbye: 5 s at each link would go by."""
    b, link = start(MEETS + SERVES)
    rings = [met(b, link), link(), link(), link()]
    begin = time.monotonic()
    for ring, kind in zip(rings, (*[BAD["an unknown frame"]["kind"]] * 3, wire.GOODBYE), strict=True):
        ring.mine[shm.COPYING // 8] = 1
        ring.send(kind)
    serves(b, link)
    assert time.monotonic() - begin < 4


def test_a_peer_that_says_that_a_sleeper_is_awake_delays_others_a_little(start):
    """All peers may write to the word that says that the worker sleeps."""
    b, link = start(
        MEETS
        + """
request = worker.irecv(buffer, 5)
say(waits=True)
while not request.done():
    worker.wait(25)
say(got=request.done())
"""
        + SERVES
    )
    hostile = met(b, link)
    honest = link()
    honest.wakes = False
    assert b.hear() == {"waits": True}

    def deny(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            hostile.deny_sleep()
            time.sleep(0.001)

    deny(0.5)
    denying = threading.Thread(target=deny, args=(3,))
    denying.start()
    begin = time.monotonic()
    honest.send(wire.TAGGED, a=5, body=b"?")
    assert b.hear() == {"got": True}
    assert time.monotonic() - begin < 5
    denying.join()
    serves(b, link)
