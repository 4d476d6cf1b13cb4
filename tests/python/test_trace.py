# SPDX-License-Identifier: Apache-2.0
"""Timelines: what is in the file, by Perfetto's own definitions of its format, and what ``thalweg trace`` says of it."""

import io
import json
import os
import pathlib
import re
import secrets
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import thalweg as tw
from peers import connected
from rich.console import Console

timeline = pytest.importorskip("thalweg._cli.timeline")
time_spent = pytest.importorskip("thalweg._cli.time_spent")
typer_testing = pytest.importorskip("typer.testing")

from thalweg._cli import trace  # noqa: E402
from thalweg._cli.main import app  # noqa: E402

SIZES = (8, 4096, 100_001, 3 << 20)
ROUNDS = 5
runner = typer_testing.CliRunner()


def messages(endpoint, first):
    """Each side sends ROUNDS of every size and receives the same; verified. The second one falls asleep first."""
    if first:
        time.sleep(0.1)
    for turn in range(ROUNDS):
        for size in SIZES:
            payload = bytes([turn + 1]) * size
            got = bytearray(size)
            if first:
                endpoint.send(payload, 1)
                endpoint.worker.recv(got, 1)
            else:
                endpoint.worker.recv(got, 1)
                endpoint.send(payload, 1)
            assert got == payload


def traced_peer(endpoint, pipe, path):
    """The other process."""
    context = endpoint.worker.context
    context.trace(path)
    pipe.send("traced")
    pipe.recv()
    messages(endpoint, first=False)
    context.trace(None)


@pytest.fixture(params=["shm", "tcp"])
def two_files(request, tmp_path):
    """The timelines of two processes that exchange messages."""
    paths = [tmp_path / "here.pftrace", tmp_path / "there.pftrace"]
    with connected(traced_peer, str(paths[1]), transport=request.param) as (endpoint, pipe):
        context = endpoint.worker.context
        context.trace(str(paths[0]))
        with pytest.raises(tw.BusyError, match="here.pftrace"):
            context.trace(str(tmp_path / "second"))
        assert pipe.recv() == "traced"
        pipe.send("go")
        messages(endpoint, first=True)
        context.trace(None)
        with pytest.raises(tw.InvalidError, match="recorded"):
            context.trace(None)
    return paths


def test_every_packet_is_of_perfettos_format(two_files):
    protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    unknown = pytest.importorskip("google.protobuf.unknown_fields")
    for path in two_files:
        trace = protos.Trace()
        trace.ParseFromString(path.read_bytes())
        assert len(trace.packet) > 100
        tracks, open_slices, last = {}, {}, {}
        events = []
        for packet in trace.packet:
            assert len(unknown.UnknownFieldSet(packet)) == 0 == len(unknown.UnknownFieldSet(packet.track_event))
            assert packet.trusted_packet_sequence_id != 0
            if packet.HasField("track_descriptor"):
                tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            else:
                assert packet.HasField("track_event") and packet.timestamp > 0
                assert packet.track_event.track_uuid in tracks, "an event of a line that was not described"
                events.append(packet)
        processes = [track for track in tracks.values() if track.HasField("process")]
        assert len({track.process.pid for track in processes}) == 1
        assert all(track.parent_uuid in tracks for track in tracks.values() if not track.HasField("process"))
        events.sort(key=lambda packet: packet.timestamp)
        for packet in events:
            event = packet.track_event
            assert packet.timestamp >= last.get(event.track_uuid, 0)
            last[event.track_uuid] = packet.timestamp
            stack = open_slices.setdefault(event.track_uuid, [])
            if event.type == protos.TrackEvent.TYPE_SLICE_BEGIN:
                assert event.name and event.categories
                stack.append(event.name)
            elif event.type == protos.TrackEvent.TYPE_SLICE_END:
                assert stack, "an end without a begin"
                stack.pop()
            else:
                assert event.type == protos.TrackEvent.TYPE_INSTANT and event.name
        assert not any(open_slices.values()), "every operation had ended"


