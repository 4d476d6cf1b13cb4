# SPDX-License-Identifier: Apache-2.0
"""A relay without the key: it holds a port that a job's process dials, and forwards bytes to another listener of the job."""

import pytest
import wire

WORKER = """
context = tw.Context(transports="self,tcp")
worker = tw.Worker(context)
listener = worker.listen("127.0.0.1:0")
say(address=worker.address.hex(), listener=listener.port)
"""
REPORT = """
said = serve(worker)
say(counters=counted(context, said["cause"], said["number"]))
"""
DIAL = """
to = hear()
target = bytes.fromhex(to["to"]) if to["kind"] == "worker" else to["to"]
def dial():
    worker.connect(target, timeout=20).state
say(**attempt(dial))
"""
STORE = """
store = tw.Store("serve:127.0.0.1:0")
say(port=int(store.address.rsplit(":", 1)[1]))
hear()
"""


def worker_of(victim):
    said = victim.hear()
    return wire.Address.parse(bytes.fromhex(said["address"])), said["listener"]


def doors(victim, which, own):
    """(a door of the job, the victim that has it or None) for a relay. own: the dialler's worker."""
    address, listener = own
    if which == "store":
        store = victim(STORE)
        return store.hear()["port"]
    return address.port if which == "worker" else listener


def refused(man):
    """Waits for the end of what the man carried; the client's proof went to the door, which said no and closed."""
    assert man.done.wait(wire.SECONDS)
    assert len(man.bytes_to(server=True)) == 88 + 32, "set-up messages went through"
    answer, _ = wire._AUTHENTICATION_RESULT.unpack(man.bytes_to(server=False)[48:84])
    assert answer == wire.NOT_HERE


@pytest.mark.parametrize("door", ["worker", "listener", "store"])
@pytest.mark.parametrize("dialled", ["worker", "listener"])
def test_what_was_meant_for_one_door_opens_no_other_also_not_the_diallers_own(victim, dialled, door):
    a = victim(WORKER + DIAL + REPORT)
    address, listener = worker_of(a)
    with wire.Man(("127.0.0.1", doors(victim, door, (address, listener)))) as man:
        if dialled == "worker":  # of a process that has ended, whose port the man has
            dead = wire.Address(address.worker ^ 1, address.incarnation ^ 1, port=man.port)
            a.say(kind="worker", to=dead.pack().hex())
        else:
            a.say(kind="listener", to=f"127.0.0.1:{man.port}")
        said = a.hear()
        assert said.get("error") == ("Stale" if dialled == "worker" else "AuthenticationError"), said
        refused(man)
    refusals = 0 if door == "store" else 1
    a.say(cause="target", number=refusals)
    assert a.hear()["counters"]["target"] == refusals


@pytest.mark.parametrize("door", ["worker", "listener", "store"])
def test_a_stores_client_enters_no_other_door(victim, door):
    a = victim(
        WORKER
        + """
to = hear()["to"]
say(**attempt(lambda: tw.Store(to, timeout=20).address))
"""
        + REPORT
    )
    address, listener = worker_of(a)
    with wire.Man(("127.0.0.1", doors(victim, door, (address, listener)))) as man:
        a.say(to=f"tcp:127.0.0.1:{man.port}")
        said = a.hear()
        assert said.get("error") == "AuthenticationError", said
        assert "THALWEG_KNOWN_AS" in said["text"]
        refused(man)


def test_a_man_between_who_speaks_after_the_proofs_is_not_heard(victim):
    """Also where both ends are right: every set-up message needs a key that he has not."""
    a = victim(WORKER + DIAL + REPORT)
    b = victim(WORKER + REPORT)
    address, _ = worker_of(b)
    worker_of(a)
    sent = []

    def change(data, to_server):
        sent.append(to_server)
        if to_server and sum(sent) > 2:  # behind hello and proof: his own connect message instead of the client's
            forged = wire.Session(None, b"\0" * 32, b"\0" * 32)
            return forged.pack(wire.CONNECT, wire.connect_message(forged, address, wire.Peer()))
        return data

    with wire.Man(("127.0.0.1", address.port), change) as man:
        a.say(kind="worker", to=wire.Address(address.worker, address.incarnation, port=man.port).pack().hex())
        assert "error" in a.hear()
    b.say(cause="integrity", number=1)
    assert b.hear()["counters"]["integrity"] == 1


