# SPDX-License-Identifier: Apache-2.0
"""``thalweg top``: counters of another process that really runs, as a table, JSON and OpenMetrics."""

import contextlib
import io
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from rich.console import Console

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


def test_the_table_into_a_pipe_is_whole(sockets):
    line = [sys.executable, "-m", "thalweg._cli.main", "top", "--once", "--interval", "0.05"]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with peer() as (pid, _):
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0 and "…" not in done.stdout
    assert "retries/s" in done.stdout and str(pid) in done.stdout


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


def counts(value):
    """Of an endpoint, or of a worker's sums."""
    messages = {"messages": value, "bytes": value * SIZE}
    return {"sent": messages, "received": messages, "accesses": {"operations": value, "bytes": value * SIZE}, "retries": value}


def made_up(pid=1, context="c", program="program", listed=(), total=0, **named):
    """A snapshot with a worker; listed: its endpoints' counts."""
    endpoint = {"peer": "ab" * 8, "pid": 0, "transport": "tcp", "state": "connected", **named}
    worker = {
        "id": "w" + context, "posted": 0, "unexpected": 0, "endpoints": len(listed), "sum": counts(total),
        "listed": [{"id": at, **endpoint, **counts(one)} for at, one in enumerate(listed)],
    }  # fmt: skip
    counters = {
        "links": 3, "closed": 4, "moved": {}, "named": 0, "workers": [worker], "traced": {},
        "caches": {"regions": {"hits": 5, "misses": 6}},
    }  # fmt: skip
    who = {"pid": pid, "program": program, "context": context, "ranks": 2, "rank": 1, "time_ns": 1}
    return {**who, "counters": counters}


@contextlib.contextmanager
def listening(sockets, name, answer=None):
    """The live socket of a process that answers so, each client once; None: that neither accepts nor answers."""
    directory = sockets / f"thalweg-{os.geteuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / f"{name}.live"

    def answers(listener):
        clients = []
        while True:
            try:
                clients.append(listener.accept()[0])
                clients[-1].recv(100)
                clients[-1].sendall(answer)
            except OSError:
                return

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        thread = threading.Thread(target=answers, args=(listener,), daemon=True)
        if answer is not None:
            thread.start()
        try:
            yield
        finally:
            path.unlink()
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            if answer is not None:
                thread.join(20)


def test_processes_that_are_stuck_hold_nobody_up(sockets):
    with contextlib.ExitStack() as stack:
        for name in range(6):
            stack.enter_context(listening(sockets, f"stuck{name}"))
        stack.enter_context(listening(sockets, "well", json.dumps(made_up(pid=7)).encode() + b"\n"))
        found = stack.enter_context(live.processes())
        begin = time.monotonic()
        assert [one["pid"] for one in found.ask()] == [7], "a stuck one hides another"
        for _ in range(20):
            found.ask()
        for _ in range(3):  # and as other programs: each leaves a connection in the queue of one
            with live.processes() as others:
                others.ask()
        assert time.monotonic() - begin < 5.5 * live.ANSWER_SECONDS


def test_a_process_that_is_stopped_is_seen_again_once_it_goes_on(sockets):
    with peer() as (pid, move), live.processes() as found:
        assert len(found.ask()) == 1
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(0.05)
            begin = time.monotonic()
            for _ in range(20):
                assert found.ask() == []
            assert time.monotonic() - begin < 2 * live.ANSWER_SECONDS
        finally:
            os.kill(pid, signal.SIGCONT)
        move()
        deadline = time.monotonic() + 20
        while not (seen := found.ask()) or seen[0]["counters"]["workers"][0]["sum"]["sent"]["messages"] < 100:
            assert time.monotonic() < deadline


@pytest.mark.parametrize(
    "answer",
    [
        b"[]", b"{}", b'{"counters": {}}', b"[" * 100_000, b"1" * 10_000, b"\xff",
        json.dumps({**made_up(), "pid": "1"}).encode(), json.dumps({**made_up(), "counters": []}).encode(),
    ],
)  # fmt: skip
def test_what_is_no_snapshot_is_left_out(sockets, answer):
    with listening(sockets, "strange", answer + b"\n"), live.processes() as found:
        assert found.ask() == []


def test_a_program_may_have_a_name_of_any_bytes(sockets):
    answer = json.dumps(made_up(program="NAME")).encode().replace(b"NAME", b"caf\xe9") + b"\n"
    with listening(sockets, "latin", answer), live.processes() as found:
        assert [one["program"] for one in found.ask()] == ["caf\ufffd"]


def test_a_directory_by_two_names_is_looked_at_once(tmp_path, monkeypatch):
    (tmp_path / f"thalweg-{os.geteuid()}").mkdir(mode=0o700)
    (tmp_path / "again").symlink_to(tmp_path)
    monkeypatch.setenv("THALWEG_SOCKET_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "again"))
    assert sum(str(tmp_path) in str(path.resolve()) for path in live.directories()) == 1


HOSTILE = "a\x1b]0;x\x07\x9b31m\n\x7f[red]a[/b]\u202e\ud800"


def test_names_do_not_steer_the_terminal():
    assert live.printable(HOSTILE) == r"a\x1b]0;x\x07\x9b31m\x0a\x7f[red]a[/b]\u202e\ud800"
    assert live.printable("fünf\\x1b") == r"fünf\\x1b"
    snapshot = made_up(program=HOSTILE, listed=[1], peer="[/b]\x1b", transport=HOSTILE, state=HOSTILE)
    look = top.Look([snapshot])
    shown = io.StringIO()
    Console(file=shown, force_terminal=True, width=400).print(top.table(look, look))
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue())  # rich's own
    assert text.count("[red]a[/b]") == 3 and r"[/b]\x1b" in text
    assert all(one.isprintable() or one == "\n" for one in text)
    assert all(line.isprintable() for line in metrics.text([snapshot]).split("\n"))


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
    for name in ("bytes", "messages"):
        listed = sum(sample.value for sample in families[f"thalweg_{name}"].samples)
        assert sum(sample.value for sample in families[f"thalweg_worker_{name}"].samples) == listed
    labels = families["thalweg_bytes"].samples[0].labels
    assert labels["pid"] == str(pid) and labels["direction"] in ("sent", "received") and labels["transport"] == "self"


