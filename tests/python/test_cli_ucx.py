# SPDX-License-Identifier: Apache-2.0
"""``thalweg ucx``: what a program that uses UCX finds, and what the command says about it."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from thalweg._cli import native, ucx

COMMAND = [sys.executable, "-m", "thalweg._cli.main", "ucx"]
ADAPTER = native.PACKAGE / "ucx" / "libucp.so.0"
LIBUCS = ctypes.util.find_library("ucs") is not None or importlib.util.find_spec("libucx") is not None


def launch(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """thalweg ucx with a bound on its time."""
    return subprocess.run(
        [*COMMAND, *arguments], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def pretended(tmp_path: pathlib.Path) -> dict[str, str]:
    """Any file as the adapter, for what never loads it; and a cache of its own."""
    library = tmp_path / "libucp.so.0"
    library.write_text("no library")
    return {"THALWEG_UCX_LIBRARY": str(library), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_settings_give_way_to_the_users(pretended):
    done = launch("--", "env", **pretended, OMPI_MCA_pml="ob1", LD_LIBRARY_PATH="/before")
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert done.returncode == 0
    assert found["OMPI_MCA_pml"] == "ob1" and found["OMPI_MCA_osc"] == "ucx" and found["MPIR_CVAR_NOLOCAL"] == "1"
    folders = found["LD_LIBRARY_PATH"].split(":")
    assert folders[-1] == "/before"
    for name in ("libucp.so", "libucp.so.0"):
        assert os.readlink(pathlib.Path(folders[0]) / name) == pretended["THALWEG_UCX_LIBRARY"]
    # Nothing else is put before other libraries.
    assert sorted(os.listdir(folders[0])) == ["libucp-thalweg.so.0", "libucp.so", "libucp.so.0"]


@pytest.mark.parametrize("kind", ["link", "open"])
def test_a_cache_that_others_may_change_is_not_loaded_from(kind, pretended):
    cache = pathlib.Path(pretended["XDG_CACHE_HOME"])
    cache.mkdir()
    if kind == "link":
        (cache / "elsewhere").mkdir(mode=0o700)
        (cache / "thalweg").symlink_to(cache / "elsewhere")
    else:
        (cache / "thalweg").mkdir()
        (cache / "thalweg").chmod(0o777)
    done = launch("--", "true", **pretended)
    assert done.returncode == 127 and "XDG_CACHE_HOME" in done.stderr


def test_the_cache_is_the_users_alone(pretended):
    assert launch("--", "true", **pretended).returncode == 0
    folders = [pathlib.Path(pretended["XDG_CACHE_HOME"]) / "thalweg"]
    folders += [folder for folder in folders[0].iterdir()]
    assert len(folders) == 2 and all(folder.stat().st_mode & 0o777 == 0o700 for folder in folders)


def test_the_exit_code_is_the_programs_and_who_used_none_is_said(pretended):
    done = launch("--", "sh", "-c", "exit 7", **pretended)
    assert done.returncode == 7
    assert "no process used libucp" in done.stderr and "does not name libucp itself" in done.stderr
    assert launch("--quiet", "--", "true", **pretended).stderr == ""


def test_what_is_missing_is_said_with_the_remedy(tmp_path, pretended):
    done = launch("--", "true", THALWEG_UCX_LIBRARY=str(tmp_path / "none"))
    assert done.returncode == 127 and "libucx-cu12" in done.stderr
    done = launch("--", "no-such-program", **pretended)
    assert done.returncode == 127 and "no-such-program is not on PATH" in done.stderr


@pytest.mark.skipif(not ADAPTER.is_file(), reason="built without UCX's headers")
@pytest.mark.skipif(not LIBUCS, reason="no libucs (scripts/setup.sh, or Debian: libucx0)")
def test_who_used_it_is_said():
    program = """
import ctypes
ucp = ctypes.CDLL("libucp.so.0")
parameters = (ctypes.c_uint64 * 16)(1, 1)  # features: tags
context = ctypes.c_void_p()
assert ucp.ucp_init_version(1, 13, parameters, None, ctypes.byref(context)) == 0
ucp.ucp_cleanup(context)
"""
    done = launch("--", sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    assert "libucp.so.0 was Thalweg's for" in done.stderr and "(1 process)" in done.stderr


def environment_with(folder: pathlib.Path, package: str) -> pathlib.Path:
    """A Python environment that has this file of a package; its program, which tells what it finds."""
    program = folder / "bin" / "program"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "preload $LD_PRELOAD"\necho "paths $LD_LIBRARY_PATH"\n')
    program.chmod(0o755)
    copy = folder / "lib" / "python3.11" / "site-packages" / package
    copy.parent.mkdir(parents=True)
    copy.touch()
    return program


@pytest.mark.parametrize("words", [["{program}"], ["env", "{program}"]])
def test_a_copy_with_a_name_of_its_own_is_preloaded_against(tmp_path, words):
    """Also where paths have spaces, which separate the names in LD_PRELOAD; and for a program that another one starts."""
    library = tmp_path / "a build" / "libucp.so.0"
    library.parent.mkdir()
    library.write_text("no library")
    program = environment_with(tmp_path / "an environment", "nixl_cu12.libs/libucp-b39b3ed9.so.0")
    command = [word.format(program=program) for word in words]
    done = launch("--", *command, THALWEG_UCX_LIBRARY=str(library), XDG_CACHE_HOME=str(tmp_path / "a cache"), LD_PRELOAD="")
    found = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert found["preload"] == "libucp-thalweg.so.0"
    link = pathlib.Path(found["paths"].split(":")[0]) / found["preload"]
    assert os.readlink(link) == str(library.parent / "preloaded" / library.name)
    assert "libucp-b39b3ed9.so.0 has a name of its own" in done.stderr


def test_packages_beside_the_command_are_not_the_programs(tmp_path, pretended, monkeypatch):
    """A copy in Thalweg's own environment is nothing to a program of another one."""
    environment_with(tmp_path / "own", "nixl_cu12.libs/libucp-b39b3ed9.so.0")
    program = environment_with(tmp_path / "its", "other/file")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "own"))
    monkeypatch.setattr(os, "environ", os.environ | pretended)
    found = ucx.environment(pathlib.Path(pretended["THALWEG_UCX_LIBRARY"]), [str(program)], "users", lambda _: None)
    assert found.get("LD_PRELOAD", "") == os.environ.get("LD_PRELOAD", "")
    assert not any(str(tmp_path / "own") in folder for folder in found["LD_LIBRARY_PATH"].split(":"))