def test_arrows_lead_from_each_send_to_its_receive(two_files):
    both = timeline.read(two_files)
    whole = time_spent.arrows(both)
    each = len(SIZES) * ROUNDS
    assert len(whole) == 2 * each
    by_process = {}
    for begin, end in whole:
        here, there = both.tracks[begin.track].pid, both.tracks[end.track].pid
        assert here != there
        assert begin.begin <= end.begin, "it came before it was sent"
        assert begin.arguments["bytes"] == end.arguments["bytes"]
        by_process.setdefault(here, []).append(begin.arguments["bytes"])
    assert {tuple(sorted(sizes)) for sizes in by_process.values()} == {tuple(sorted(SIZES * ROUNDS))}
    flows = [begin.flow for begin, _ in whole]
    assert len(set(flows)) == len(flows), "two messages have one name"


def test_the_summary_adds_up(two_files):
    read = timeline.read(two_files)
    found = time_spent.summarize(read)
    assert not found["cut"] and found["lost"] == 0
    assert found["threads"]
    for thread in found["threads"]:
        assert sum(thread["by"].values()) == thread["total"]
        assert all(ns >= 0 for ns in thread["by"].values())
    sent = {row["process"]: row for row in found["peers"]}
    assert len(sent) == 2
    for row in found["peers"]:
        assert row["sent"] == row["received"] == len(SIZES) * ROUNDS
        assert row["sent_bytes"] == row["received_bytes"] == sum(SIZES) * ROUNDS
        assert row["peer"] in sent
    receives = next(row for row in found["operations"] if row["name"] == "recv")
    assert receives["count"] == 2 * len(SIZES) * ROUNDS and receives["failed"] == 0
    assert found["messages"]["matched"] == 2 * len(SIZES) * ROUNDS
    waits = [one["time"] for one in found["longest_waits"]]
    assert waits == sorted(waits, reverse=True)


def own_waits(path):
    """The waits of this thread, in their order, and its sleeps, each within one of them. Others may sleep meanwhile."""
    read = timeline.read([path])
    mine = [one for one in read.slices if read.tracks[one.track].thread == threading.get_native_id()]
    waits = sorted((one for one in mine if one.name == "wait"), key=lambda one: one.begin)
    assert all(one.depth == 0 and one.ended for one in waits)
    sleeps = [one for one in mine if one.name == "sleep"]
    for sleep in sleeps:
        assert any(one.begin <= sleep.begin and sleep.end <= one.end for one in waits), "asleep, and no call waits"
    return waits, sleeps


def test_a_blocking_call_is_one_wait_of_its_whole_length(tmp_path, monkeypatch, me):
    path, nap = tmp_path / "waits.pftrace", 0.06
    worker = me.worker
    counter, signal = tw.Counter(worker), tw.Signal(worker)
    calls = [
        lambda: worker.recv(bytearray(8), 1, timeout=nap),
        lambda: worker.irecv(bytearray(8), 2).wait(nap),
        lambda: counter.wait(1, nap),
        lambda: signal.wait(1, timeout=nap),
        lambda: tw.CompletionQueue(worker).wait(timeout=nap),
    ]
    worker.context.trace(str(path))
    for call in calls:
        with pytest.raises(tw.TimedOut):
            call()
    me.send(b"there", 3)
    worker.recv(bytearray(5), 3)  # has come: nothing to wait for
    worker.context.trace(None)
    waits, sleeps = own_waits(path)
    assert len([one for one in waits if one.end - one.begin >= nap * 0.9e9]) == len(calls)
    read = timeline.read([path])
    asleep = sum(one.end - one.begin for one in sleeps)
    assert 0 < asleep < sum(one.end - one.begin for one in waits), "they poll before they sleep"
    monkeypatch.setattr(time_spent, "MOST_WAITS", 1 << 20)  # other threads of this process sleep, too
    listed = [one["time"] for one in time_spent.summarize(read)["longest_waits"]]
    assert listed == sorted(listed, reverse=True)
    alone = [one for one in read.slices if one.name == "wait" or (one.name == "sleep" and one.depth == 0)]
    assert sorted(listed) == sorted(one.end - one.begin for one in alone if read.tracks[one.track].thread)
    assert not any(one in alone for one in sleeps), "a sleep within a wait counts twice"


