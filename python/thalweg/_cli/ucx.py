# SPDX-License-Identifier: Apache-2.0
"""``thalweg ucx``: a program that uses UCX, with Thalweg's libucp in place of UCX's."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import ctypes.util
import hashlib
import importlib.util
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from . import launcher, native

HELP = """Runs a program that uses UCX, as MPIs, OpenSHMEM and UCXX do, on Thalweg: its libucp.so.0 is replaced, nothing else.

It sets what such programs need, where the environment does not say otherwise, and says afterwards which processes used it, or
why none did. Other processes of one job must run the same way: Thalweg's addresses mean nothing to UCX.

Examples: [bold]thalweg ucx -- mpirun -n 4 ./solver[/bold], [bold]thalweg ucx -- mpiexec -n 2 python job.py[/bold],
[bold]thalweg ucx -- ucx_perftest -t tag_lat[/bold]. What runs, and what does not: docs/adapters.md."""

# Open MPI: messages, windows and OpenSHMEM by UCX although no network card of Mellanox's is there. MPICH: UCX between ranks of
# one machine, too. UCXX: the library that the loader finds.
SETTINGS = {
    "OMPI_MCA_pml": "ucx",
    "OMPI_MCA_osc": "ucx",
    "OMPI_MCA_spml": "ucx",
    "OMPI_MCA_opal_common_ucx_tls": "any",
    "OMPI_MCA_opal_common_ucx_devices": "any",
    "MPIR_CVAR_CH4_NETMOD": "ucx",
    "MPIR_CVAR_NOLOCAL": "1",
    "RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY": "true",
}
PRELOADED = "libucp-thalweg.so.0"
NEWEST = (1, 22)  # what adapters/ucp knows
SI_KERNEL = 0x80  # si_code of what a terminal's keys send


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "ucx",
        help=HELP,
        context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False, "allow_extra_args": True},
    )(ucx)


def ucx(
    context: typer.Context,
    program: Annotated[str, typer.Argument(help="The program; its arguments follow.")],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> None:
    """Runs the program, and exits with its code."""
    command = [program, *context.args]

    def say(text: str) -> None:
        if not quiet:
            typer.echo(f"thalweg ucx: {text}", err=True)

    try:
        library = find_library()
        found = shutil.which(program)
        if found is None:
            raise native.NativeError(f"{program} is not on PATH")
        with tempfile.NamedTemporaryFile("r", prefix="thalweg-ucx-") as users:
            code = run(command, environment(library, [found, *context.args], users.name, say))
            report(users.read(), found, say)
    except (native.NativeError, OSError) as error:
        typer.secho(f"thalweg ucx: {error}", err=True, fg="red")
        raise typer.Exit(127) from None
    raise typer.Exit(code if code >= 0 else 128 - code)


def run(command: list[str], variables: dict[str, str]) -> int:
    """The program's return code. It stays in this process's group, and so the terminal's.

    It gets the signals that this process gets, except a terminal's, which the whole group gets, and SIGTERM when this process
    is killed.
    """
    parent, libc = os.getpid(), ctypes.CDLL(None)
    waited = {*launcher.FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)

    def prepare() -> None:
        launcher.die_with(libc, parent, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        process = subprocess.Popen(command, env=variables, preexec_fn=prepare)
        while process.poll() is None:
            came = signal.sigwaitinfo(waited)
            if came.si_signo != signal.SIGCHLD and came.si_code != SI_KERNEL:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    process.send_signal(came.si_signo)
        return process.returncode
    finally:
        while signal.sigtimedwait(waited, 0) is not None:
            pass  # what came for a program that has ended does not end the report
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def find_library() -> pathlib.Path:
    """The adapter of the package, else the one that THALWEG_UCX_LIBRARY names."""
    chosen = os.environ.get("THALWEG_UCX_LIBRARY")
    library = pathlib.Path(chosen) if chosen else native.PACKAGE / "ucx" / "libucp.so.0"
    if not library.is_file():
        raise native.NativeError(
            f"there is no {library}: this build was made without UCX's headers. Install them (scripts/setup.sh, or pip install "
            "libucx-cu12; Debian's libucx-dev is of 1.13) and build again, or set THALWEG_UCX_LIBRARY to the libucp.so.0 of a "
            "build (adapters/ucp/lib)."
        )
    return library.resolve()


def environment(library: pathlib.Path, command: list[str], users: str, say: Callable[[str], None]) -> dict[str, str]:
    """What the program finds: our libucp before any other, then UCX's other libraries where a Python package has them.

    That is one of the program's environment, or of this one where the system has none.
    """
    tell_version(library, say)
    packages = site_packages(command)
    others = libucx_folders(packages)
    if not others and ctypes.util.find_library("ucs") is None:
        others = libucx_folders(own_packages())
    folders = [folder_of(library), native.PACKAGE, *others]
    before = os.environ.get("LD_LIBRARY_PATH", "")
    found = {**SETTINGS, **os.environ}
    found["LD_LIBRARY_PATH"] = ":".join([*map(str, folders), *([before] if before else [])])
    found["THALWEG_UCX_USERS"] = users
    hashed = sorted(path for folder in packages for path in folder.glob("*.libs/libucp-*.so*"))
    if hashed:
        # A wheel's own copy has a name of its own, which no search path replaces. What is preloaded names no libucs: another
        # one before the wheel's own would be called instead. By a name in the first folder: spaces in a path would end it.
        found["LD_PRELOAD"] = ":".join(filter(None, [PRELOADED, os.environ.get("LD_PRELOAD", "")]))
        say(f"{hashed[0].name} has a name of its own, so {library.name} is loaded before it (LD_PRELOAD)")
    return found


def tell_version(library: pathlib.Path, say: Callable[[str], None]) -> None:
    """Says when the adapter was built with old headers: programs built for a newer UCX miss functions."""
    numbers = [ctypes.c_uint() for _ in range(3)]
    try:  # this one can be loaded where there is no libucs
        ctypes.CDLL(str(library.parent / "preloaded" / library.name)).ucp_get_version(*map(ctypes.byref, numbers))
    except (OSError, AttributeError):
        return
    major, minor = numbers[0].value, numbers[1].value
    if (major, minor) < NEWEST:
        say(
            f"this adapter is as UCX {major}.{minor}, by the headers that it was built with: programs built for a newer one "
            f"may not find their functions. Build it with {NEWEST[0]}.{NEWEST[1]}'s (scripts/setup.sh installs them)"
        )


def cache() -> pathlib.Path:
    """Where a user's programs keep what they can make again."""
    try:
        return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    except RuntimeError:
        raise native.NativeError(
            "this user has no home directory; set XDG_CACHE_HOME to a folder that may be written"
        ) from None


