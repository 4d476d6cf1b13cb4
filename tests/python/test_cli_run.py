# SPDX-License-Identifier: Apache-2.0
"""``thalweg run``: environment, tags, exit codes, endings. The ranks are small scripts that need no library."""

from __future__ import annotations

import json
import os
import pathlib
import resource
import select
import signal
import subprocess
import sys
import textwrap
import time

import pytest

COMMAND = [sys.executable, "-m", "thalweg._cli.main", "run"]


@pytest.fixture
def script(tmp_path: pathlib.Path):
    """Writes a script and gives its path."""

    def write(text: str) -> str:
        path = tmp_path / "rank.py"
        path.write_text(textwrap.dedent(text))
        return str(path)

    return write


def launch(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    """thalweg run with a bound on its time."""
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, **options)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_environment_and_tags(script):
    path = script("""
        import os
        for name in ("RANK", "SIZE", "STORE", "JOB_KEY"):
            print(name, os.environ["THALWEG_" + name])
    """)
    done = launch("-n", "3", path)
    assert done.returncode == 0, done.stderr
    said = {rank: {} for rank in range(3)}
    for line in done.stdout.splitlines():
        tag, name, value = line.split(" ", 2)
        said[int(tag[1:-1])][name] = value
    assert [said[rank]["RANK"] for rank in range(3)] == ["0", "1", "2"]
    assert {said[rank]["SIZE"] for rank in range(3)} == {"3"}
    keys = {said[rank]["JOB_KEY"] for rank in range(3)}
    assert len(keys) == 1 and len(bytes.fromhex(keys.pop())) == 32
    stores = {said[rank]["STORE"] for rank in range(3)}
    assert len(stores) == 1 and stores.pop().startswith(("tcp:127.0.0.1:", "file:/"))


def test_the_key_is_fresh_each_time(script):
    path = script("import os; print(os.environ['THALWEG_JOB_KEY'])")
    assert launch("-n", "1", path).stdout != launch("-n", "1", path).stdout


def test_lines_of_many_ranks_do_not_mix(script):
    path = script("""
        import os
        rank = os.environ["THALWEG_RANK"]
        for i in range(300):
            os.write(1, (rank * 50).encode())
            os.write(1, (rank * 50 + "\\n").encode())
        os.write(1, ("last" + rank).encode())
    """)
    done = launch("-n", "4", path)
    lines = done.stdout.splitlines()
    for rank in range(4):
        assert lines.count(f"[{rank}] " + str(rank) * 100) == 300
        assert lines.count(f"[{rank}] last{rank}") == 1
    assert len(lines) == 4 * 301


def test_arguments_reach_the_program():
    done = launch("-n", "2", sys.executable, "-c", "import sys; print(sys.argv[1:])", "-n", "7", "--json", "--bind")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [f"[{r}] ['-n', '7', '--json', '--bind']" for r in range(2)]


def test_first_failure_decides_and_others_are_ended(script):
    path = script("""
        import os, signal, sys
        if os.environ["THALWEG_RANK"] == "1":
            sys.exit(7)
        signal.pause()
    """)
    done = launch("-n", "3", "--json", path)
    assert done.returncode == 7
    assert "rank 1 ended with exit code 7" in done.stderr
    summary = json.loads(done.stdout)
    assert summary["failed_rank"] == 1 and summary["exit_code"] == 7
    assert [r["exit_code"] for r in summary["ranks"]] == [143, 7, 143]
    assert not any(alive(r["pid"]) for r in summary["ranks"])


def test_a_signal_gives_128_and_its_number():
    done = launch("-n", "1", sys.executable, "-c", "import os; os.kill(os.getpid(), 11)")
    assert done.returncode == 128 + signal.SIGSEGV
    assert "SIGSEGV" in done.stderr


def launch_two_that_meet(path, *options):
    """Rank 0 reads the pipe "GO" until rank 1, which is ready then, opens and closes it."""
    go = pathlib.Path(path).parent / "go"
    os.mkfifo(go)
    return launch("-n", "2", *options, path, env={**os.environ, "GO": str(go)})


def test_a_real_time_signal_has_a_number_and_the_others_their_grace(script):
    """Python has no name for those between SIGRTMIN and SIGRTMAX."""
    path = script("""
        import os, signal, sys
        go = os.environ["GO"]
        if os.environ["THALWEG_RANK"] == "0":
            open(go).read()  # until the other one has its handler
            os.kill(os.getpid(), 37)
        signal.signal(signal.SIGTERM, lambda *_: (print("tidied up"), sys.exit(0)))
        with open(go, "w"):
            pass
        while True:
            signal.pause()
    """)
    done = launch_two_that_meet(path)
    assert done.returncode == 128 + 37
    assert "rank 0 ended by signal 37; ending the other 1" in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == "[1] tidied up\n"


