# SPDX-License-Identifier: Apache-2.0
"""The command thalweg: help, info, perf, explain, demo. ``run`` has its own file."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import secrets
import stat
import statistics
import subprocess
import sys
import textwrap

import pytest

typer_testing = pytest.importorskip("typer.testing")

from thalweg._cli import demo, launcher, native, placement, sizes  # noqa: E402
from thalweg._cli import info as info_module  # noqa: E402
from thalweg._cli.main import app  # noqa: E402

COMMAND = [sys.executable, "-m", "thalweg._cli.main"]
runner = typer_testing.CliRunner()


@pytest.fixture
def library():
    """The real library; absent only in a source tree that was not built."""
    try:
        return native.library()
    except native.NativeError as error:
        pytest.skip(str(error))


@pytest.fixture
def fake_perf(tmp_path, monkeypatch):
    """A thalweg-perf that says what it was asked and answers with rows."""
    program = tmp_path / "thalweg-perf"
    program.write_text(
        textwrap.dedent(f"""\
        #!{sys.executable}
        import json, sys
        arguments = sys.argv[1:]
        if "--json" not in arguments:
            print("asked", arguments)
            sys.exit(3)
        tests = ["cache_line", "memcpy", "memcpy_other", "readv", "raw_tcp"] if arguments[0] == "floor" else arguments[:1]
        for test in tests:
            for size in (8, 4096, 1 << 20):
                us = size / 1e4 + 1
                print(json.dumps({{"test": test, "transport": "shm", "size": size, "iterations": 10, "verified": True,
                    "route": "r", "latency_us": {{"p50": us}}, "bandwidth_GBps": size / us / 1e3, "rate_Mps": 1 / us}}))
        """)
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(native, "program", lambda name: str(program))
    return program


@pytest.mark.parametrize("command", ["info", "explain", "run", "demo", "topo", "tune"])
def test_help_teaches(command):
    result = runner.invoke(app, [command, "--help"])
    assert result.exit_code == 0 and "Usage" in result.output
    assert command in runner.invoke(app, ["--help"]).output


@pytest.mark.parametrize(
    ("text", "size"), [("8", 8), ("64K", 65536), ("1M", 1 << 20), ("1.5k", 1536), ("2GiB", 2 << 30), ("0", 0), ("7B", 7)]
)
def test_sizes(text, size):
    assert sizes.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "-1", "1.3", "K", "1T", "nan", "inf", "9e99"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="not a size"):
        sizes.parse_size(text)


def test_human_sizes():
    assert [sizes.human_size(n) for n in (8, 1000, 65536, 3 << 20, 1 << 30)] == ["8 B", "1000 B", "64 KiB", "3 MiB", "1 GiB"]


def test_placements_keep_to_what_this_process_may_use(monkeypatch):
    places = [{"processors": [0, 2], "device": 3, "place": "cuda:3"}, {"processors": [1, 3], "device": None, "place": "host"}]
    monkeypatch.setattr(native, "topology_place", lambda rank, ranks: places[rank])
    assert placement.assign(2, {0, 1, 2, 3}) == places
    assert [placement.environment_of(place) for place in places] == [{"THALWEG_DEVICE": "cuda:3"}, {}]
    with pytest.raises(native.NativeError, match=r"rank 1 belongs on processors 3, which .* \(it has 0-2\)"):
        placement.assign(2, {0, 1, 2})


def test_lines_are_cut_when_they_never_end(monkeypatch):
    monkeypatch.setattr(launcher, "LINE_LIMIT", 10)
    read, write = os.pipe()
    with os.fdopen(read, "rb", 0) as source:
        stream = launcher.Stream(0, source, False)
        os.write(write, b"a" * 11 + b"")
        assert stream.read() == [b"a" * 11]
        os.write(write, b"b\n\nc")
        assert stream.read() == [b"b", b""]
        os.close(write)
        assert stream.read() is None and bytes(stream.pending) == b"c"


def test_info_shows_every_fact(capsys):
    from rich.console import Console

    facts = {
        "version": "9.8.7",
        "transports": [{"name": "shm", "available": True}, {"name": "tcp", "available": False, "reason": "no interface"}],
        "limits": {"ptrace": {"value": "restricted", "remedy": "allow it"}, "memlock": {"value": 65536}},
        "build": {"type": "Release"},
    }
    console = Console(width=120, no_color=True)
    with console.capture() as capture:
        info_module.show(facts, console)
    for word in ("9.8.7", "shm", "no interface", "ptrace", "restricted", "allow it", "65536", "Release", "yes", "no"):
        assert word in capture.get()


def test_info_of_the_library(library):
    result = runner.invoke(app, ["info", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["version"] == library.tw_version_string().decode()
    assert "shm" in result.output and "tcp" in result.output
    assert runner.invoke(app, ["info"]).exit_code == 0


def test_info_without_a_library(monkeypatch):
    def missing():
        raise native.NativeError("libthalweg.so was not found")

    monkeypatch.setattr(native, "library", missing)
    result = runner.invoke(app, ["info", "--json"])
    assert result.exit_code == 1 and "not found" in json.loads(result.output)["error"]


def test_perf_passes_arguments_and_exit_code(fake_perf):
    script = f"from thalweg._cli import native, main; native.program = lambda name: {str(fake_perf)!r}; main.app()"
    words = ["perf", "tag_lat", "--size", "1:64", "--help", "-x"]
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert done.stdout.strip() == f"asked {words[1:]}"


@pytest.mark.parametrize("transport", ["auto", "shm", "tcp", "self"])
def test_explain(library, transport):
    done = subprocess.run(
        [*COMMAND, "explain", "send", "64K", "--transport", transport, "--json"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["size"] == 65536 and answer["explanation"].strip()
    assert answer["transport"] == ("shm" if transport == "auto" else transport)


def test_explain_of_a_collective(library):
    command = [*COMMAND, "explain", "allreduce", "--size", "1M", "-n", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "allreduce: 262144 elements of 4 bytes, 3 ranks"
    (chosen,) = (line.split()[1] for line in lines if line.startswith("*"))
    at = next(i for i, line in enumerate(lines) if line.startswith("chosen: "))
    assert lines[at].startswith(f"chosen: {chosen}")
    done = subprocess.run([*command, "--algorithm", "ring", "--json"], capture_output=True, text=True, timeout=100)
    assert "chosen: ring; rank 0 does:\n0 " in json.loads(done.stdout)["explanation"]
    done = subprocess.run([*command, "--algorithm", "none"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "no algorithm none" in done.stderr


def test_explain_of_a_collective_on_a_queue_and_in_a_plan(library):
    def run(*arguments):
        command = [*COMMAND, "explain", "allreduce", "--size", "4K", "-n", "2", *arguments]
        environment = {**os.environ, "THALWEG_EMULATED": "devices=2"}
        return subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)

    text = run("--trigger", "queue", "--place", "emulated").stdout
    lines = text.splitlines()
    assert lines[0] == "allreduce: 1024 elements of 4 bytes, 2 ranks, on a queue of emulated:0"
    (ll,) = (line for line in lines if line.split()[:2] == ["*", "ll"])
    assert ll.endswith(" us")
    assert any(line.split()[0] == "simple" and line.endswith(" us") for line in lines)
    assert any(line.split()[0] == "ring" and line.endswith("us  one kernel does it in fewer hops") for line in lines)
    assert lines[-1] == "chosen: ll, one kernel on each device"
    text = run("--trigger", "graph", "--place", "emulated", "--algorithm", "ring").stdout
    assert "chosen: ring; rank 0 does:\n0 " in text
    text = run("--trigger", "queue").stdout
    assert "no kernels: rank 0 calls on a queue of the host" in text and "chosen: " in text
    text = run("--trigger", "plan", "--json").stdout
    assert "2 ranks, in a plan\n" in json.loads(text)["explanation"] and json.loads(text)["trigger"] == "plan"
    assert "emulated:7" in run("--trigger", "queue", "--place", "emulated:7").stderr
    assert "--place is of" in run("--place", "emulated").stderr


def test_tune_is_used_and_can_be_switched_off(library, tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "THALWEG_COSTS": ""}

    def run(*arguments, **more):
        done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, env={**environment, **more})
        assert done.returncode == 0, done.stderr
        return done

    def costs(**more):
        return json.loads(run("info", "--json", **more).stdout)["costs"]

    before = costs()  # measured by itself, unless the processors were too busy
    assert before["source"] == before["file"] or "busy" in before["why"]
    measured = run("tune", "--seconds", "0.01").stdout
    (file,) = (path for path in (tmp_path / "thalweg").iterdir() if path.suffix != ".lock")
    assert f"kept in {file}" in measured
    after = costs()
    assert after["source"] == after["file"] == str(file)
    lines = dict(line.split(" = ") for line in measured.splitlines() if " = " in line)
    assert {"shm.frame", "shm.copy", "shm.copy_large", "shm.mapped", "tcp.frame", "tcp.reference"} <= lines.keys()
    for name, value in lines.items():
        assert float(after[name].split()[0]) == pytest.approx(float(value), rel=1e-3)
    assert "measured costs" in run("explain", "send", "1M", "--transport", "shm").stdout
    assert costs(THALWEG_COSTS="off")["source"] == "defaults"
    file.write_bytes(os.urandom(100))
    assert costs()["source"] == "defaults" and str(file) in " ".join(json.loads(run("info", "--json").stdout)["warnings"])


@pytest.mark.parametrize("verb", ["send", "get"])
def test_explain_measures_every_way(library, verb):
    done = subprocess.run(
        [*COMMAND, "explain", verb, "256K", "--transport", "shm", "--measure", "--json"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)["measured"]
    assert measured[0]["way"] == "any" and all(one["microseconds"] > 0 for one in measured)
    routes = [one["route"] for one in measured]
    assert any("frames" in route for route in routes) and len(set(routes)) == len(routes), measured


def test_a_forced_way_is_taken(library):
    routes = {}
    for way in ("frames", "kernel", "eager"):
        command = [
            *COMMAND,
            "perf",
            "tag_lat",
            "--transport",
            "shm",
            "--size",
            "100K",
            "--seconds",
            "0.01",
            "--way",
            way,
            "--json",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        row = json.loads(done.stdout)
        assert row["verified"]
        routes[way] = row["route"]
    assert "data frames" in routes["frames"] and "segmented" in routes["eager"]
    assert "kernel copy" in routes["kernel"] or "data frames" in routes["kernel"]  # where the kernel forbids it
    done = subprocess.run([*COMMAND, "perf", "tag_lat", "--way", "magic"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "staging" in done.stderr


@pytest.mark.parametrize("devices", ["", "devices=2"])
def test_tune_checks(library, devices):
    command = [*COMMAND, "tune", "--check", "--json", "--rounds", "1", "--seconds", "0.002", "--size", "8,64K"]
    environment = {**os.environ, "THALWEG_EMULATED": devices}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode in (0, 1), done.stderr
    answer = json.loads(done.stdout)
    assert done.returncode == (0 if answer["good"] else 1)
    names = {"shm", "tcp"}
    if devices:
        names |= {"device-device", "device-host", "host-device", "device-pinned", "pool-pool", "managed-managed"}
    assert names <= {path["path"] for path in answer["paths"]}
    for path in answer["paths"]:
        rows = path["rows"]
        assert [row["size"] for row in rows] == [8, 65536]
        for row in rows:
            assert row["us"] >= row["best_us"] > 0 and row["behind"] == pytest.approx(row["us"] / row["best_us"], rel=1e-2)
        errors = [abs(row["predicted_us"] / row["us"] - 1) for row in rows if row["predicted_us"] > 0]
        assert errors or path["path"] == "host-device"  # its way is said, not its time
        median = statistics.median(errors) if errors else -1
        assert path["median_error"] == pytest.approx(median, rel=1e-2)
        worst, near = max(row["behind"] for row in rows), sum(row["behind"] <= 1.1 for row in rows) / len(rows)
        assert path["worst"] == pytest.approx(worst, rel=1e-2) and path["within_10_percent"] == pytest.approx(near)
        assert path["good"] == (near >= 0.95 and worst <= 1.25 and median <= 0.15)
    assert answer["good"] == all(path["good"] for path in answer["paths"])


def test_tune_says_which_path_passes(library):
    command = [*COMMAND, "tune", "--check", "--rounds", "1", "--seconds", "0.002", "--size", "8", "--paths", "tcp"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    outcome = done.stdout.splitlines()[-1]
    assert outcome.split(":")[0] == ("PASS tcp" if done.returncode == 0 else "FAIL tcp"), done.stdout + done.stderr
    assert "(95 %)" in outcome and "1.25" in outcome and "15 %" in outcome


def test_explain_refuses_what_is_no_size():
    result = runner.invoke(app, ["explain", "put", "many"])
    assert result.exit_code == 1 and "not a size" in result.output


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["info"], ["info", "--json"], ["explain", "send", "8"], ["topo"], ["top", "--once", "--interval", "0.05"]]
    + [["top", "--json"], ["top", "--metrics"]],
    ids=" ".join,
)
def test_output_that_cannot_be_written_is_one_line(library, arguments):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    (said,) = done.stderr.splitlines()
    assert done.returncode == 1 and said.startswith("thalweg") and said.endswith(": [Errno 28] No space left on device")


@pytest.mark.parametrize("arguments", [["perf", "--help"], ["tune", "--help"], ["info"]], ids=" ".join)
def test_output_may_be_closed(library, arguments):
    line = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *arguments]
    done = subprocess.run(line, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0 and "Traceback" not in done.stderr


INTERRUPTED = """
import os, signal, sys
from thalweg._cli import explain, explain_group, native
def interrupted(*_):
    os.killpg(0, signal.SIGINT)  # as the terminal does
    signal.pause()
