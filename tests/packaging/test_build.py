# SPDX-License-Identifier: Apache-2.0
"""The build asks what the compiler can do."""

import os
import pathlib
import re
import shutil
import stat

import pytest
from conftest import BUILD, ROOT, run

pytestmark = pytest.mark.timeout(600)

WITHOUT_LTO = """#!/bin/sh
for argument; do
  case "$argument" in -flto*) echo "lto-wrapper: not found" >&2; exit 1;; esac
done
exec {compiler} "$@"
"""


def test_a_compiler_without_working_lto_is_told_and_builds_without(tmp_path):
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None or "Free Software Foundation" not in run(compiler, "--version"):
        pytest.skip("link-time optimisation is used with GCC, which is absent")
    broken = tmp_path / "g++"
    broken.write_text(WITHOUT_LTO.format(compiler=compiler))
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    build = tmp_path / "build"
    options = ["-DTHALWEG_TESTS=OFF", "-DTHALWEG_TOOLS=OFF", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER={broken}"]
    said = run("cmake", "-S", ROOT, "-B", build, "-G", "Ninja", *options)
    assert "Link-time optimisation: none" in said and "lto-wrapper: not found" in said, said
    assert "-flto" not in (build / "build.ninja").read_text()


def test_the_target_of_the_package_builds_all_that_the_package_installs():
    """`make demo` builds no more than that target, in a fresh clone too."""
    if not (BUILD / "python" / "cmake_install.cmake").exists():
        pytest.skip(f"{BUILD} has no Python module: make build")
    build = BUILD.resolve()
    component = re.compile(r'if\(CMAKE_INSTALL_COMPONENT STREQUAL "python"\)(.*?)^endif\(\)', re.DOTALL | re.MULTILINE)
    scripts = [path.read_text() for path in build.rglob("cmake_install.cmake") if build / "package" not in path.parents]
    parts = [part for script in scripts for part in component.findall(script)]
    files = [pathlib.Path(name) for part in parts for name in re.findall(r'file\(INSTALL .*? FILES "([^"]+)"', part)]
    wanted = {path.relative_to(build) for path in files if build in path.parents}
    assert any(path.name.startswith("_core.") for path in wanted), wanted
    made = {
        pathlib.Path(line.strip()) for line in run("ninja", "-C", build, "-t", "query", "python/thalweg_package").splitlines()
    }
    named = {(path.parent, path.name.split(".so")[0]) for path in made}  # libraries by any of their links
    missing = {str(path) for path in wanted if (path.parent, path.name.split(".so")[0]) not in named}
    assert not missing, missing