def test_one_changed_bit_of_a_set_up_message_ends_the_connection(victim):
    a = victim(WORKER + DIAL + REPORT)
    b = victim(WORKER + REPORT)
    address, _ = worker_of(b)
    worker_of(a)
    answers = []

    def change(data, to_server):
        answers.append(to_server)
        if not to_server and answers.count(False) == 3:  # accept
            return data[:40] + bytes([data[40] ^ 1]) + data[41:]
        return data

    with wire.Man(("127.0.0.1", address.port), change) as man:
        a.say(kind="worker", to=wire.Address(address.worker, address.incarnation, port=man.port).pack().hex())
        said = a.hear()
        assert said.get("error") == "AuthenticationError", said
    a.say(cause="integrity", number=1)
    assert a.hear()["counters"]["integrity"] == 1


def test_on_the_way_to_the_one_meant_plain_frames_can_be_changed_but_no_object_travels(victim):
    """What docs/security.md says of plain tcp; and that no code of the man's runs for it."""
    a = victim(
        WORKER
        + """
to = hear()
endpoint = worker.connect(bytes.fromhex(to["to"]), timeout=20)
endpoint.send(b"pay 0001 to B" * 2, 7)
say(protected=endpoint.protected, **attempt(tw.send_object, endpoint, {"a": 1}, 8))
serve(worker)
"""
    )
    b = victim(
        WORKER
        + """
buffer = bytearray(26)
end = worker.recv(buffer, 7)
say(got=buffer.decode())
say(protected=end.endpoint.protected, **attempt(tw.recv_object, end.endpoint, 8, timeout=5))
serve(worker)
"""
    )
    address, _ = worker_of(b)
    worker_of(a)
    with wire.Man(("127.0.0.1", address.port), lambda data, to_server: data.replace(b"0001", b"9999")) as man:
        a.say(to=wire.Address(address.worker, address.incarnation, port=man.port).pack().hex())
        assert b.hear()["got"] == "pay 9999 to B" * 2
        for side in (a, b):
            said = side.hear()
            assert said["protected"] is False
            assert said["error"] == "Unsupported", said
            assert "tls" in said["text"], said
        a.say()
        b.say()
        a.end()
        b.end()


@pytest.mark.parametrize("over", ["tls", "shm", "unix"])
def test_objects_travel_over_tls_shared_memory_and_unix_sockets(victim, over, tmp_path):
    transports = "self,tcp" if over != "shm" else "self,shm"
    make = f"""
context = tw.Context(transports="{transports}", tls={over == "tls"})
worker = tw.Worker(context)
"""
    if over == "unix":
        meet = f"""
listener = worker.listen("unix:{tmp_path}/door")
say(address="")
endpoint = listener.accept(timeout=20)
endpoint.recv(bytearray(1), 7)
"""
    else:
        meet = """
say(address=worker.address.hex())
endpoint = worker.recv(bytearray(1), 7).endpoint
"""
    receive = """
say(got=tw.recv_object(endpoint, 8), protected=endpoint.protected)
serve(worker)
"""
    b = victim(make + meet + receive)
    a = victim(
        make
        + """
to = hear()["to"]
endpoint = worker.connect(to if to.startswith("unix:") else bytes.fromhex(to), timeout=20)
endpoint.send(b"x", 7)
tw.send_object(endpoint, {"a": 1}, 8)
say(protected=endpoint.protected, transport=endpoint.transport)
serve(worker)
"""
    )
    to = b.hear()["address"] or f"unix:{tmp_path}/door"
    a.say(to=to)
    assert b.hear() == {"got": {"a": 1}, "protected": True}
    assert a.hear() == {"protected": True, "transport": "shm" if over == "shm" else "tcp"}
    a.say()
    b.say()
    a.end()
    b.end()
