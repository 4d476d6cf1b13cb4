# SPDX-License-Identifier: Apache-2.0
"""thalweg report: the plan and its time, what measuring does with programs that fail, hang or lie, and the command itself."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import select
import signal
import stat
import subprocess
import sys
import textwrap
import time

import pytest

typer_testing = pytest.importorskip("typer.testing")
for needed in ("jsonschema", "jinja2", "matplotlib"):
    pytest.importorskip(needed)

from report_fixtures import FOLDER, report  # noqa: E402
from thalweg._cli import native  # noqa: E402
from thalweg._cli import report as report_command  # noqa: E402
from thalweg._cli.main import app  # noqa: E402
from thalweg._report import (  # noqa: E402
    collect,
    document,
    gpus,
    machine,
    measure,
    peaks,
    plan,
    quantities,
    readings,
    routes,
    rules_run,
    sections,
    topology,
)

COMMAND = [sys.executable, "-m", "thalweg._cli.main", "report"]
MACHINES = [
    plan.Machine(2, 1, ()),
    plan.Machine(96, 2, ("cuda:0", "cuda:1", "cuda:2", "cuda:3")),
    plan.Machine(8, 1, ("emulated:0",)),
    plan.Machine(192, 8, tuple(f"cuda:{n}" for n in range(8))),
]
FOUR_GPUS = pathlib.Path(__file__).parents[2] / "benchmarks/results/reports/report-4h200-2026-11-26.json"
runner = typer_testing.CliRunner()


@pytest.mark.parametrize("of", MACHINES)
@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("seconds", [5, 20, 120, 1000])
def test_a_plan_fits_into_its_time(of, quick, seconds):
    wanted = plan.steps(of, quick)
    kept, left_out, each = plan.fit(wanted, seconds)
    assert sum(step.predicted(each) for step in kept) <= seconds + 1e-6
    assert plan.SHORTEST <= each <= plan.LONGEST and kept
    assert sorted(step.name for step in [*kept, *left_out]) == sorted(step.name for step in wanted)
    assert len({step.name for step in wanted}) == len(wanted)
    if left_out:
        assert max(step.urgency for step in kept) <= min(step.urgency for step in left_out)
    if seconds == 1000:
        assert not left_out


def test_the_least_urgent_is_left_out_first():
    steps = [plan.Step(f"s{n}", "paths", ("x",), fixed=1, sizes=1, urgency=u) for n, u in enumerate((2, 1, 3, 1))]
    kept, left_out, _ = plan.fit(steps, 2.1)
    assert [step.name for step in kept] == ["s1", "s3"] and [step.name for step in left_out] == ["s0", "s2"]


@pytest.mark.parametrize("seconds", [98, 120])
@pytest.mark.parametrize("slower", [1, 1.3])
def test_every_section_is_measured_on_four_gpus_within_the_default_time(seconds, slower, monkeypatch):
    """By the times that a machine of four H200 took, or more; of what it left out, more than predicted."""
    took = {step["name"]: step.get("seconds") for step in json.loads(FOUR_GPUS.read_text())["steps"]}
    now = 0.0

    def step(content, one, each, limit):
        nonlocal now
        now += slower * max(took[one.name] or 1.3 * one.predicted(each), one.predicted(each))
        content["steps"].append({"name": one.name, "section": one.section, "state": "done", "rows": []})

    monkeypatch.setattr(measure, "_step", step)
    monkeypatch.setattr(measure.time, "monotonic", lambda: now)
    content = document.new(seconds)
    measure.run(content, plan.steps(MACHINES[1], False), seconds, lambda one, done: None)
    done = {one["section"] for one in content["steps"] if one["state"] == "done"}
    assert done == {one.name for one in sections.SECTIONS} - {"topology", "links"}  # those need no measurement
    assert now < seconds * slower + 10


@pytest.mark.parametrize("of", MACHINES)
def test_what_gives_a_section_something_comes_first(of):
    wanted = plan.steps(of, False)
    first = list(dict.fromkeys(step.section for step in wanted if step.urgency == 1))
    assert set(first) == {step.section for step in wanted}
    assert [step.urgency for step in wanted] == sorted(step.urgency for step in wanted)


def test_nodes_of_memory_alone_are_pairs_too(monkeypatch):
    seconds = [
        next(step for step in plan.steps(plan.Machine(8, 2, (), memories), False) if step.name == "memory").predicted(0.1)
        for memories in (0, 1)
    ]
    assert seconds[1] - 1 == pytest.approx((seconds[0] - 1) * 1.5)
    nodes = [{"node": 0, "processors": [0, 1]}, {"node": 1, "processors": [2]}, {"node": 2, "processors": []}]
    monkeypatch.setattr(machine, "facts", lambda: {"host": "x", "processors": 3, "numa": nodes})
    monkeypatch.setattr(topology, "ask", lambda: {"format": "thalweg topology 1", "nodes": [], "links": []})
    collector = collect.Collector(document.new(10))
    found = collector.begin()
    collector.finish()
    assert (found.nodes, found.memories) == (2, 1)


def program(tmp_path, monkeypatch, text):
    """A thalweg-perf that does this."""
    path = tmp_path / "thalweg-perf"
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\narguments = sys.argv[1:]\n{textwrap.dedent(text)}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(native, "program", lambda name: str(path))
    return path


def measured(steps, seconds=30):
    content = document.new(seconds)
    content["machine"] = machine.facts()
    measure.run(content, steps, seconds, lambda step, done: None)
    document.parse(document.text_of(content), "measured")
    return {step["name"]: step for step in content["steps"]}


STEPS = [
    plan.Step(name, "paths", (name,), fixed=0.3, sizes=1) for name in ("good", "unknown", "broken", "absent", "lies", "last")
]


def test_every_end_of_a_program_is_told(tmp_path, monkeypatch):
    program(
        tmp_path,
        monkeypatch,
        """\
        name = arguments[0]
        assert arguments[1] == "--seconds" and float(arguments[2]) > 0 and arguments[-1] == "--json"
        if name == "unknown": sys.exit("thalweg perf: no test unknown\\nTry: thalweg perf --help")
        row = {"test": name, "unavailable": "no GPU"} if name == "absent" else {"test": name, "ns": 5, "size": 8}
        print(json.dumps(row), flush=True)
        if name == "broken": sys.exit("thalweg perf: mmap: out of memory")
        if name == "lies": print('{"test": "lies", "ns": "fast"}')
    """,
    )
    found = measured(STEPS)
    assert {name: step["state"] for name, step in found.items()} == {
        "good": "done",
        "unknown": "unavailable",
        "broken": "failed",
        "absent": "unavailable",
        "lies": "failed",
        "last": "done",
    }
    assert found["unknown"]["why"] == "not available in this build: thalweg perf has no test unknown"
    assert "out of memory" in found["broken"]["why"] and len(found["broken"]["rows"]) == 1
    assert found["absent"]["why"] == "no GPU" and "ns: 'fast'" in found["lies"]["why"]


def test_a_program_that_hangs_costs_itself_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "MARGIN", 0.5)
    program(
        tmp_path,
        monkeypatch,
        """\
        print(json.dumps({"test": arguments[0], "ns": 5}), flush=True)
        if arguments[0] == "broken":
            if os.fork() == 0: time.sleep(600)  # keeps the output open
            time.sleep(600)
    """,
    )
    start = time.monotonic()
    found = measured(STEPS, 20)
    assert time.monotonic() - start < 20
    assert found["broken"]["state"] == "cut" and found["broken"]["why"].startswith("ended after") and found["broken"]["rows"]
    assert found["last"]["state"] == "done"


def test_what_does_not_fit_is_left_out_and_asked_again(tmp_path, monkeypatch):
    program(tmp_path, monkeypatch, 'print(json.dumps({"test": arguments[0], "ns": 5}))')
    large = plan.Step("large", "paths", ("large",), fixed=4, urgency=3)
    guessed = plan.Step("guessed", "paths", ("guessed",), fixed=4)  # takes nothing, so that there is time again
    found = measured([large, guessed], 6)
    assert [step["state"] for step in found.values()] == ["done", "done"] and list(found) == ["guessed", "large"]
    found = measured([plan.Step("never", "paths", ("never",), fixed=50)], 6)
    assert found["never"]["state"] == "left out" and "--seconds gives more" in found["never"]["why"]


def test_the_load_of_others_is_seen():
    load = machine.Load()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(1.5)
        others, stolen = load.others()
    finally:
        busy.kill()
        busy.wait()
    assert others > 0.15 and stolen >= 0  # it shares the processors with whatever else runs
    facts = machine.facts()
    assert facts["processors"] == len(os.sched_getaffinity(0)) and facts["memory_bytes"] > 1 << 28
    assert machine._numbers("0-3,8") == [0, 1, 2, 3, 8]


SMI = """\
#!/bin/sh
case "$*" in
  *clocks_event_reasons*) echo "Field \\"clocks_event_reasons.hw_slowdown\\" is not a valid field to query."; exit 2;;
  nvlink*) printf 'GPU 0: H (UUID: GPU-0)\\n\\t Link 0: Replay Errors: 0\\n\\t Link 0: CRC FLIT Errors: 3\\n'
     printf '\\t Link 1: CRC FLIT Errors: 4\\nGPU 1: H\\n\\t Link 0: Replay Errors: 0\\n';;
  *--loop-ms*) echo "0, NVIDIA H, GPU-0a, 0:17, 580.1, 1, 5, 16, 16, 40, Not Active, Not Active, Not Active, Not Active"
     echo "1, NVIDIA H, GPU-1a, 0:18, 580.1, 5, 5, 8, 16, [N/A], Not Active, Active, Not Active, Not Active"
     echo "0, NVIDIA H, GPU-0a, 0:17, 580.1, 5, 5, 16, 16, 62, Not Active, Not Active, Not Active, Not Active"
     echo "1, NVIDIA H, GPU-1a"; sleep 100;;
  *) echo ok;;