def test_names_with_anything_in_them_are_escaped():
    families = check_families(
        metrics.text([made_up(program='a "b"\\\n}')]), {"thalweg_links": 3, "thalweg_refused_connections": 4}
    )
    assert families["thalweg_links"].samples[0].labels["program"] == r'a "b"\\\x0a}'
    assert families["thalweg_refused_connections"].samples[0].labels["rank"] == "1"


def series(snapshot):
    """{(name, labels): value} of what counts."""
    families = check_families(metrics.text([snapshot]), {})
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families.values()
        if family.type == "counter"
        for sample in family.samples
    }


def test_no_counter_falls_when_an_endpoint_goes_or_is_listed_again():
    looks = [made_up(listed=one, total=total) for one, total in (([9, 1], 10), ([9], 12), ([9, 5], 14), ([], 14))]
    last = {}
    for look in map(series, looks):
        for key, value in look.items():
            assert value >= last.get(key, 0), key
        last.update(look)
        assert not [key for key in look if ("endpoint", "other") in key[1]]
    sums = {name: value for (name, labels), value in last.items() if name.startswith("thalweg_worker_")}
    assert sums == {
        "thalweg_worker_bytes_total": 14 * SIZE, "thalweg_worker_messages_total": 14, "thalweg_worker_retries_total": 14,
        "thalweg_worker_access_bytes_total": 14 * SIZE, "thalweg_worker_accesses_total": 14,
    }  # fmt: skip


def test_what_a_process_counts_is_there_once_for_all_its_contexts():
    snapshots = [made_up(pid, context) for pid, context in ((1, "a"), (1, "b"), (2, "c"))]
    expected = {
        "thalweg_links": 2 * 3, "thalweg_cache_hits": 2 * 5, "thalweg_cache_misses": 2 * 6,
        "thalweg_refused_connections": 3 * 4,
    }  # fmt: skip
    families = check_families(metrics.text(snapshots), expected)
    assert "context" not in families["thalweg_links"].samples[0].labels


def test_a_silent_client_keeps_nobody_from_the_metrics(monkeypatch):
    monkeypatch.setattr(metrics, "CLIENT_SECONDS", 1.0)
    asking = threading.Semaphore()

    def ask():
        assert asking.acquire(blocking=False), "two threads ask at a time"
        time.sleep(0.01)
        asking.release()
        return [made_up()]

    with metrics.server(0, ask) as server, contextlib.ExitStack() as stack:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        port = server.server_address[1]
        url = f"http://127.0.0.1:{port}/metrics"
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)) for _ in range(2)]
        with urllib.request.urlopen(url, timeout=20) as answer:
            assert answer.read() == metrics.text([made_up()]).encode()
        scrapes = [subprocess.Popen([sys.executable, "-c", SCRAPE, url]) for _ in range(2)]
        assert [scrape.wait(60) for scrape in scrapes] == [0, 0]
        for client in silent:
            assert client.recv(1) == b"", "a silent client is kept"


def test_clients_of_the_metrics_are_bounded(monkeypatch):
    monkeypatch.setattr(metrics, "CLIENT_SECONDS", 60.0)
    monkeypatch.setattr(metrics, "MOST_CLIENTS", 4)
    with metrics.server(0, list) as server, contextlib.ExitStack() as stack:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        clients = [stack.enter_context(socket.create_connection(server.server_address, timeout=20)) for _ in range(5)]
        assert clients[4].recv(1) == b"", "one client too many is kept"
        clients[0].sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert clients[0].recv(1) == b"H"


SCRAPE = "import sys, urllib.request; [urllib.request.urlopen(sys.argv[1], timeout=20).read() for _ in range(10)]"


def test_metrics_are_served_to_this_machine_only(sockets):
    command = [sys.executable, "-m", "thalweg._cli.main", "top", "--serve", "0"]
    with (
        peer() as (pid, _),
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server,
    ):
        try:
            assert "Every user of this machine" in server.stderr.readline()
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


def test_two_ways_to_show_are_refused():
    refused = runner.invoke(app, ["top", "--json", "--serve", "0"])
    assert refused.exit_code == 2 and "exclude each other" in refused.output


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


def test_clients_that_drip_do_not_keep_the_places(monkeypatch):
    """A socket's timeout begins anew with each byte."""
    import contextlib
    import socket
    import threading
    import time
    import urllib.request

    from thalweg._cli import metrics

    monkeypatch.setattr(metrics, "MOST_CLIENTS", 2)
    monkeypatch.setattr(metrics, "CLIENT_SECONDS", 1.0)
    server = metrics.server(0, list)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    port = server.server_address[1]
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
    try:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            for client in clients:
                with contextlib.suppress(OSError):
                    client.send(b"G")
            time.sleep(0.2)
            if time.monotonic() > end - 2:  # they have had their second, twice
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    assert answer.status == 200
                return
        raise AssertionError("not asked")
    finally:
        for client in clients:
            client.close()
        server.shutdown()
        server.server_close()