explain.answer = explain_group.explain_in = interrupted
if __name__ == "__main__":
    from thalweg._cli.main import app
    sys.exit(app(sys.argv[1:]))
"""


@pytest.mark.parametrize("arguments", [["send", "8"], ["allreduce", "8", "-n", "3"]], ids=" ".join)
def test_an_interrupted_explain_leaves_quietly(library, arguments, tmp_path):
    script = tmp_path / "script.py"  # what is spawned reads it again
    script.write_text(INTERRUPTED)
    line = [sys.executable, str(script), "explain", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=100, start_new_session=True)
    assert done.returncode == 130 and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        *(["tune", *one] for one in (["--json"], ["--paths", "tcp"], ["--size", "8"], ["--rounds", "3"])),
        *(["explain", "send", "8", *one] for one in (["--size", "8"], ["-n", "2"], ["--algorithm", "ring"], ["--repeatable"])),
        *(["explain", "send", "8", *one] for one in (["--trigger", "queue"], ["--place", "host"])),
        ["explain", "allreduce", "8", "--measure"],
        ["explain", "allreduce", "8", "--place", "cuda"],
        *(["report", "--compare", "a", "b", *one] for one in (["--json", "c"], ["--seconds", "9"], ["--quick"])),
        *(["report", "--compare", "a", "b", "--from", "c"], ["report", "--from", "a", "--quick"]),
    ],
    ids=" ".join,
)
def test_options_that_mean_nothing_there_are_refused(arguments, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    costs = tmp_path / "costs"
    costs.write_text("kept")
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, env={**os.environ, "THALWEG_COSTS": str(costs)}
    )
    assert done.returncode == 2 and not done.stdout
    assert f" {[one for one in arguments if one[0] == '-'][-1]} ".replace(" -n ", " --count ") in done.stderr
    assert costs.read_text() == "kept" and os.listdir(tmp_path) == ["costs"]


def test_demo_draws_and_tells(fake_perf, tmp_path):
    pytest.importorskip("matplotlib")
    folder = tmp_path / "pictures"
    result = runner.invoke(app, ["demo", "--json", "--output", str(folder), "--seconds", "0.01"])
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["verified"] and len(summary["rows"]) == 3 * (5 + 6)
    png, svg = (pathlib.Path(name) for name in summary["pictures"])
    assert png.read_bytes().startswith(b"\x89PNG") and "<svg" in svg.read_text()


def test_demo_fails_on_wrong_data(fake_perf, tmp_path):
    fake_perf.write_text(fake_perf.read_text().replace('"verified": True', '"verified": False'))
    result = runner.invoke(app, ["demo", "--json", "--output", str(tmp_path)])
    assert result.exit_code == 1 and not json.loads(result.stdout)["verified"]


def test_demo_asks_for_a_folder_before_it_measures(fake_perf):
    fake_perf.write_text("#!/bin/sh\necho it measures >&2\nexit 5\n")
    result = runner.invoke(app, ["demo", "--output", "/proc/nothing"])
    assert result.exit_code == 1 and "/proc/nothing" in result.output and "it measures" not in result.output


def test_demo_tells_why_a_floor_is_unavailable(fake_perf, tmp_path, monkeypatch):
    row = {"test": "readv", "transport": "none", "size": 4096, "unavailable": "[EPERM] forbidden here"}
    fake_perf.write_text(f"#!/bin/sh\n[ $1 = floor ] && echo '{json.dumps(row)}'\nexit 0\n")
    monkeypatch.setattr(demo, "draw", lambda *_: [])
    result = runner.invoke(app, ["demo", "--output", str(tmp_path), "--seconds", "0.01"])
    assert result.exit_code == 0 and "readv: [EPERM] forbidden here" in result.output, result.output


def test_demo_shows_its_table_although_it_cannot_draw(fake_perf, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(demo, "draw", full)
    result = runner.invoke(app, ["demo", "--output", str(tmp_path), "--seconds", "0.01"])
    assert result.exit_code == 1 and "medians" in result.output and "no picture: " in result.output


def test_routes_are_asked_with_a_key_of_the_environment(library):
    """Six times, with two processes each: the library takes the key out of the environment of the first."""
    command = [sys.executable, "-m", "thalweg._report.routes"]
    environment = {**os.environ, "THALWEG_JOB_KEY": secrets.token_hex(32)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert not [row for row in rows if "unavailable" in row]
    assert len({(row["verb"], row["transport"]) for row in rows}) == 6