def folder_of(library: pathlib.Path) -> pathlib.Path:
    """A folder with nothing but the library, by both names under which programs ask for it, and what may be preloaded."""
    folder = cache() / "thalweg" / f"ucx-{hashlib.sha256(os.fsencode(library)).hexdigest()[:16]}"
    cache().mkdir(parents=True, exist_ok=True)
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)
        check_own(each)
    preloaded = library.parent / "preloaded" / library.name
    for name, target in (("libucp.so.0", library), ("libucp.so", library), (PRELOADED, preloaded)):
        link = folder / name
        if not link.is_symlink() or os.readlink(link) != str(target):
            with tempfile.TemporaryDirectory(dir=folder) as fresh:
                os.symlink(target, pathlib.Path(fresh) / name)
                os.replace(pathlib.Path(fresh) / name, link)  # another command may do the same
    return folder


def check_own(folder: pathlib.Path) -> None:
    """Programs load what lies there: NativeError where another user may put it there."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        why = "is no folder"
    elif found.st_uid != os.geteuid():
        why = "belongs to another user"
    elif found.st_mode & 0o022:
        why = "may be written by others"
    else:
        return
    raise native.NativeError(
        f"{folder} {why}, so nothing is loaded from it: remove it, or set XDG_CACHE_HOME to a folder of yours"
    )


def site_packages(command: list[str]) -> list[pathlib.Path]:
    """Where the Python packages lie of the environments that the words of the command name, and of the active one."""
    found = [word for word in map(shutil.which, command) if word is not None]
    active = os.environ.get("VIRTUAL_ENV")
    return packages_below(
        [*(pathlib.Path(word).absolute().parent.parent for word in found), *([pathlib.Path(active)] if active else [])]
    )


def own_packages() -> list[pathlib.Path]:
    """Where this environment's packages lie."""
    spec = importlib.util.find_spec("libucx")
    own = [pathlib.Path(spec.origin).parent.parent] if spec is not None and spec.origin is not None else []
    return [*packages_below([pathlib.Path(sys.prefix)]), *own]


def packages_below(roots: Iterable[pathlib.Path]) -> list[pathlib.Path]:
    return [folder for root in dict.fromkeys(roots) for folder in sorted(root.glob("lib*/python3*/site-packages"))]


def libucx_folders(packages: Iterable[pathlib.Path]) -> list[pathlib.Path]:
    """UCX's libraries of the Python package libucx."""
    return [folder / "libucx" / "lib" for folder in dict.fromkeys(packages) if (folder / "libucx" / "lib").is_dir()]


def report(users: str, program: str, say: Callable[[str], None]) -> None:
    """Who made a context, by the lines that the adapter has written; nobody: why."""
    processes = {tuple(line.split(" ", 1)) for line in users.splitlines() if " " in line}  # one may make several contexts
    names = collections.Counter(name for _, name in processes)
    if names:
        counted = ", ".join(f"{name} ({count} process{'es' if count > 1 else ''})" for name, count in sorted(names.items()))
        say(f"libucp.so.0 was Thalweg's for {counted}")
        return
    say(f"no process used libucp: {why_none(program)}")


def why_none(program: str) -> str:
    """By the loader's own words."""
    try:
        shown = subprocess.run(["ldd", program], capture_output=True, text=True, check=False, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        shown = ""
    libraries = [line.strip() for line in shown.splitlines() if "libucp" in line]
    if libraries:
        return f"{program} has {libraries[0]}, and did not come to ucp_init"
    return (
        f"{program} does not name libucp itself; what it loads or starts chose another way (Open MPI: is its UCX component "
        "installed? MPICH: is it built with ch4:ucx?)"
    )