def test_the_command_joins_and_sums(two_files, tmp_path):
    both = tmp_path / "both.pftrace"
    files = [str(path) for path in two_files]
    assert runner.invoke(app, ["trace", "merge", str(both), *files]).exit_code == 0
    assert both.read_bytes() == b"".join(path.read_bytes() for path in two_files)
    refused = runner.invoke(app, ["trace", "merge", str(both), *files])
    assert refused.exit_code == 1 and "--force" in refused.output
    assert runner.invoke(app, ["trace", "merge", "--force", files[0], *files]).exit_code == 1
    apart = json.loads(runner.invoke(app, ["trace", "summary", "--json", *files]).output)
    joined = json.loads(runner.invoke(app, ["trace", "summary", "--json", str(both)]).output)
    assert apart == joined
    shown = runner.invoke(app, ["trace", "summary", str(both)])
    assert shown.exit_code == 0
    for part in ("Threads", "Operations", "Messages by peer", "Longest waits"):
        assert part in shown.output


def test_a_file_that_breaks_off_is_read_up_to_there(two_files, tmp_path):
    data = two_files[1].read_bytes()  # of the one that sleeps early
    cut = tmp_path / "cut.pftrace"
    for length in (len(data) - 1, len(data) // 2, len(data) // 3 + 1):
        cut.write_bytes(data[:length])
        found = timeline.read([cut])
        assert found.slices
        assert time_spent.summarize(found)["threads"]


@pytest.mark.parametrize("damage", [b"", b"no timeline at all", bytes(range(256)), b"\x0a\x04\x58\x01\x58\x01", b"\x08\x01"])
def test_other_files_are_refused(tmp_path, damage):
    path = tmp_path / "other"
    path.write_bytes(damage)
    done = runner.invoke(app, ["trace", "summary", str(path)])
    if damage:
        assert done.exit_code == 1 or "breaks off" in done.output
    assert not done.exception or isinstance(done.exception, SystemExit)


def test_random_damage_is_an_error_and_no_crash(two_files, tmp_path):
    random = np.random.default_rng()
    data = bytearray(two_files[0].read_bytes()[:20_000])
    path = tmp_path / "damaged"
    for _ in range(200):
        broken = bytearray(data)
        for at in random.integers(0, len(data), 3):
            broken[at] = int(random.integers(0, 256))
        path.write_bytes(broken)
        try:
            time_spent.summarize(timeline.read([path]))
        except timeline.TimelineError as error:
            assert str(path) in str(error)


def varint(value):
    """Seven bits a byte, the last first."""
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)


def packed(*fields):
    """A message of (number, an int or bytes)."""
    return b"".join(
        varint(name << 3) + varint(value) if isinstance(value, int) else varint(name << 3 | 2) + varint(len(value)) + value
        for name, value in fields
    )


def event(at, kind, track, *fields):
    """A packet."""
    inside = packed((timeline.TYPE, kind), (timeline.TRACK, track), *fields)
    return packed((timeline.PACKET, packed((timeline.TIMESTAMP, at), (timeline.TRACK_EVENT, inside))))


def described(*fields):
    """A packet."""
    return packed((timeline.PACKET, packed((timeline.TRACK_DESCRIPTOR, packed(*fields)))))


def process_with(name, base=0):
    """Lines base + 1 (a process), + 2 (its thread), + 3 (its operations) and + 4 (a device's queue)."""
    return b"".join(
        [
            described((timeline.UUID, base + 1), (timeline.PROCESS, packed((timeline.PID, 7), (timeline.PROCESS_NAME, name)))),
            described(
                (timeline.UUID, base + 2), (timeline.PARENT, base + 1),
                (timeline.THREAD, packed((timeline.PID, 7), (timeline.TID, 8), (timeline.THREAD_NAME, name))),
            ),
            described((timeline.UUID, base + 3), (timeline.PARENT, base + 1), (timeline.TRACK_NAME, b"operations 1")),
            described((timeline.UUID, base + 4), (timeline.PARENT, base + 1), (timeline.TRACK_NAME, name)),
        ]
    )  # fmt: skip


