# SPDX-License-Identifier: Apache-2.0
"""``thalweg top``: counters of another process that really runs, as a table, JSON and OpenMetrics."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

typer_testing = pytest.importorskip("typer.testing")

from thalweg._cli import live, metrics, native, top  # noqa: E402
from thalweg._cli.main import app  # noqa: E402

runner = typer_testing.CliRunner()
SIZE = 1000
PEER = f"""
import os, sys, thalweg as tw
context = tw.Context(job_key=b"k" * 32)
worker = tw.Worker(context)
me = worker.connect(worker.address)
data, got = os.urandom({SIZE}), bytearray({SIZE})
print(os.getpid(), flush=True)
for _ in sys.stdin:
    for _ in range(100):
        receive = worker.irecv(got, 1)
        me.send(data, 1)
        receive.wait()
        assert got == data
    print("moved", flush=True)
"""


@pytest.fixture
def sockets(tmp_path, monkeypatch):
    """No processes but the test's own."""
    monkeypatch.setenv("THALWEG_SOCKET_DIR", str(tmp_path))
    monkeypatch.setattr(
        live, "directories", lambda: [path for path in [tmp_path / f"thalweg-{os.geteuid()}"] if live.private(path)]
    )
    return tmp_path


@contextlib.contextmanager
def peer(**environment):
    """(pid, move()) of a process that sends itself a hundred messages at each move()."""
    process = subprocess.Popen(
        [sys.executable, "-c", PEER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )

    def move():
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "moved\n"

    try:
        yield int(process.stdout.readline()), move
    finally:
        process.stdin.close()
        process.wait(30)


def test_another_process_is_seen_with_what_it_moves(sockets):
    with peer() as (pid, move), live.processes() as found:
        (before,) = found.ask()
        assert before["pid"] == pid and before["program"].startswith("python")
        move()
        time.sleep(0.02)  # answers are given again for a hundredth of a second
        (after,) = found.ask()
        first, second = top.Look([before]), top.Look([after])
        (key,) = second.counts
        counts = {name: value - first.counts[key][1][name] for name, value in second.counts[key][1].items()}
        assert counts["sent"] == counts["received"] == 100
        assert counts["sent bytes"] == counts["received bytes"] == 100 * SIZE
        assert top.rates(first, second, key)["sent bytes"] > 0
        (worker,) = after["counters"]["workers"]
        assert worker["endpoints"] == 1 and worker["listed"][0]["transport"] == "self"
        assert worker["listed"][0]["state"] == "connected"
    with live.processes() as found:
        assert found.ask() == []


def test_one_that_ends_or_is_killed_is_dropped(sockets):
    with live.processes() as found, peer() as (pid, _):
        assert len(found.ask()) == 1
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while found.ask():
            assert time.monotonic() < deadline


def test_one_that_hides_is_not_seen(sockets):
    with peer(THALWEG_LIVE="0"), live.processes() as found:
        assert found.ask() == []
    assert "No process" in runner.invoke(app, ["top", "--once", "--interval", "0.05"]).output


def test_the_table_and_the_json(sockets):
    with peer() as (pid, move):
        move()
        shown = runner.invoke(app, ["top", "--once", "--interval", "0.1"], env={"COLUMNS": "220"})
        assert shown.exit_code == 0
        assert f"{pid}" in shown.output and "self" in shown.output and "connected" in shown.output
        (snapshot,) = json.loads(runner.invoke(app, ["top", "--json"]).output)
        assert snapshot["pid"] == pid
        assert snapshot["counters"]["workers"][0]["sum"]["sent"]["messages"] == 100


def test_sockets_that_are_not_ours_are_left_alone(sockets, tmp_path):
    directory = tmp_path / f"thalweg-{os.geteuid()}"
    directory.mkdir(mode=0o700)
    (directory / "0123456789abcdef.live").write_text("no socket")
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(directory / "mute.live"))
        mute.listen()
        begin = time.monotonic()
        with live.processes() as found:
            assert found.ask() == []
        assert time.monotonic() - begin < 3 * live.ANSWER_SECONDS
    assert live.private(directory)
    directory.chmod(0o755)
    assert not live.private(directory)
    link = tmp_path / "link"
    link.symlink_to(directory)
    assert not live.private(link)


