# SPDX-License-Identifier: Apache-2.0
"""False identities of a holder of the key, over tcp."""

import struct

import pytest
import wire

VICTIM = """
context = tw.Context()
worker = tw.Worker(context)
listener = worker.listen(hear()["at"])
say(address=worker.address.hex(), port=listener.port)
"""
SENDS = """
import ctypes
endpoint = listener.accept(timeout=20)
kept = bytearray(b"k" * 8192)
say(where=ctypes.addressof(ctypes.c_char.from_buffer(kept)))
request = endpoint.isend(b"s" * (1 << 20), tag=7)
serve(worker)
say(kept=kept == b"k" * 8192)
"""
UNSUPPORTED = -103
CTS = struct.Struct("<6Q")


def start(victim, code, at):
    a = victim(VICTIM + code)
    a.say(at=at)
    said = a.hear()
    return a, wire.Address.parse(bytes.fromhex(said["address"])), said["port"]


@pytest.mark.parametrize("lie", ["nothing", "its process"])
def test_over_tcp_no_address_of_the_victims_is_touched(victim, key, lie):
    """The peer says that it is the victim's own process, and asks for the payload to be stored at an address."""
    a, address, port = start(victim, SENDS, "127.0.0.1:0")
    me = wire.Peer()
    if lie != "nothing":
        me.host, me.incarnation = address.host, address.incarnation
    where = ("127.0.0.1", port)
    sock = wire.connect(where)
    wire.join(wire.dial(sock, key, wire.door_target(wire.LISTENER, where)), None, me)
    frames = wire.Frames(sock)
    kept = a.hear()["where"]
    announced = frames.expect(wire.TAGGED_RTS)
    op, length, source = struct.unpack_from("<3Q", announced.body)
    assert length == 1 << 20
    assert source == 0, "an address of the victim's went over tcp"
    frames.send(wire.CTS, a=op, body=CTS.pack(4711, 0, 4096, kept, 0, 0))
    answer = frames.expect(wire.FIN)
    assert (answer.a, answer.b) == (4711, UNSUPPORTED & 0xFFFFFFFFFFFFFFFF)
    a.say()
    assert a.hear()["kept"]
    a.end()