def test_a_rank_that_ignores_sigterm_is_killed(script):
    path = script("""
        import os, signal, sys
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        go = os.environ["GO"]
        if os.environ["THALWEG_RANK"] == "0":
            open(go).read()  # until the other ignores SIGTERM
            sys.exit(3)
        with open(go, "w"):
            pass
        while True:
            signal.pause()
    """)
    done = launch_two_that_meet(path, "--json")
    assert done.returncode == 3
    summary = json.loads(done.stdout)
    assert [r["exit_code"] for r in summary["ranks"]] == [3, 137]
    assert 4.5 < summary["ranks"][1]["seconds"] < 20


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_forwarded(script, number):
    path = script("""
        import os, signal, sys
        for n in (signal.SIGINT, signal.SIGTERM):
            signal.signal(n, lambda n, _: (print("got", n), sys.exit(5)))
        print("ready")
        signal.pause()
    """)
    job = subprocess.Popen([*COMMAND, "-n", "2", path], stdout=subprocess.PIPE, text=True)
    assert sorted(job.stdout.readline().strip() for _ in range(2)) == ["[0] ready", "[1] ready"]
    job.send_signal(number)
    rest, _ = job.communicate(timeout=30)
    assert sorted(rest.splitlines()) == [f"[{r}] got {int(number)}" for r in range(2)]
    assert job.returncode == 5


def test_ranks_die_with_the_launcher(script):
    path = script("""
        import os, signal
        print(os.getpid())
        signal.pause()
    """)
    job = subprocess.Popen([*COMMAND, "-n", "2", path], stdout=subprocess.PIPE, text=True)
    ranks = [os.pidfd_open(int(job.stdout.readline().split()[1])) for _ in range(2)]
    job.kill()
    job.communicate(timeout=30)
    for rank in ranks:
        assert select.select([rank], [], [], 10)[0], "the rank outlived its launcher"
        os.close(rank)


def test_an_heir_that_keeps_the_pipe_does_not_hold_the_job(script):
    path = script("""
        import subprocess, sys
        heir = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
        print(heir.pid)
    """)
    done = launch("-n", "1", path)
    os.kill(int(done.stdout.split()[1]), signal.SIGKILL)
    assert done.returncode == 0


SHOW = "import json, os; print(json.dumps([sorted(os.sched_getaffinity(0)), os.environ.get('THALWEG_DEVICE')]))"


