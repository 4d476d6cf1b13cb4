# SPDX-License-Identifier: Apache-2.0
"""A peer invites to its unix socket, for shared memory, and then breaks both connections, in either order."""

import socket
import struct
import time

import pytest
import wire


@pytest.mark.parametrize("first", ["tcp", "unix"])
def test_both_connections_break_while_one_becomes_the_other(victim, key, tmp_path, first):
    a, _ = _start(victim, tmp_path)
    me = wire.Peer()
    token = 0x1234567890ABCDEF
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door,
    ):
        (folder,) = tmp_path.iterdir()  # that the context made
        door.bind(str(folder / f"{token:016x}.sock"))
        door.listen()
        door.settimeout(wire.SECONDS)
        port = listener.getsockname()[1]
        a.say(to=wire.Address(me.worker, me.incarnation, port=port).pack().hex())
        sock, _ = listener.accept()
        sock.settimeout(wire.SECONDS)
        session, _ = wire.serve(sock, key)
        _, connect, _ = session.receive()
        host = struct.unpack_from("<5Q", connect)[4]
        inside = wire.Address(me.worker, me.incarnation, host, token, port)
        session.send(wire.ACCEPT, wire.accept_message(session, connect, me, 1, inside.pack()))
        upgrade, _ = door.accept()
        listener.close()
        for one in (sock, upgrade) if first == "tcp" else (upgrade, sock):
            one.close()
            time.sleep(0.1)
        said = a.hear()
        # Broken behind the confirmation, the connection may have been there for a moment.
        assert said.get("error") in ("PeerLost", "Unreachable", "TimedOut") or first == "unix", said
    a.say()
    a.end()


def _start(victim, folder):
    folder.chmod(0o700)
    code = """
context = tw.Context()
worker = tw.Worker(context)
say(address=worker.address.hex())
say(**attempt(lambda: worker.connect(bytes.fromhex(hear()["to"]), timeout=5).state))
hear()
"""
    a = victim(code, THALWEG_SOCKET_DIR=str(folder))
    return a, wire.Address.parse(bytes.fromhex(a.hear()["address"]))