def check_families(text, expected):
    """By the reference parser of the format."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert set(families) == set(metrics.FAMILIES)
    for name, (kind, unit, _) in metrics.FAMILIES.items():
        assert families[name].type == kind and families[name].unit == unit
    for name, value in expected.items():
        assert sum(sample.value for sample in families[name].samples) == value, name
    return families


def test_openmetrics_text_is_well_formed_and_right(sockets):
    with peer() as (pid, move):
        move()
        move()
        time.sleep(0.02)
        text = runner.invoke(app, ["top", "--metrics"]).output
    assert text.endswith("# EOF\n")
    expected = {"thalweg_bytes": 2 * 200 * SIZE, "thalweg_messages": 2 * 200, "thalweg_endpoints": 1, "thalweg_accesses": 0}
    families = check_families(text, expected)
    labels = families["thalweg_bytes"].samples[0].labels
    assert labels["pid"] == str(pid) and labels["direction"] in ("sent", "received") and labels["transport"] == "self"


def test_names_with_anything_in_them_are_escaped():
    snapshot = {
        "pid": 1, "program": 'a "b"\\\n}', "context": "c", "ranks": 2, "rank": 1,
        "counters": {"links": 3, "moved": {}, "named": 0, "workers": [], "caches": {}, "traced": {}, "closed": 4},
    }  # fmt: skip
    families = check_families(metrics.text([snapshot]), {"thalweg_links": 3, "thalweg_refused_connections": 4})
    assert families["thalweg_links"].samples[0].labels["program"] == 'a "b"\\\n}'
    assert families["thalweg_links"].samples[0].labels["rank"] == "1"


def test_metrics_are_served_to_this_machine_only(sockets):
    command = [sys.executable, "-m", "thalweg._cli.main", "top", "--serve", "0"]
    with peer() as (pid, _), subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().strip()
            port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/metrics", url)[1])
            with urllib.request.urlopen(url, timeout=20) as answer:
                assert answer.headers["Content-Type"] == metrics.CONTENT_TYPE
                text = answer.read().decode()
            assert f'pid="{pid}"' in text or "thalweg_links" in text
            for request in (
                urllib.request.Request(f"http://127.0.0.1:{port}/other"),
                urllib.request.Request(url, headers={"Host": "evil.example"}),
            ):
                with pytest.raises(urllib.error.HTTPError):
                    urllib.request.urlopen(request, timeout=20)
            addresses = pathlib.Path("/proc/net/tcp").read_text()
            assert f"0100007F:{port:04X}" in addresses and f"00000000:{port:04X} 00000000" not in addresses
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(20)


def test_a_running_perf_of_another_process_is_seen(sockets):
    try:
        program = native.program("thalweg-perf")
    except native.NativeError as error:
        pytest.skip(str(error))
    command = [program, "tag_bw", "--size", "65536", "--seconds", "20", "--transport", "shm", "--json"]
    environment = {**os.environ, "THALWEG_SOCKET_DIR": str(sockets)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as perf:
        try:
            deadline = time.monotonic() + 60
            with live.processes() as found:
                while True:
                    assert time.monotonic() < deadline, "it was not seen to move anything"
                    before = top.Look(found.ask())
                    time.sleep(0.2)
                    now = top.Look(found.ask())
                    moved = [top.bytes_in(top.rates(before, now, key)) for key in now.counts]
                    if sum(moved) > 1 << 20:
                        break
                assert any(snapshot["program"] == "thalweg-perf" for snapshot in now.snapshots)
                assert "thalweg-perf" in "".join(
                    str(row[0]) for one in now.snapshots for row in top.section(before, now, one)[1]
                )
        finally:
            perf.kill()