def bound(*options: str, **environment: str) -> list[tuple[set[int], str | None]]:
    """(processors, THALWEG_DEVICE) of two ranks."""
    done = launch("-n", "2", "--bind", *options, sys.executable, "-c", SHOW, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    said = {line[:3]: json.loads(line[4:]) for line in done.stdout.splitlines()}
    return [(set(processors), device) for processors, device in (said["[0]"], said["[1]"])]


def test_bind_divides_the_processors():
    (one, first), (other, second) = bound()
    mine = os.sched_getaffinity(0)
    assert one and other and one | other <= mine
    if len(mine) > 1:
        assert not one & other
    assert first is None and second is None, "there is no device"


def machine(path: pathlib.Path, numa: list[list[int]], gpus: list[int]) -> str:
    """A file with a core for each processor of each NUMA node, and each GPU at its node."""
    nodes = [{"id": "machine"}]
    nodes += [{"id": f"numa:{i}", "parent": "machine"} for i in range(len(numa))]
    cores = [(i, processor) for i, some in enumerate(numa) for processor in some]
    nodes += [{"id": f"core:{n}", "parent": f"numa:{i}", "processors": str(p)} for n, (i, p) in enumerate(cores)]
    nodes += [{"id": f"gpu:{n}", "parent": f"numa:{i}"} for n, i in enumerate(gpus)]
    path.write_text(json.dumps({"format": "thalweg topology 1", "name": "test", "nodes": nodes, "links": []}))
    return str(path)


def test_bind_goes_by_the_topology(tmp_path):
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < 2:
        pytest.skip("needs two processors")
    file = machine(tmp_path / "m.json", [[mine[1]], [mine[0]]], [0, 1])  # GPU 0 is at the other processor
    said = bound(THALWEG_TOPOLOGY=file, THALWEG_EMULATED="devices=2")
    assert said == [({mine[1]}, "emulated:0"), ({mine[0]}, "emulated:1")]


def test_bind_shares_no_processor_where_gpus_are_at_another_socket(tmp_path):
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < 2:
        pytest.skip("needs two processors")
    file = machine(tmp_path / "m.json", [mine[:2], []], [0, 1])  # the other socket has no processor that may be used
    said = bound(THALWEG_TOPOLOGY=file, THALWEG_EMULATED="devices=2")
    assert said == [({mine[0]}, "emulated:0"), ({mine[1]}, "emulated:1")]
    file = machine(tmp_path / "n.json", [[mine[1]], [mine[0]]], [0])  # one GPU, whose socket has one core
    assert bound(THALWEG_TOPOLOGY=file, THALWEG_EMULATED="devices=1") == [({mine[1]}, "emulated:0"), ({mine[0]}, "emulated:0")]


def test_a_run_within_a_rank_does_not_inherit_its_device(tmp_path):
    """The device is that rank's. What the user gave a run goes through to its ranks."""
    show = [sys.executable, "-c", "import os; print(os.environ.get('THALWEG_DEVICE'))"]
    inner = [sys.executable, "-m", "thalweg._cli.main", "run", "-n", "2", *show]
    file = machine(tmp_path / "m.json", [sorted(os.sched_getaffinity(0))], [0])
    given = {**os.environ, "THALWEG_TOPOLOGY": file, "THALWEG_EMULATED": "devices=1"}
    given.pop("THALWEG_RANK", None)
    done = launch("-n", "1", "--bind", *show, env=given)
    assert done.stdout == "[0] emulated:0\n", done.stderr
    done = launch("-n", "1", "--bind", *inner, env=given)
    assert sorted(done.stdout.splitlines()) == ["[0] [0] None", "[0] [1] None"], done.stderr
    done = launch("-n", "1", *show, env={**given, "THALWEG_DEVICE": "cuda:7"})
    assert done.stdout == "[0] cuda:7\n", done.stderr


def test_bind_refuses_another_machines_topology(tmp_path):
    file = machine(tmp_path / "m.json", [[1000, 1001]], [])
    done = launch("-n", "2", "--bind", sys.executable, "-c", SHOW, env={**os.environ, "THALWEG_TOPOLOGY": file})
    assert done.returncode == 1 and "another machine's" in done.stderr and not done.stdout
    (tmp_path / "m.json").write_text('{"format": "thalweg topology 1", "nodes": [{"id": "gpu:0"}]}')
    done = launch("-n", "2", "--bind", sys.executable, "-c", SHOW, env={**os.environ, "THALWEG_TOPOLOGY": file})
    assert done.returncode == 1 and f'{file}:1:51: "id" is "gpu:0"' in done.stderr


def test_rank_0_reads_standard_input():
    done = launch("-n", "2", sys.executable, "-c", "import sys; print(len(sys.stdin.read()))", input="hello")
    assert sorted(done.stdout.splitlines()) == ["[0] 5", "[1] 0"]


def test_no_such_program():
    done = launch("-n", "2", "no-such-program-here")
    assert done.returncode == 127 and "no such program" in done.stderr


def test_a_reader_that_leaves_does_not_end_the_job(script, tmp_path):
    path = script(f"""
        import os
        for i in range(20000):
            print(i)
        open({str(tmp_path / "done")!r} + os.environ["THALWEG_RANK"], "w")
    """)
    job = subprocess.run(f"{' '.join(COMMAND)} -n 2 {path} | head -1", shell=True, capture_output=True, timeout=60)
    assert job.stdout.count(b"\n") == 1
    assert (tmp_path / "done0").exists() and (tmp_path / "done1").exists()


def ignoring(*numbers: signal.Signals):
    """What makes a program begin as nohup, and shells, begin it."""
    return lambda: [signal.signal(number, signal.SIG_IGN) for number in numbers]


def test_exit_codes_are_kept_where_the_parent_ignores_sigchld():
    """The kernel throws them away under an inherited SIG_IGN."""
    done = launch("-n", "2", "sh", "-c", "[ $THALWEG_RANK = 0 ] || exit 7", preexec_fn=ignoring(signal.SIGCHLD))
    assert done.returncode == 7 and "rank 1 ended with exit code 7" in done.stderr


def test_output_that_cannot_be_written_does_not_end_the_job(tmp_path):
    program = ["sh", "-c", f"echo x; echo y >&2; sleep 0.5; echo z >&2; touch {tmp_path}/done"]
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, *program], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0 and (tmp_path / "done").exists()
    assert "standard output cannot be written: No space left on device" in done.stderr
    assert done.stderr.count("No space left") == 1 and "[0] y\n" in done.stderr and "[0] z\n" in done.stderr


