# SPDX-License-Identifier: Apache-2.0
"""An outside project builds against the installed library, by CMake and by pkg-config, and runs."""

import os
import re
import subprocess

import pytest
from conftest import need, run

pytestmark = pytest.mark.timeout(600)


def library_of(prefix):
    """The shared library's file under the prefix."""
    found = sorted(prefix.rglob("libthalweg.so.*.*"))
    assert len(found) == 1, found
    return found[0]


def test_cmake_package(prefix, consumer, tmp_path):
    run("cmake", "-S", consumer, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    assert "through the installed library" in run(tmp_path / "consumer")


@pytest.mark.parametrize("standard", ["the compiler's default", "17"])
def test_cmake_package_carries_its_cpp_standard(prefix, consumer, tmp_path, standard):
    chosen = [] if not standard.isdigit() else [f"-DCMAKE_CXX_STANDARD={standard}"]
    run("cmake", "-S", f"{consumer}_cpp", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", *chosen)
    run("cmake", "--build", tmp_path)
    environment = os.environ | {"THALWEG_RANK": "1", "THALWEG_SIZE": "3"}
    assert "through the installed library, rank 1 of 3" in run(tmp_path / "consumer", env=environment)


def test_an_older_cpp_standard_is_named_in_one_error(prefix, consumer):
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-fsyntax-only", f"-I{prefix / 'include'}"]
    program = "#include <thalweg/thalweg.hpp>\nint main() { return tw_version() == 0; }\n"
    done = subprocess.run([*command, "-x", "c++", "-"], input=program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "thalweg.hpp needs C++20: compile with -std=c++20" in done.stderr


def test_pkg_config_also_after_the_prefix_has_moved(prefix, consumer, tmp_path):
    need("pkg-config")
    moved = tmp_path / "elsewhere"
    run("cp", "-a", prefix, moved)
    folder = next(moved.rglob("thalweg.pc")).parent
    environment = os.environ | {"PKG_CONFIG_PATH": str(folder)}
    flags = run("pkg-config", "--cflags", "--libs", "thalweg", env=environment).split()
    assert str(moved / "include") in [os.path.normpath(flag[2:]) for flag in flags if flag.startswith("-I")]
    program = tmp_path / "consumer"
    run(os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", consumer / "consumer.c", "-o", program, *flags)
    output = run(program, env=os.environ | {"LD_LIBRARY_PATH": str(library_of(moved).parent)})
    assert "through the installed library" in output
    assert run("pkg-config", "--modversion", "thalweg", env=environment).strip() == "0.1.0"


def test_only_tw_names_are_visible_with_soname_and_version(prefix):
    need("readelf")
    library = library_of(prefix)
    dynamic = run("readelf", "-dW", library)
    assert "Library soname: [libthalweg.so.0]" in dynamic
    assert "RUNPATH" not in dynamic and "RPATH" not in dynamic
    names = set()
    for line in run("readelf", "--dyn-syms", "-W", library).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[4] in ("GLOBAL", "WEAK") and fields[6] not in ("UND", "ABS"):
            names.add(fields[7])
    public = {name for name in names if not name.startswith("tw_")}
    assert not public, public
    assert "tw_send@@THALWEG_0" in names


def test_every_declared_function_is_exported(prefix):
    need("readelf")
    headers = sorted((prefix / "include" / "thalweg").glob("*.h"))
    declared = {name for header in headers for name in re.findall(r"TW_(?:API|CHECKED)[^;]*?\b(tw_\w+)\(", header.read_text())}
    exported = set(re.findall(r"\b(tw_\w+)@@", run("readelf", "--dyn-syms", "-W", library_of(prefix))))
    assert declared, "no declaration was found"
    assert declared == exported
