# SPDX-License-Identifier: Apache-2.0
"""A holder of the key elsewhere claims to be another worker, whose id it knows from its address: it is refused, and the worker
that it named is reached and reaches others as if nothing had been."""

import contextlib
import socket

import pytest
import wire

VICTIM = """
context = tw.Context(transports="self,tcp")
worker = tw.Worker(context)
say(address=worker.address.hex())
"""
COUNTED = """
serve(worker)
say(refused=counted(context, "identity", 1)["identity"])
"""
DIALS = (
    """
endpoint = worker.connect(bytes.fromhex(hear()["to"]), timeout=20, wait=False)
say(state=endpoint.state)
serve(worker)
say(**attempt(endpoint.wait, 20))
endpoint.send(b"for B", 7)
"""
    + COUNTED
)
HEARS = """
buffer = bytearray(16)
end = worker.recv(buffer, 7, timeout=20)
say(got=bytes(buffer[:end.length]).decode())
serve(worker)
"""
AUTHENTICATION = -401


def start(victim, code, **environment):
    a = victim(VICTIM + code, **environment)
    return a, wire.Address.parse(bytes.fromhex(a.hear()["address"]))


def meet(key, address):
    """B's messages to any client: its session with us and its accept message."""
    session = wire.dial(wire.connect((address.ips[0], address.port)), key, wire.worker_target(address))
    session.send(wire.CONNECT, wire.connect_message(session, address, wire.Peer()))
    kind, accept, _ = session.receive()
    assert kind == wire.ACCEPT
    return accept


def claim(lie, key, b):
    """An impostor of B: with its own key, or with B's public key, which every client of B gets."""
    me = wire.Peer(worker=b.worker, incarnation=b.incarnation, host=b.host)
    if lie == "its key":
        me.key = meet(key, b)[-96:-64]
        assert wire.worker_of(me.key) == b.worker
    return me


def claims_at(a, key, me):
    """Connects to A as `me`. Returns what A said against it."""
    session = wire.dial(wire.connect(("127.0.0.1", a.port)), key, wire.worker_target(a))
    with pytest.raises(wire.Refused) as refused:
        wire.join(session, a, me)
    return refused.value.answer


@contextlib.contextmanager
def before(b):
    """A listener at an address of this machine that A tries before B's own; and the address that leads A there."""
    with socket.create_server(("127.0.0.2", b.port)) as listener:
        listener.settimeout(wire.SECONDS)
        yield listener, wire.Address(b.worker, b.incarnation, port=b.port, ips=["127.0.0.2", *b.ips]).pack().hex()


def expect_through(a, b):
    """A's dial ends at B, and A has counted one refusal."""
    a.say()
    assert a.hear() == {"result": True}
    assert b.hear()["got"] == "for B"
    a.say()
    assert a.hear()["refused"] == 1
    b.say()
    b.end()


LIES = pytest.mark.parametrize("lie", ["its id", "its key"])
ONLY = {"THALWEG_INTERFACES": "127.0.0.1"}


@LIES
def test_a_pending_dial_is_not_taken_over(victim, key, lie):
    """A dials B, and the first address leads to a port that does not answer yet."""
    a, at_a = start(victim, DIALS)
    b, at_b = start(victim, HEARS, **ONLY)
    with before(at_b) as (listener, address):
        a.say(to=address)
        assert a.hear()["state"] == "in_progress"
        silent, _ = listener.accept()
        assert claims_at(at_a, key, claim(lie, key, at_b)) == AUTHENTICATION
        listener.close()
        silent.close()
    expect_through(a, b)


@LIES
@pytest.mark.parametrize("first", ["A", "B"])
def test_nobody_sits_in_the_place_of_a_worker_that_has_not_come_yet(victim, key, lie, first):
    dials, at_dialler = start(victim, DIALS)
    hears, at_hearer = start(victim, HEARS)
    # The one that is claimed against is A; B, whose name is taken in vain, dials or is dialled.
    a, b = (at_dialler, at_hearer) if first == "A" else (at_hearer, at_dialler)
    assert claims_at(a, key, claim(lie, key, b)) == AUTHENTICATION
    dials.say(to=at_hearer.pack().hex())
    dials.hear()
    dials.say()
    assert dials.hear() == {"result": True}
    assert hears.hear()["got"] == "for B"
    if first == "A":
        dials.say()
        assert dials.hear()["refused"] == 1
    hears.say()
    hears.end()


@pytest.mark.parametrize("lie", ["its id", "its key", "what it said elsewhere"])
def test_nobody_answers_for_the_worker_that_was_dialled(victim, key, lie):
    a, _ = start(victim, DIALS)
    b, at_b = start(victim, HEARS, **ONLY)
    with before(at_b) as (listener, address):
        a.say(to=address)
        a.hear()
        sock, _ = listener.accept()
        sock.settimeout(wire.SECONDS)
        session, target = wire.serve(sock, key)
        assert target == wire.worker_target(at_b)
        kind, connect, _ = session.receive()
        assert kind == wire.CONNECT
        if lie == "what it said elsewhere":
            session.send(wire.ACCEPT, meet(key, at_b))
        else:
            session.send(wire.ACCEPT, wire.accept_message(session, connect, claim(lie, key, at_b)))
        assert wire.closed(sock), "A believed it"
    expect_through(a, b)


@LIES
def test_at_a_listener_nobody_has_anothers_name(victim, key, lie):
    a, at_a = start(victim, 'listener = worker.listen("127.0.0.1:0")\nsay(port=listener.port)\n' + COUNTED)
    where = ("127.0.0.1", a.hear()["port"])
    session = wire.dial(wire.connect(where), key, wire.door_target(wire.LISTENER, where))
    with pytest.raises(wire.Refused) as refused:
        wire.join(session, None, claim(lie, key, at_a))
    assert refused.value.answer == AUTHENTICATION
    a.say()
    assert a.hear()["refused"] == 1


def test_a_worker_that_nobody_can_reach_is_not_answered_for(victim, key):
    """The only address leads to an impostor of B: the dial fails with the reason."""
    a, _ = start(victim, "say(**attempt(lambda: worker.connect(bytes.fromhex(hear()['to']), timeout=20)))\n")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        intended = wire.Peer()
        a.say(to=wire.Address(intended.worker, intended.incarnation, port=listener.getsockname()[1]).pack().hex())
        sock, _ = listener.accept()
        sock.settimeout(wire.SECONDS)
        session, _ = wire.serve(sock, key)
        _, connect, _ = session.receive()
        session.send(wire.ACCEPT, wire.accept_message(session, connect, wire.Peer()))  # another worker, by its right name
        said = a.hear()
        assert said.get("error") == "AuthenticationError" and "another worker answered" in said["text"], said
