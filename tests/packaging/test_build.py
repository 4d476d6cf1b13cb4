# SPDX-License-Identifier: Apache-2.0
"""The build asks what the compiler can do."""

import os
import shutil
import stat

import pytest
from conftest import ROOT, run

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
