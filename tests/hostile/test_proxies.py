# SPDX-License-Identifier: Apache-2.0
"""A holder of the key elsewhere speaks to the proxy of a victim's plans (src/plans/control_wire.hpp), and makes it hold what it
can."""

import struct

import pytest
import wire

VICTIM = """
context = tw.Context(transports="self,tcp")
worker = tw.Worker(context)
say(address=worker.address.hex())
serve(worker)
"""
HELLO, CONTROL = 4096, 1  # ids of active messages
VERSION = 6  # of what proxies say
OPEN, REFUSED = 1, 9
LIMIT = -204
EARLY = 8192  # channels of a peer that no plan has named
FIRST_CREDIT, OVERHEAD = 64 << 10, 256
LONGEST = 80 << 10
_CONTROL = struct.Struct("<4B4QII16sQQHQI")


def open_channel(tag):
    """What says that the sending end of a channel is there."""
    fields = (VERSION, OPEN, 1, 0, 1, 2, tag, 0, 7, 0, bytes(16), 0, 0, 0, 0, 0)
    return _CONTROL.pack(*fields) + bytes(2 + 2 + 4)


class Proxy:
    """A link to the victim's proxy, which keeps the credit it has and gives none back."""

    def __init__(self, key, address):
        self.sock = wire.connect(("127.0.0.1", address.port))
        wire.join(wire.dial(self.sock, key, wire.worker_target(address)), address)
        self.frames = wire.Frames(self.sock)
        self.credit = FIRST_CREDIT
        self.refused = []  # tags

    def listen(self):
        """Takes a frame."""
        frame = self.frames.receive()
        if frame.kind == wire.CREDIT and frame.id == 0:
            self.credit += frame.a
        if frame.kind == wire.AM and frame.id == CONTROL and frame.body[1] == REFUSED:
            fields = _CONTROL.unpack_from(frame.body)
            assert fields[15] == LIMIT & 0xFFFFFFFF
            self.refused.append(fields[6])
        return frame

    def affords(self, message, seconds=wire.SECONDS):
        """Waits for the credit that a message costs. False: it does not come."""
        self.sock.settimeout(seconds)
        try:
            while self.credit < len(message) + OVERHEAD:
                self.listen()
        except TimeoutError:
            return False
        return True

    def say(self, message):
        self.credit -= len(message) + OVERHEAD
        self.frames.send(wire.AM, id=CONTROL, body=message)


@pytest.fixture
def proxy(victim, key):
    """A link to the proxy of a victim, whose worker sends its address on request."""
    b = victim(VICTIM)
    address = wire.Address.parse(bytes.fromhex(b.hear()["address"]))
    sock = wire.connect(("127.0.0.1", address.port))
    wire.join(wire.dial(sock, key, wire.worker_target(address)), address)
    frames = wire.Frames(sock)
    hello = struct.pack("<Q", 4711) + wire.Address(1, 2).pack()
    frames.send(wire.AM, id=HELLO, a=len(hello), body=hello)
    answer = frames.expect(wire.AM)
    assert answer.id == HELLO
    made = Proxy(key, wire.Address.parse(answer.body[8:]))
    yield made
    made.sock.close()
    sock.close()
    b.say()
    b.end()


def test_channels_that_nobody_names_are_refused_above_a_limit(proxy):
    for tag in range(EARLY + 3):
        message = open_channel(tag)
        assert proxy.affords(message)
        proxy.say(message)
    while len(proxy.refused) < 3:
        proxy.listen()
    assert proxy.refused == [EARLY, EARLY + 1, EARLY + 2]


def test_what_waits_behind_a_message_that_does_not_come_waits_at_the_peer(proxy):
    """An RTS without its payload: what follows is taken later, so there is no credit for more and more of it."""
    rts = struct.pack("<5Q", 815, LONGEST, 0, 0, 0)
    proxy.frames.send(wire.AM_RTS, id=CONTROL, body=rts)
    while (cts := proxy.listen()).kind != wire.CTS:
        pass
    said = 0
    while proxy.affords(open_channel(said), 3):
        proxy.say(open_channel(said))
        said += 1
        assert said < 6 * EARLY, "it takes and takes"
    assert said > 100
    op, offset, length = struct.unpack_from("<3Q", cts.body)
    assert (offset, length) == (0, LONGEST)
    for at in range(0, LONGEST, 16 << 10):
        proxy.frames.send(wire.DATA, a=op, b=at, body=bytes(16 << 10))  # of no version that there is
    for tag in range(said, EARLY + 1):  # it goes on, and nothing was lost
        message = open_channel(tag)
        assert proxy.affords(message)
        proxy.say(message)
    while not proxy.refused:
        proxy.listen()
    assert proxy.refused == [EARLY]


def test_one_who_asks_and_lets_no_answer_come_is_left(proxy):
    """Every channel above the limit is answered, and no answer may be sent, because no credit is given back."""
    tag = 0
    with pytest.raises((wire.Refused, ConnectionError)):
        while tag < 300_000:
            message = open_channel(tag)
            assert proxy.affords(message)
            proxy.say(message)
            tag += 1
    assert tag > EARLY