def test_names_in_a_file_do_not_steer_the_terminal(tmp_path):
    name = "a\x1b]0;x\x07\x9b31m\n\x7f[red]a[/b]".encode()
    annotation = packed((timeline.ANNOTATION_NAME, b"peer"), (timeline.STRING, name))
    path = tmp_path / "hostile[x].pftrace"
    path.write_bytes(
        process_with(name)
        + event(1, timeline.BEGINS, 2, (timeline.EVENT_NAME, b"wait"), (timeline.CATEGORY, name))
        + event(2, timeline.BEGINS, 3, (timeline.EVENT_NAME, name))
        + event(2, timeline.BEGINS, 4, (timeline.EVENT_NAME, b"run"))
        + event(3, timeline.BEGINS, 4, (timeline.EVENT_NAME, name))
        + event(4, timeline.INSTANT, 2, (timeline.EVENT_NAME, b"sent"), (timeline.ANNOTATION, annotation))
        + b"".join(event(5, timeline.ENDS, track) for track in (4, 4, 3, 2))
    )
    shown = io.StringIO()
    trace.show(time_spent.summarize(timeline.read([path])), Console(file=shown, force_terminal=True, width=600))
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue())  # rich's own
    assert all(one.isprintable() or one == "\n" for one in text)
    escaped = r"a\x1b]0;x\x07\x9b31m\x0a\x7f[red]a[/b]"
    assert text.count(escaped) == 11, "of threads 3, operations 1, a device 3, peers 2, waits 2"
    assert runner.invoke(app, ["trace", "summary", str(path)]).exit_code == 0
    bad = tmp_path / "\x1b[31mbad"
    bad.write_bytes(b"\x08\x01")
    refused = runner.invoke(app, ["trace", "summary", str(bad)])
    assert refused.exit_code == 1 and r"\x1b[31mbad" in refused.output and "\x1b[31mbad" not in refused.output


def test_what_a_killed_process_left_open_ends_with_it(tmp_path):
    for base, at in ((0, 10), (10, 1000)):
        (tmp_path / f"{base}").write_bytes(
            process_with(b"program", base)
            + event(1, timeline.BEGINS, base + 2, (timeline.EVENT_NAME, b"wait"), (timeline.CATEGORY, b"wait"))
            + event(at, timeline.INSTANT, base + 2, (timeline.EVENT_NAME, b"sent"))
        )
    read = timeline.read([tmp_path / "0", tmp_path / "10"])
    assert [one.end for one in read.slices] == [10, 1000]