def test_a_reader_that_leaves_does_not_silence_the_other_stream():
    read, write = os.pipe()
    os.close(read)
    program = ["sh", "-c", "echo x; sleep 0.3; echo still here >&2"]
    done = subprocess.run([*COMMAND, *program], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert done.returncode == 0 and done.stderr == "[0] still here\n"


@pytest.mark.parametrize("fails", [False, True])
def test_signals_are_heard_while_nobody_reads(script, fails):
    """Also where all ranks have ended, and output is left."""
    path = script(f"""
        import os
        os.write(1, (b"x" * 1023 + b"\\n") * {200 if fails else 4096})
        os._exit(7)
    """)
    job = subprocess.Popen([*COMMAND, "-n", "1", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if fails:
        assert job.stderr.readline() == "thalweg run: rank 0 ended with exit code 7\n"
        assert job.poll() is None, "it waits for its reader"
    else:
        assert select.select([job.stdout], [], [], 20)[0]
    start = time.monotonic()
    job.send_signal(signal.SIGTERM)
    code = job.wait(10)
    assert code == (7 if fails else 143) and time.monotonic() - start < 5
    job.communicate(timeout=10)


def test_all_arrives_where_the_reader_is_slow(script):
    """More than waits in the launcher and the pipes."""
    path = script("""
        for i in range(40000):
            print(i, "x" * 90)
    """)
    job = subprocess.Popen([*COMMAND, "-n", "2", path], stdout=subprocess.PIPE)
    time.sleep(1)  # it fills what there is
    out, _ = job.communicate(timeout=60)
    lines = out.splitlines()
    assert job.returncode == 0 and len(lines) == 80000
    for rank in (b"[0]", b"[1]"):
        assert [int(line.split()[1]) for line in lines if line.startswith(rank)] == list(range(40000))


def test_what_a_rank_has_started_does_not_outlive_a_failed_job(tmp_path):
    """Although the rank itself has ended by SIGTERM, before the SIGKILL."""
    stays = tmp_path / "stays.py"
    stays.write_text(f"""
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open({str(tmp_path / "go")!r}, "w") as go:
    go.write(str(os.getpid()))
while True:
    signal.pause()
""")
    os.mkfifo(tmp_path / "go")
    program = (
        f"if [ $THALWEG_RANK = 1 ]; then {sys.executable} {stays}; true; else read pid < {tmp_path}/go; echo $pid; exit 3; fi"
    )
    done = launch("-n", "2", "sh", "-c", program)
    assert done.returncode == 3, done.stderr
    assert not alive(int(done.stdout.split()[1]))


def test_a_signal_that_it_was_started_to_ignore_stays_ignored():
    """As by nohup."""
    program = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, flush=True); input(); print('end')"
    job = subprocess.Popen(
        [*COMMAND, "-n", "1", sys.executable, "-c", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=ignoring(signal.SIGHUP),
    )  # fmt: skip
    assert job.stdout.readline() == "[0] True\n"
    job.send_signal(signal.SIGHUP)
    out, _ = job.communicate("\n", timeout=30)
    assert job.returncode == 0 and out == "[0] end\n"


@pytest.mark.parametrize(
    "rank_0, code",
    [("exit 7", 7), ("trap 'exit 0' TERM; kill -TERM $PPID; while :; do sleep 0.02; done", 128 + signal.SIGTERM)],
)
def test_once_the_job_ends_no_further_rank_is_started(rank_0, code):
    """A signal or a rank's failure is heard between two starts, of which the first rank needs few for its word."""
    program = f"[ $THALWEG_RANK != 0 ] || {{ {rank_0}; }}; trap 'exit 0' TERM; while :; do sleep 0.02; done"
    done = launch("-n", "200", "--json", "sh", "-c", program)
    assert done.returncode == code, done.stderr
    summary = json.loads(done.stdout)
    assert summary["exit_code"] == code and 0 < len(summary["ranks"]) < 200
    assert not any(alive(r["pid"]) for r in summary["ranks"])


def limit_of_open_files(soft: int, hard: int):
    """What makes a program begin with these limits."""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_ranks_beyond_the_limit_of_open_files_are_refused_with_the_remedy(script):
    path = script("import time; time.sleep(60)")
    done = launch("-n", "40", path, preexec_fn=limit_of_open_files(64, 64))
    assert done.returncode == 126 and "cannot start" in done.stderr
    assert "40 ranks" in done.stderr and "ulimit -n" in done.stderr


def test_none_starts_where_the_connections_to_the_store_would_find_no_descriptor(tmp_path):
    """Outputs and ends alone would fit."""
    done = launch("-n", "40", "touch", str(tmp_path / "started"), preexec_fn=limit_of_open_files(150, 150))
    assert done.returncode == 126 and "the hard limit is 150" in done.stderr and "ulimit -n" in done.stderr
    assert not (tmp_path / "started").exists()


def test_the_soft_limit_of_open_files_is_raised_for_the_launcher_alone():
    show = "import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    done = launch("-n", "30", sys.executable, "-c", show, preexec_fn=limit_of_open_files(64, 512))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"[{rank}] 64 512" for rank in range(30))


def test_a_rank_that_cannot_start_is_told_as_such(tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    done = launch("-n", "2", str(program))
    assert done.returncode == 126 and f"cannot start {program}" in done.stderr
