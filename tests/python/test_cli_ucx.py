# SPDX-License-Identifier: Apache-2.0
"""``thalweg ucx``: what a program that uses UCX finds, and what the command says about it."""

from __future__ import annotations

import ctypes.util
import os
import pathlib
import subprocess
import sys

import pytest
from thalweg._cli import native

COMMAND = [sys.executable, "-m", "thalweg._cli.main", "ucx"]
ADAPTER = native.PACKAGE / "ucx" / "libucp.so.0"


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
    assert sorted(os.listdir(folders[0])) == ["libucp.so", "libucp.so.0"]  # nothing else is put before other libraries


def test_the_exit_code_is_the_programs_and_who_used_none_is_said(pretended):
    done = launch("--", "sh", "-c", "exit 7", **pretended)
    assert done.returncode == 7
    assert "no process used libucp" in done.stderr and "does not name libucp itself" in done.stderr
    assert launch("--quiet", "--", "true", **pretended).stderr == ""


def test_what_is_missing_is_said_with_the_remedy(tmp_path, pretended):
    done = launch("--", "true", THALWEG_UCX_LIBRARY=str(tmp_path / "none"))
    assert done.returncode == 127 and "libucx-dev" in done.stderr
    done = launch("--", "no-such-program", **pretended)
    assert done.returncode == 127 and "no-such-program is not on PATH" in done.stderr


@pytest.mark.skipif(not ADAPTER.is_file(), reason="built without UCX's headers")
@pytest.mark.skipif(ctypes.util.find_library("ucs") is None, reason="no libucs (Debian: libucx0)")
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


def test_a_copy_with_a_name_of_its_own_is_preloaded_against(tmp_path, pretended):
    program = tmp_path / "venv" / "bin" / "program"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "preload $LD_PRELOAD"\n')
    program.chmod(0o755)
    copy = tmp_path / "venv" / "lib" / "python3.11" / "site-packages" / "nixl_cu12.libs" / "libucp-b39b3ed9.so.0"
    copy.parent.mkdir(parents=True)
    copy.touch()
    done = launch("--", str(program), **pretended)
    library = pathlib.Path(pretended["THALWEG_UCX_LIBRARY"])
    assert f"preload {library.parent / 'preloaded' / library.name}" in done.stdout
    assert "libucp-b39b3ed9.so.0 has a name of its own" in done.stderr


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