def test_a_timeline_of_nothing_says_so(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert "Nothing was recorded" in runner.invoke(app, ["trace", "summary", str(tmp_path / "empty")]).output


def test_joining_writes_through_no_link(tmp_path):
    path, link = tmp_path / "one", tmp_path / "link"
    path.write_bytes(process_with(b"program"))
    link.symlink_to(tmp_path / "elsewhere")
    assert runner.invoke(app, ["trace", "merge", str(link), str(path)]).exit_code == 1
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(FileExistsError):
        timeline.merge([path], link)


def device_peer(endpoint, pipe, path, size):
    """The other process: receives by a plan of its device, copies there, sends back."""
    context = endpoint.worker.context
    buffer = tw.Memory.allocate(context, size, place="emulated:1")
    other = tw.Memory.allocate(context, size, place="emulated:1")
    context.trace(path)
    with tw.Plan(context, place="emulated:1") as plan, tw.Queue(context, "emulated:1") as queue:
        received = plan.recv(endpoint, buffer, 1)
        copied = plan.copy(other, buffer, after=[received])
        plan.send(endpoint, other, 2, after=[copied])
        plan.prepare(20)
        for _ in range(ROUNDS):
            plan.trigger(queue)
            queue.synchronize()
        pipe.recv()
    context.trace(None)


def test_steps_of_two_devices_are_where_they_belong(tmp_path):
    paths = [tmp_path / "here.pftrace", tmp_path / "there.pftrace"]
    size = 50_001
    with connected(device_peer, str(paths[1]), size, transport="shm") as (endpoint, pipe):
        context = endpoint.worker.context
        near = tw.Memory.allocate(context, size, place="emulated:0")
        back = tw.Memory.allocate(context, size, place="emulated:0")
        last = tw.Memory.allocate(context, size, place="emulated:0")
        context.trace(str(paths[0]))
        with tw.Plan(context, place="emulated:0") as plan, tw.Queue(context, "emulated:0") as queue:
            plan.send(endpoint, near, 1)
            received = plan.recv(endpoint, back, 2)
            plan.copy(last, back, after=[received])
            plan.prepare(20)
            for _ in range(ROUNDS):
                payload = secrets.token_bytes(size)
                tw.copy(context, near, payload)
                plan.trigger(queue)
                queue.synchronize()
                got = bytearray(size)
                tw.copy(context, got, last)
                assert got == payload
            pipe.send("end")
        context.trace(None)
    read = timeline.read(paths)
    runs = [
        one
        for one in read.slices
        if one.name == "run" and not read.tracks[one.track].thread and ", plan " in read.tracks[one.track].name
    ]
    steps = [one for one in read.slices if one.category == "step"]
    triggers = [one for one in read.slices if one.name == "trigger"]
    assert len(runs) == 2 * ROUNDS and len(triggers) == 2 * ROUNDS
    for kind in ("send", "take", "copy"):
        assert sum(1 for one in steps if one.name == kind) == 2 * ROUNDS, kind
    for device, pid in ((0, os.getpid()), (1, None)):
        mine = [one for one in runs if f"emulated:{device}," in read.tracks[one.track].name]
        assert len(mine) == ROUNDS
        assert pid is None or all(
            read.tracks[one.track].pid == pid or read.tracks[read.tracks[one.track].process].pid == pid for one in mine
        )
    slack = 300_000  # of two clocks, on a machine that does other things
    for run in runs:
        process = read.tracks[run.track].process
        before = [one for one in triggers if read.tracks[one.track].process == process and one.begin <= run.begin + slack]
        assert before, "it ran before it was triggered"
        inside = [one for one in steps if one.track == run.track and run.begin <= one.begin and one.end <= run.end]
        names = [one.name for one in sorted(inside, key=lambda one: one.begin)]
        assert names.index("take") < names.index("copy"), "copied before it had arrived"
    here = [one for one in steps if one.name == "send" and "emulated:0," in read.tracks[one.track].name]
    there = [one for one in steps if one.name == "take" and "emulated:1," in read.tracks[one.track].name]
    for sent, taken in zip(sorted(here, key=lambda one: one.begin), sorted(there, key=lambda one: one.begin), strict=True):
        assert sent.begin < taken.end + slack, "two devices' clocks do not agree"
    program = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "timeline.py"
    picture = tmp_path / "steps.png"
    done = subprocess.run(
        [sys.executable, program, *paths, "--picture", picture], capture_output=True, text=True, timeout=60, check=False
    )
    found = json.loads(done.stdout)
    assert found["runs"] == [ROUNDS, ROUNDS] and found["steps"]["copy"]["count"] == 2 * ROUNDS, done.stdout
    assert done.returncode == (1 if found["received_before_it_was_sent"] else 0), done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_kernels_of_collectives_have_a_line_and_are_summed_up(tmp_path):
    """As the C tests see them in a file (tests/unit/collectives/kernels_times_test.cpp)."""
    path = tmp_path / "kernels"
    bytes_of = packed((timeline.ANNOTATION_NAME, b"bytes"), (timeline.UNSIGNED, 4096))
    runs = b"".join(
        event(at, timeline.BEGINS, 4, (timeline.EVENT_NAME, name), (timeline.ANNOTATION, bytes_of))
        + event(at + 7, timeline.ENDS, 4)
        for at, name in ((10, b"allreduce, LL"), (20, b"broadcast, Simple"), (30, b"allreduce, LL"))
    )
    path.write_bytes(process_with(b"cuda:0, collectives 1") + runs)
    (line,) = time_spent.summarize(timeline.read([path]))["devices"]
    assert line["running"] == 21
    assert [(one["name"], one["count"], one["bytes"], one["total"]) for one in line["steps"]] == [
        ("allreduce, LL", 2, 8192, 14),
        ("broadcast, Simple", 1, 4096, 7),
    ]
    assert "allreduce, LL" in runner.invoke(app, ["trace", "summary", str(path)]).output


def test_replays_of_collectives_kernels_of_two_processes_are_in_the_summary(tmp_path):
    """Each allreduce of two ranks' devices once: one that prepares, and three launches of a graph that has one."""
    ranks = pathlib.Path(__file__).with_name("collective_ranks.py")
    done = subprocess.run(
        [sys.executable, "-m", "thalweg._cli.main", "run", "-n", "2", str(ranks), "captured"],
        env={**os.environ, "THALWEG_TRACE": str(tmp_path / "rank.pftrace")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.count("good") == 2, done.stdout + done.stderr
    files = [str(path) for path in tmp_path.glob("rank-*.pftrace")]
    found = json.loads(runner.invoke(app, ["trace", "summary", "--json", *files]).output)
    lines = [one for one in found["devices"] if ", collectives " in one["queue"]]
    assert len(lines) == 2 and {device for device in (0, 1) for one in lines if f"emulated:{device}, " in one["queue"]} == {
        0,
        1,
    }
    for line in lines:
        (runs,) = (one for one in line["steps"] if one["name"].startswith("allreduce, "))
        assert (runs["count"], runs["bytes"]) == (4, 4 * 501 * 4)
        assert 0 < runs["total"] <= line["running"]


def test_a_summary_into_a_pipe_is_whole(tmp_path):
    name = b"n" * 120
    path = tmp_path / "long"
    path.write_bytes(
        process_with(name)
        + event(1, timeline.BEGINS, 2, (timeline.EVENT_NAME, b"wait"), (timeline.CATEGORY, name))
        + event(2, timeline.BEGINS, 3, (timeline.EVENT_NAME, name))
        + b"".join(event(1_234_567_005, timeline.ENDS, track) for track in (3, 2))
    )
    line = [sys.executable, "-m", "thalweg._cli.main", "trace", "summary", str(path)]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0 and "…" not in done.stdout
    (threads, waits) = (row for row in done.stdout.splitlines() if "1.23 s" in row and row.count("n" * 120) > 1)
    assert "1.23 s 100%" in threads and waits.rstrip().endswith("  1.23 s")


def test_dropped_events_are_told_by_thread(tmp_path):
    def events(count):
        return (timeline.ANNOTATION, packed((timeline.ANNOTATION_NAME, b"events"), (timeline.UNSIGNED, count)))

    path = tmp_path / "dropped"
    path.write_bytes(
        process_with(b"a[b]\x1b")
        + event(5, timeline.INSTANT, 1, (timeline.EVENT_NAME, b"dropped"), events(30))
        + event(5, timeline.INSTANT, 2, (timeline.EVENT_NAME, b"dropped"), events(1200))
    )
    found = time_spent.summarize(timeline.read([path]))
    assert found["lost"] == 1230
    assert [one["events"] for one in found["dropped"]] == [1200, 30]
    assert all(one["line"].startswith("a[b]\x1b 7: ") for one in found["dropped"])
    shown = io.StringIO()
    trace.show(found, Console(file=shown, width=200))
    assert r"  a[b]\x1b 7: a[b]\x1b: 1200" in shown.getvalue()
    assert "plans, threads without a ring: 30" in shown.getvalue() and "1230 events were dropped" in shown.getvalue()


PROGRAM = """
import os, sys, thalweg as tw
with tw.Context(job_key=b"k" * 32) as context, tw.Worker(context) as worker:
    me = worker.connect(worker.address)
    got = bytearray(100)
    receive = worker.irecv(got, 1)
    me.send(b"x" * 100, 1)
    receive.wait()
    if sys.argv[1] == "fork":
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    print(os.getpid())
    if sys.argv[1] == "exit":
        sys.stdout.flush()
        os._exit(0) if len(sys.argv) > 2 else sys.exit(0)
"""


@pytest.mark.parametrize("end", ["close", "fork", "exit"])
def test_the_environment_asks_for_a_file_per_process(tmp_path, end):
    for name, made in (("a.pftrace", "a-{}.pftrace"), ("b-%p", "b-{}"), ("noend", "noend-{}")):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, end],
            env={**os.environ, "THALWEG_TRACE": str(tmp_path / name)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        path = tmp_path / made.format(done.stdout.strip())
        read = timeline.read([path])
        assert not read.cut
        assert any(one.name == "sent" and one.arguments["bytes"] == 100 for one in read.instants)
    assert len(list(tmp_path.iterdir())) == 3, "a file more than processes that have a context"


def test_a_file_that_cannot_be_made_is_an_error(tmp_path, context):
    with pytest.raises(tw.ThalwegError, match="nowhere"):
        context.trace(str(tmp_path / "nowhere" / "file"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "close"],
        env={**os.environ, "THALWEG_TRACE": str(tmp_path / "nowhere" / "file")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0 and "nowhere" in done.stderr
