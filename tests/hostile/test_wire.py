# SPDX-License-Identifier: Apache-2.0
"""That wire.py speaks the wire: a holder of the key that uses it is accepted and understood. And the defences against it."""

import socket

import pytest
import wire

WORKER = """
context = tw.Context(transports="self,tcp")
worker = tw.Worker(context)
say(address=worker.address.hex())
"""


def door(victim):
    address = wire.Address.parse(bytes.fromhex(victim.hear()["address"]))
    return address, ("127.0.0.1", address.port)


def test_a_link_by_hand(victim, key):
    b = victim(
        WORKER
        + """
buffer = bytearray(100)
end = worker.recv(buffer, 5)
say(got=bytes(buffer[:end.length]).decode())
end.endpoint.send(b"and back", 6)
serve(worker)
"""
    )
    address, where = door(b)
    sock = wire.connect(where)
    link = wire.join(wire.dial(sock, key, wire.worker_target(address)), address)
    assert (link.worker, link.transport) == (address.worker, "tcp")
    frames = wire.Frames(sock)
    frames.send(wire.TAGGED, a=5, body=b"by hand")
    assert b.hear()["got"] == "by hand"
    frame = frames.expect(wire.TAGGED)
    assert (frame.a, frame.body) == (6, b"and back")
    b.say()
    b.end()


def test_a_server_by_hand(victim, key):
    a = victim(
        WORKER
        + """
say(**attempt(lambda: worker.connect(bytes.fromhex(hear()["to"]), timeout=20).state))
"""
    )
    a.hear()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        me = wire.Address(12345, 678, port=listener.getsockname()[1])
        a.say(to=me.pack().hex())
        sock, _ = listener.accept()
        sock.settimeout(wire.SECONDS)
        session, target = wire.serve(sock, key)
        assert target == wire.worker_target(me)
        kind, body, _ = session.receive()
        assert kind == wire.CONNECT
        session.send(wire.REJECT, b"\xff\xff\xff\xff\0" + wire._block(b"no") + wire._block(b""))
        assert "error" in a.hear()


def test_a_server_by_hand_that_accepts(victim, key):
    a = victim(
        WORKER
        + """
endpoint = worker.connect(bytes.fromhex(hear()["to"]), timeout=20)
endpoint.send(b"to a server", 5)
serve(worker)
"""
    )
    a.hear()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        me = wire.Peer()
        a.say(to=wire.Address(me.worker, me.incarnation, port=listener.getsockname()[1]).pack().hex())
        sock, _ = listener.accept()
        sock.settimeout(wire.SECONDS)
        session, _ = wire.serve(sock, key)
        _, connect, _ = session.receive()
        session.send(wire.ACCEPT, wire.accept_message(session, connect, me))
        kind, _, _ = session.receive()
        assert kind == wire.CONFIRM
        frame = wire.Frames(sock).expect(wire.TAGGED)
        assert (frame.a, frame.body) == (5, b"to a server")
        a.say()
        a.end()


def test_a_store_by_hand(victim, key):
    b = victim("""
store = tw.Store("serve:127.0.0.1:0")
say(port=int(store.address.rsplit(":", 1)[1]))
say(got=store.wait("from outside").decode())
hear()
""")
    where = ("127.0.0.1", b.hear()["port"])
    session = wire.dial(wire.connect(where), key, wire.door_target(wire.STORE, where))
    assert wire.store_request(session, wire.PUT, b"from outside", b"hello") == (0, b"")
    assert b.hear()["got"] == "hello"
    assert wire.store_request(session, wire.GET, b"from outside") == (0, b"hello")
    session.sent += 1  # a message is missing
    session.send(wire.GET, b"\1\0\0\0x")
    assert wire.closed(session.sock)


def test_the_handshake_decides_not_the_message_behind_it(victim, key):
    """A key holder that proved one worker as its target and then asks for another, or for a listener."""
    b = victim(WORKER + "serve(worker)\nsay(counters=counted(context, 'target', 6))")
    address, where = door(b)
    other = wire.Address(address.worker ^ 2, address.incarnation)
    for to in (other, None):
        session = wire.dial(wire.connect(where), key, wire.worker_target(address))
        session.send(wire.CONNECT, wire.connect_message(session, to, wire.Peer()))
        assert wire.closed(session.sock)
    for target in (wire.worker_target(other), wire.door_target(wire.LISTENER, where), wire.door_target(wire.STORE, where)):
        with pytest.raises(wire.Refused) as refused:
            wire.dial(wire.connect(where), key, target)
        assert refused.value.answer == wire.NOT_HERE
    with pytest.raises(wire.Refused) as refused:  # a proof for a unix socket, at a tcp one
        wire.dial(wire.connect(where), key, wire.worker_target(address), wire.UNIX)
    assert refused.value.answer == wire.NOT_HERE
    b.say()
    assert b.hear()["counters"]["target"] == 6


def test_without_the_key_there_is_no_way_in(victim):
    b = victim(WORKER + "serve(worker)\nsay(counters=counted(context, 'authentication', 1))")
    address, where = door(b)
    with pytest.raises(wire.Refused) as refused:
        wire.dial(wire.connect(where), b"quite another key", wire.worker_target(address))
    assert refused.value.answer == wire.WRONG_PROOF
    b.say()
    assert b.hear()["counters"]["authentication"] == 1


def test_an_endpoint_that_asked_for_tls_takes_no_plain_link(victim, key):
    """The peer dials, too, without TLS, and its attempt wins, because its worker's number is lower."""
    a = victim(
        WORKER
        + """
endpoint = worker.connect(bytes.fromhex(hear()["to"]), timeout=20, tls=True, wait=False)
say(state=endpoint.state)
say(**attempt(endpoint.wait, 20))
"""
    )
    address, where = door(a)
    me = next(peer for peer in iter(wire.Peer, None) if peer.worker < address.worker)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        a.say(to=wire.Address(me.worker, me.incarnation, port=silent.getsockname()[1]).pack().hex())
        assert a.hear()["state"] == "in_progress"
        session = wire.dial(wire.connect(where), key, wire.worker_target(address))
        wire.join(session, address, me)
        said = a.hear()
        assert said.get("error") == "AuthenticationError" and "TLS" in said["text"], said
        assert wire.closed(session.sock)
