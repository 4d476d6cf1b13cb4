# SPDX-License-Identifier: Apache-2.0
"""Every status of the header has its exception, and the package its types and docstrings."""

import ast
import inspect
import pathlib
import re
import socket

import pytest
import thalweg as tw
from thalweg import _core, aio, errors

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_each_status_has_an_exception_of_its_name():
    header = (ROOT / "include" / "thalweg" / "types.h").read_text()
    statuses = {int(n) for n in re.findall(r"TW_ERR_\w+ = (-\d+)", header)}
    assert statuses and statuses <= set(errors.BY_STATUS)
    for status in statuses:
        assert errors.BY_STATUS[status].name == tw.status_name(status)


def test_errors_are_also_pythons_own():
    assert issubclass(tw.PeerLost, ConnectionError) and issubclass(tw.TimedOut, TimeoutError)
    assert issubclass(tw.InvalidError, ValueError) and issubclass(tw.OutOfMemory, MemoryError)


def test_an_error_has_status_and_remedy():
    with pytest.raises(tw.InvalidError, match="single") as caught:
        tw.Worker(tw.Context(job_key=b"k" * 32), threads="some")
    assert caught.value.status == -101


def test_too_short_a_key_is_refused():
    with pytest.raises(tw.ThalwegError):
        tw.Context(job_key=b"short")


def stub_classes():
    tree = ast.parse((pathlib.Path(tw.__file__).parent / "_core.pyi").read_text())
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name not in ("_DLPack", "_Closing"):
            names = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
            names |= {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}
            yield node.name, names


@pytest.mark.parametrize(("name", "members"), list(stub_classes()), ids=lambda value: value if isinstance(value, str) else "")
def test_stub_and_module_agree(name, members):
    actual = {m for m in vars(getattr(_core, name)) if not m.startswith("__")}
    assert {m for m in members if not m.startswith("__")} == actual


def test_everything_public_says_what_it_is():
    for module in (tw, aio):
        for name in module.__all__:
            thing = getattr(module, name)
            if not inspect.isclass(thing) and not inspect.isfunction(thing):
                continue
            assert thing.__doc__, name
            for member, value in vars(thing).items():
                if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                    assert inspect.getdoc(value) or name == "RecvInfo" or isinstance(value, property), f"{name}.{member}"


def closed_port():
    """A port of this machine where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_texts_are_the_librarys(worker, me):
    with pytest.raises(tw.Unreachable, match="nobody listens at .*start the listener first, or check the port"):
        worker.connect(f"127.0.0.1:{closed_port()}", timeout=20)
    signal = tw.Signal(worker, "set", 3)
    with pytest.raises(tw.TimedOut, match="the signal is still 3"):
        signal.wait(4, timeout=0.01)
    with pytest.raises(tw.TimedOut, match="the operation goes on; test or wait again, or cancel it"):
        worker.irecv(bytearray(1), 1).wait(0.01)
    request = me.irecv(bytearray(4), 2)
    me.send(bytes(10), 2)
    with pytest.raises(tw.Truncated) as caught:
        request.wait(20)
    assert caught.value.length == 10 and str(caught.value) != "truncated"
    with pytest.raises(tw.InvalidError, match="unknown transport"):
        worker.connect(worker.address, transport="carrier pigeon")