def test_a_user_without_a_home_is_told_what_to_set(pretended, monkeypatch):
    def homeless() -> pathlib.Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pathlib.Path, "home", homeless)
    with pytest.raises(native.NativeError, match="XDG_CACHE_HOME"):
        ucx.folder_of(pathlib.Path(pretended["THALWEG_UCX_LIBRARY"]))


def begin(pretended: dict[str, str], script: str) -> subprocess.Popen[str]:
    """The command with a program that has written a line."""
    process = subprocess.Popen(
        [*COMMAND, "--", "sh", "-c", script],
        env={**os.environ, **pretended},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_reach_the_program(pretended, number):
    """It cleans up in its own time, and its code is the command's."""
    name = signal.Signals(number).name.removeprefix("SIG")
    process = begin(pretended, f"trap 'sleep 0.6; echo cleaned; exit 7' {name}; echo begun; while :; do sleep 0.1; done")
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 7 and out == "cleaned\n"
    assert "no process used libucp" in err  # the report is not lost


def test_a_program_that_a_signal_ends_gives_its_number(pretended):
    process = begin(pretended, "echo begun; exec sleep 60")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM


def test_the_programs_end_is_heard_where_the_parent_ignores_sigchld(pretended):
    done = subprocess.run(
        [*COMMAND, "--", "sh", "-c", "exit 7"],
        env={**os.environ, **pretended},
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 7


def test_a_killed_command_takes_its_program_along(pretended):
    process = begin(pretended, "trap 'echo cleaned; exit' TERM; echo begun; while :; do sleep 0.1; done")
    process.kill()
    start = time.monotonic()
    out, _ = process.communicate(timeout=20)  # ends with the last that has the pipe
    assert out == "cleaned\n" and time.monotonic() - start < 10


def test_an_adapter_of_old_headers_is_told(tmp_path, pretended):
    """The number is asked of the library."""
    folder = tmp_path / "preloaded"
    folder.mkdir()
    source = "void ucp_get_version(unsigned* a, unsigned* b, unsigned* c) { *a = 1; *b = MINOR; *c = 0; }"
    for minor, told in ((13, True), (22, False)):
        library = folder / "libucp.so.0"
        library.unlink(missing_ok=True)  # a loaded one is not written over
        command = ["cc", "-shared", "-fPIC", f"-DMINOR={minor}", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=source, text=True, check=True, timeout=60)
        done = launch("--", "true", **pretended)
        assert ("this adapter is as UCX 1.13" in done.stderr) == told


@pytest.mark.skipif(not ADAPTER.is_file(), reason="built without UCX's headers")
@pytest.mark.skipif(ctypes.util.find_library("ucp") is None, reason="no libucp of UCX's (Debian: libucx0)")
def test_it_does_not_meet_ucxs_own_in_one_process():
    program = f"""
import ctypes
def address(ucp):
    context, worker, at, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    assert ucp.ucp_init_version(1, 13, (ctypes.c_uint64 * 16)(1, 1), None, ctypes.byref(context)) == 0
    assert ucp.ucp_worker_create(context, (ctypes.c_uint64 * 64)(), ctypes.byref(worker)) == 0
    assert ucp.ucp_worker_get_address(worker, ctypes.byref(at), ctypes.byref(size)) == 0
    found = ctypes.string_at(at, 4)
    ucp.ucp_worker_release_address(worker, at)
    ucp.ucp_worker_destroy(worker)
    ucp.ucp_cleanup(context)
    return found
theirs = ctypes.CDLL("{ctypes.util.find_library("ucp")}", mode=ctypes.RTLD_GLOBAL)
ours = ctypes.CDLL("{ADAPTER}", mode=ctypes.RTLD_GLOBAL)
for _ in range(2):
    assert address(theirs) != b"TWU1" and address(ours) == b"TWU1"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
