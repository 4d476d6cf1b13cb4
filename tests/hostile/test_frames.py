# SPDX-License-Identifier: Apache-2.0
"""Lies in frames, by a holder of the key over tcp: lengths, phases, operations never named to it, keys that grant less."""

import socket
import struct

import pytest
import wire

VICTIM = """
context = tw.Context(transports="self,tcp")
worker = tw.Worker(context)
say(address=worker.address.hex())
"""
UNKNOWN = 60
FAILED = (1 << 64) - 601  # a status, as frames carry it


def u64(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def door(victim):
    return wire.Address.parse(bytes.fromhex(victim.hear()["address"]))


def meet(address, key):
    """A link to the victim, and our identity there."""
    sock = wire.connect(("127.0.0.1", address.port))
    wire.join(wire.dial(sock, key, wire.worker_target(address)), address)
    return wire.Frames(sock)


def guesses():
    """Request numbers as a worker's first ones are: pool 0, a slot of the first ones, an odd generation."""
    return [slot << 28 | generation for slot in range(24) for generation in range(1, 24, 2)]


BAD = {
    "an unknown frame": dict(kind=UNKNOWN),
    "a synchronous message without its operation": dict(kind=wire.TAGGED, flags=wire.SYNC, body=b"abc"),
    "a short first part": dict(kind=wire.TAGGED_FIRST, body=b"abc"),
    "a first part of 2^60 bytes": dict(kind=wire.TAGGED_FIRST, body=u64(1, 1 << 60)),
    "a first part longer than all of it": dict(kind=wire.TAGGED_FIRST, body=u64(1, 10) + bytes(11)),
    "a part of no message": dict(kind=wire.DATA, a=1, flags=wire.MORE, body=b"abcd"),
    "a short RTS of a group": dict(kind=wire.TAGGED_RTS, flags=wire.GROUP, body=b"abc"),
    "a synchronous message of a group without its operation": dict(kind=wire.TAGGED, flags=wire.SYNC | wire.GROUP, body=b"abc"),
    "a short RTS": dict(kind=wire.TAGGED_RTS, body=b"abc"),
    "an RTS of more than any buffer": dict(kind=wire.TAGGED_RTS, body=u64(1, (1 << 64) - 8, 0, 0, 0)),
    "an active message RTS of more than any buffer": dict(kind=wire.AM_RTS, body=u64(1, (1 << 63) + 1, 0, 0, 0)),
    "a claim of a receive that was not offered": dict(kind=wire.TAGGED_RTS, id=1, body=u64(1, 10, 0, 0, 0)),
    "a header longer than its message": dict(kind=wire.AM, a=5, body=b"abcd"),
    "a long header without its length": dict(kind=wire.AM_LONG, a=300, body=b"abcd"),
    "a request for a header that needs none": dict(kind=wire.AM_ASK, a=1, b=200),
    "a notification without its fields": dict(kind=wire.NOTICE, id=0xFFFF, body=bytes(15)),
    "a notification with a signal of no kind": dict(kind=wire.NOTICE, id=0xFFFF, body=u64(1, 7)),
    "more credit than there is": dict(kind=wire.CREDIT, a=(1 << 64) - 1),
    "a short cts": dict(kind=wire.CTS, a=1, body=b"abc"),
    "a put without its operation": dict(kind=wire.PUT_FRAME, flags=wire.ACK, body=b"abc"),
    "a put of a layout that is none": dict(kind=wire.PUT_LAYOUT, body=bytes(8) + b"\7" * 20),
    "an atomic of 3 bytes": dict(kind=wire.ATOMIC, body=u64(1, 2, 3) + b"\0\3" + bytes(6)),
    "blocks past their frame": dict(kind=wire.PUT_BLOCKS, a=2, body=u64(1, 0, 100, 1, 0, (1 << 64) - 51) + bytes(49)),
    "blocks without end": dict(kind=wire.PUT_BLOCKS, a=((1 << 64) - 1) // 3),
    "a request for blocks that fill no frame": dict(kind=wire.GET_BLOCKS, body=u64(1, 0, 1 << 40)),
}


def test_frames_with_wrong_lengths_close_their_link_only(victim, key):
    b = victim(VICTIM + "buffer = bytearray(16)\nend = worker.recv(buffer, 77)\nsay(got=bytes(buffer[:end.length]).decode())\n")
    address = door(b)
    honest = meet(address, key)
    for what, frame in BAD.items():
        frames = meet(address, key)
        frames.send(**frame)
        assert frames.expect(wire.ERROR).body, what
        assert wire.closed(frames.sock), what
    honest.send(wire.TAGGED, a=77, body=b"still here")
    assert b.hear()["got"] == "still here"
    b.end()


def test_who_sends_to_one_that_has_gone_is_told_so(victim, key):
    """The peer resets its connection, and the victim's next call is a send. Its text is about that, not of an earlier error."""
    b = victim(
        VICTIM
        + """
peer = worker.recv(bytearray(1), 1).endpoint
say(**attempt(worker.recv, bytearray(1), 1 << 40, timeout=0.001))
hear()
say(**attempt(peer.send, b"x" * 100, 3))
"""
    )
    frames = meet(door(b), key)
    frames.send(wire.TAGGED, a=1, body=b"!")
    assert "error" in b.hear()
    frames.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    frames.sock.close()
    b.say()
    said = b.hear()
    assert said.get("error") == "PeerLost" and "connection" in said["text"], said
    b.end()


def test_an_end_with_a_guessed_number_ends_nothing(victim, key):
    """A message arrives in two parts, and between them everything is ended that a guess could name."""
    b = victim(
        VICTIM
        + """
first, second = bytearray(2000), bytearray(2000)
one, two = worker.irecv(first, 1), worker.irecv(second, 2)
end = one.wait(20)
say(length=end.length, right=bytes(first) == b"a" * 100 + b"b" * 1900)
first[:] = b"-" * 2000
hear()
say(done=two.done(), kept=bytes(first) == b"-" * 2000)
say(length=two.wait(20).length)
"""
    )
    frames = meet(door(b), key)
    frames.send(wire.TAGGED_FIRST, a=1, body=u64(9, 2000) + b"a" * 100)
    for op in guesses():
        for flags in (0, wire.LAST):
            frames.send(wire.FIN, a=op, b=FAILED, flags=flags)
    frames.send(wire.DATA, a=9, b=100, flags=wire.MORE, body=b"b" * 1900)
    assert b.hear() == {"length": 2000, "right": True}
    b.say()
    assert b.hear() == {"done": False, "kept": True}
    frames.send(wire.TAGGED, a=2, body=b"xyz")
    assert b.hear() == {"length": 3}
    b.end()


@pytest.mark.parametrize("kind", [wire.MATCHED, wire.FIN, wire.CTS])
def test_an_answer_with_a_guessed_number_completes_no_send(victim, key, kind):
    """A send that waits for its receiver: only the name that the RTS carried is one."""
    b = victim(
        VICTIM
        + """
buffer = bytearray(1)
peer = worker.recv(buffer, 1).endpoint
kept = bytearray(b"s" * (1 << 20))
request = peer.isend(kept, tag=5)
worker.recv(buffer, 2)
say(done=request.done())
request.wait(20)
say(done=request.done())
"""
    )
    frames = meet(door(b), key)
    frames.send(wire.TAGGED, a=1, body=b"!")
    announced = frames.expect(wire.TAGGED_RTS)
    op, length = struct.unpack_from("<2Q", announced.body)
    assert length == 1 << 20 and op not in guesses()
    for guess in guesses():
        frames.send(kind, a=guess, body=u64(1, 0, 100, 0, 0, 0) if kind == wire.CTS else b"")
    frames.send(wire.TAGGED, a=2, body=b"!")
    assert b.hear() == {"done": False}
    frames.send(wire.CTS, a=op, flags=wire.LAST, body=u64(7, 0, length, 0, 0, 0))
    got = b""
    while len(got) < length:
        data = frames.expect(wire.DATA)
        assert (data.a, data.b) == (7, len(got))
        got += data.body
    assert got == b"s" * length
    assert b.hear() == {"done": True}
    b.end()


def test_a_match_where_none_is_waited_for_closes_the_link(victim, key):
    """The name is right, the phase is not: the send's RTS is there and it waits for cts or fin."""
    b = victim(
        VICTIM
        + """
buffer = bytearray(1)
peer = worker.recv(buffer, 1).endpoint
request = peer.isend(bytearray(1 << 20), tag=5)
say(**attempt(lambda: request.wait(20)))
"""
    )
    frames = meet(door(b), key)
    frames.send(wire.TAGGED, a=1, body=b"!")
    (op,) = struct.unpack_from("<Q", frames.expect(wire.TAGGED_RTS).body)
    frames.send(wire.MATCHED, a=op)
    assert b"match" in frames.expect(wire.ERROR).body
    assert "error" in b.hear()
    b.end()


def test_a_grant_holds(victim, key):
    """Over tcp a key gives what it says and no more, until it is revoked."""
    b = victim(
        VICTIM
        + """
kept = bytearray(b"k" * 64)
memory = tw.Memory.register(context, kept)
say(key=memory.export(8, 16, access="r").hex())
worker.recv(bytearray(1), 1)
say(kept=bytes(kept) == b"k" * 64)
memory.release()
say(released=True)
worker.recv(bytearray(1), 2)
"""
    )
    frames = meet(door(b), key)
    (rkey,) = struct.unpack_from("<Q", bytes.fromhex(b.hear()["key"]), 32)

    def get(offset, length):
        frames.send(wire.GET_FRAME, a=rkey, b=offset, body=u64(3, length, 0, 0))
        while (frame := frames.receive()).kind not in (wire.DATA, wire.FIN):
            pass
        return frame.body if frame.kind == wire.DATA else struct.unpack("<q", u64(frame.b))[0]

    def put(name, offset, data):
        frames.send(wire.PUT_FRAME, a=name, b=offset, flags=wire.ACK | wire.FIRST, body=u64(4) + data)
        return struct.unpack("<q", u64(frames.expect(wire.FIN).b))[0]

    assert get(0, 16) == b"k" * 16
    assert get(1, 16) < 0 and get((1 << 64) - 8, 16) < 0
    assert put(rkey, 0, b"x") < 0 and put(rkey ^ 1, 0, b"x") < 0
    frames.send(wire.TAGGED, a=1, body=b"!")
    assert b.hear() == {"kept": True}
    assert b.hear() == {"released": True}
    assert get(0, 16) < 0
    frames.send(wire.TAGGED, a=2, body=b"!")
    b.end()