esac
"""


def test_what_the_driver_says_of_gpus_under_load(tmp_path, monkeypatch):
    fake = tmp_path / "nvidia-smi"
    fake.write_text(SMI)
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    sampler = gpus.Sampler()
    time.sleep(0.5)
    first, second = sampler.stop()
    assert (first["pcie_generation"], first["celsius_max"], first["slowed_by"]) == (5, 62, [])
    assert (second["pcie_width"], second["pcie_width_max"], second["slowed_by"]) == (8, 16, ["temperature (hardware)"])
    assert first["link_errors"] == {"Replay Errors": 0, "CRC FLIT Errors": 7} and "celsius_max" not in second
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert gpus.Sampler().stop() == []


def test_the_sampler_does_not_outlive_what_started_it(tmp_path):
    fake = tmp_path / "nvidia-smi"
    fake.write_text('#!/bin/sh\ncase "$*" in *loop*) echo $$ > "$0.pid"; exec sleep 100;; *) echo ok;; esac\n')
    fake.chmod(0o755)
    program = "import time; from thalweg._report import gpus; s = gpus.Sampler(); print('begun', flush=True); time.sleep(100)"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    written = tmp_path / "nvidia-smi.pid"
    while not written.exists() or not written.read_text():
        time.sleep(0.01)
    sampler = os.pidfd_open(int(written.read_text()))
    process.kill()
    process.communicate(timeout=10)
    assert select.select([sampler], [], [], 10)[0], "nvidia-smi runs on"
    os.close(sampler)


def test_sampling_ends_although_the_numbers_cannot_be_written(tmp_path, monkeypatch):
    ended = []

    class Collector:
        def __init__(self, content):
            pass

        def begin(self):
            return MACHINES[0]

        def finish(self):
            ended.append(True)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(collect, "Collector", Collector)
    monkeypatch.setattr(report_command, "_run", lambda *_: None)
    monkeypatch.setattr(document, "write", full)
    result = runner.invoke(app, ["report", "-o", str(tmp_path)])
    assert result.exit_code == 1 and "No space left" in result.output and ended == [True]


def test_numbers_of_wrong_data_are_not_shown():
    """They are a finding, and no curve, peak or comparison has them."""
    content = report("healthy_box")
    healthy = {one.name for one in quantities.of(content)}
    wrong = next(row for row in readings.rows(content, "tag_bw", transport="shm"))
    wrong["verified"], wrong["bandwidth_GBps"] = False, 1e9
    assert list(readings.wrong_rows(content)) == [wrong] and wrong not in list(readings.rows(content, "tag_bw"))
    assert healthy - {one.name for one in quantities.of(content)} == {quantities.name_of(wrong)}
    assert all(peak.reached < 1e18 for peak in peaks.peaks(content))


def test_the_route_is_the_one_that_explain_names():
    text = "transport: shm\n  eager   impossible: larger\n* rendezvous, data frames   10107 ns  copied\n"
    assert routes.chosen(text) == "rendezvous, data frames"
    text += "chosen: rendezvous, data frames\n"
    assert routes.chosen(text) == "rendezvous, data frames"
    assert routes.chosen("* put_mapped      20 ns  stores\n") == "put_mapped" and routes.chosen("nothing") == ""


def test_topology_is_asked_and_drawn_by_the_command(monkeypatch):
    graph = report("healthy_box")["topology"]

    def topo(command, env=None, cwd=None, **_):
        if "--json" in command:
            return subprocess.CompletedProcess(command, 0, json.dumps(graph), "")
        assert json.loads(pathlib.Path(cwd, env["THALWEG_TOPOLOGY"]).read_text()) == {**graph, "name": "box"}
        pathlib.Path(cwd, command[-1]).write_text("<svg/>")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(topology.subprocess, "run", topo)
    assert topology.ask() == graph and topology.draw(graph, "box") == "<svg/>"
    for code, text, words in ((2, "No such command 'topo'.", "not available in this build"), (1, "line 3: wrong", "line 3")):
        monkeypatch.setattr(
            topology.subprocess, "run", lambda c, code=code, said=text, **_: subprocess.CompletedProcess(c, code, "", said)
        )
        for call in (topology.ask, lambda: topology.draw(graph, "box")):
            with pytest.raises(topology.NoTopology, match=words):
                call()


def test_the_graph_knows_what_is_behind_the_other_socket():
    graph = topology.Graph(report("far_from_nic"))
    (nic,) = graph.of_kind("nic")
    far = {graph.device(gpu): any(map(topology.between_sockets, graph.path(gpu, nic))) for gpu in graph.of_kind("gpu")}
    assert far == {"cuda:0": False, "cuda:1": False, "cuda:2": True, "cuda:3": True}
    assert graph.pcie("gpu:0")["lanes"] == 16 and graph.gpu("cuda:2") == "gpu:2"
    assert len(topology.Graph(report("nvlink_down")).nvlinks("gpu:1", "gpu:2")) == 6
    assert topology.Graph({}).gpu("cuda:0") is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "absent.json"], "No such file"),
        (["--from", str(FOLDER / "make.py")], "is no JSON"),
        (["--from", str(FOLDER / "hot.json"), "-o", "/proc/nothing/page.html"], "/proc/nothing"),
        (["-o", str(FOLDER / "hot.json"), "--quick"], "neither a folder nor a name that ends in .html"),
        (["--compare", str(FOLDER / "hot.json")], "two reports are compared"),
        ([str(FOLDER / "hot.json")], "two reports are compared"),
        (["--json", "/proc/nothing/x.json", "--quick", "-o", "page.html"], "cannot be written"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    start = time.monotonic()
    result = runner.invoke(app, ["report", *arguments])
    assert result.exit_code == 1 and words in " ".join(result.output.split()), result.output
    assert time.monotonic() - start < 20 and not list(tmp_path.glob("*.json"))


def test_what_the_page_is_made_with_is_asked_for_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = runner.invoke(app, ["report", "--quick"])
    assert result.exit_code == 1 and "pip install 'thalweg[report]'" in result.output and not list(tmp_path.iterdir())
    assert runner.invoke(app, ["report", "--help"]).exit_code == 0


def test_a_page_of_saved_numbers_and_of_two(tmp_path):
    result = runner.invoke(app, ["report", "--from", str(FOLDER / "hot.json"), "-o", str(tmp_path)])
    assert result.exit_code == 0 and "GPU 0 lowered its clocks" in result.output, result.output
    assert "<h1>hgx03</h1>" in (tmp_path / "hot.html").read_text()
    page = tmp_path / "two.html"
    result = runner.invoke(
        app, ["report", "--compare", str(FOLDER / "healthy_box.json"), str(FOLDER / "gpu_pcie_x8.json"), "-o", str(page)]
    )
    assert result.exit_code == 0 and "2 × worse" in result.output, result.output
    assert "2 × worse" in page.read_text()


@pytest.fixture
def library():
    """The real library and thalweg-perf."""
    try:
        native.library()
        native.program("thalweg-perf")
    except native.NativeError as error:
        pytest.skip(str(error))


@pytest.mark.timeout(300)
def test_this_machine_is_measured_within_the_stated_time(tmp_path, library):
    seconds, load_before = 20, os.getloadavg()[0]
    done = subprocess.run(
        [*COMMAND, "--quick", "--seconds", str(seconds), "-o", str(tmp_path / "page.html")],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "measurements, about" in done.stderr and "then the page" in done.stderr
    content = document.load(tmp_path / "page.json")
    assert content["complete"] and 0 < content["seconds"]["taken"] <= seconds
    states = {step["name"]: step["state"] for step in content["steps"]}
    # Programs that poll come to nothing on processors that others use: then they are cut, and the report says so.
    assert load_before > 0.5 or "cut" not in states.values(), content["steps"]
    if "cut" not in states.values() and not rules_run.is_disturbed(content):
        assert states["floor"] == "done" and list(states.values()).count("done") >= 8, content["steps"]
    assert "failed" not in states.values(), [step for step in content["steps"] if step["state"] == "failed"]
    rows = [row for step in content["steps"] for row in step["rows"]]
    assert rows and all(row.get("verified", True) for row in rows)
    assert "Process to process" in (tmp_path / "page.html").read_text()


@pytest.mark.timeout(200)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ended_early_it_leaves_a_report(tmp_path, library, number):
    process = subprocess.Popen(
        [*COMMAND, "--seconds", "100", "-o", str(tmp_path / "page.html")],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    assert process.stderr
    for line in process.stderr:
        if "measurements, about" in line:
            break
    time.sleep(4)
    process.send_signal(number)
    _, errors = process.communicate(timeout=150)
    assert process.returncode == 130, errors
    content = document.load(tmp_path / "page.json")
    assert not content["complete"] and "left out" in {step["state"] for step in content["steps"]}
    assert "Findings" in (tmp_path / "page.html").read_text() and "ended before all was measured" in errors


def test_under_nohup_it_outlives_its_terminal():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with report_command._ended_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_its_terminals_end_ends_it_once():
    """The kernel sends it, and then the shell."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt), report_command._ended_by_signals():
            try:
                os.kill(os.getpid(), signal.SIGHUP)
            finally:
                os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
