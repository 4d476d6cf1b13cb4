# SPDX-License-Identifier: Apache-2.0
"""``thalweg ucx``: a program that uses UCX, with Thalweg's libucp in place of UCX's."""

from __future__ import annotations

import collections
import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Annotated

import typer

from . import native

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
            code = subprocess.run(command, env=environment(library, found, users.name, say), check=False).returncode
            report(users.read(), found, say)
    except (native.NativeError, OSError) as error:
        typer.secho(f"thalweg ucx: {error}", err=True, fg="red")
        raise typer.Exit(127) from None
    raise typer.Exit(code if code >= 0 else 128 - code)


def find_library() -> pathlib.Path:
    """The adapter of the package, else the one that THALWEG_UCX_LIBRARY names."""
    chosen = os.environ.get("THALWEG_UCX_LIBRARY")
    library = pathlib.Path(chosen) if chosen else native.PACKAGE / "ucx" / "libucp.so.0"
    if not library.is_file():
        raise native.NativeError(
            f"there is no {library}: this build was made without UCX's headers. Install them (Debian: libucx-dev) and build "
            "again, or set THALWEG_UCX_LIBRARY to the libucp.so.0 of a build (adapters/ucp/lib)."
        )
    return library.resolve()


def environment(library: pathlib.Path, program: str, users: str, say: Callable[[str], None]) -> dict[str, str]:
    """What the program finds: our libucp before any other, and UCX's other libraries where a Python package has them."""
    packages = site_packages(program)
    others = [folder / "libucx" / "lib" for folder in packages if (folder / "libucx" / "lib").is_dir()]
    folders = [folder_of(library), native.PACKAGE, *others]
    before = os.environ.get("LD_LIBRARY_PATH", "")
    found = {**SETTINGS, **os.environ}
    found["LD_LIBRARY_PATH"] = ":".join([*map(str, folders), *([before] if before else [])])
    found["THALWEG_UCX_USERS"] = users
    hashed = sorted(path for folder in packages for path in folder.glob("*.libs/libucp-*.so*"))
    if hashed:
        # A wheel's own copy has a name of its own, which no search path replaces.
        # One that names no libucs: another one before the wheel's own would be called instead.
        preloaded = library.parent / "preloaded" / library.name
        found["LD_PRELOAD"] = ":".join(filter(None, [str(preloaded), os.environ.get("LD_PRELOAD", "")]))
        say(f"{hashed[0].name} has a name of its own, so {library.name} is loaded before it (LD_PRELOAD)")
    return found


def folder_of(library: pathlib.Path) -> pathlib.Path:
    """A folder with nothing but the library, by both names under which programs ask for it."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "thalweg" / f"ucx-{hashlib.sha256(os.fsencode(library)).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("libucp.so.0", "libucp.so"):
        link = folder / name
        if not link.is_symlink() or os.readlink(link) != str(library):
            with tempfile.TemporaryDirectory(dir=folder) as fresh:
                os.symlink(library, pathlib.Path(fresh) / name)
                os.replace(pathlib.Path(fresh) / name, link)  # another command may do the same
    return folder


def site_packages(program: str) -> list[pathlib.Path]:
    """Where the Python packages of the program's environment lie, and of this one."""
    roots = {pathlib.Path(program).parent.parent, pathlib.Path(sys.prefix), pathlib.Path(os.environ.get("VIRTUAL_ENV", "/"))}
    folders = [folder for root in sorted(roots) for folder in sorted(root.glob("lib*/python3*/site-packages"))]
    spec = importlib.util.find_spec("libucx")
    if spec is not None and spec.origin is not None:
        folders.append(pathlib.Path(spec.origin).parent.parent)
    return list(dict.fromkeys(folders))


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
