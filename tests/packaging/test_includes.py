# SPDX-License-Identifier: Apache-2.0
"""A public header includes what it needs, and nothing includes itself by a detour: thalweg.h and thalweg.hpp are umbrellas
over parts. That each compiles alone is tests/headers."""

import re

from conftest import ROOT

INCLUDE = ROOT / "include"
HEADERS = {path.relative_to(INCLUDE).as_posix(): path for path in INCLUDE.rglob("*.h*")}


def included(name):
    """Public headers that a public header includes."""
    text = HEADERS[name].read_text()
    names = re.findall(r"^#include [<\"]([\w/.]+)[>\"]", text, re.MULTILINE)
    beside = [f"{name.rpartition('/')[0]}/{one}" for one in names]
    return [one for one in [*names, *beside] if one in HEADERS]


def reached(name):
    """All that it includes, by whatever detour."""
    found, open_ones = set(), included(name)
    while open_ones:
        one = open_ones.pop()
        if one not in found:
            found.add(one)
            open_ones += included(one)
    return found


def test_no_header_includes_itself():
    assert len(HEADERS) > 25
    circular = [name for name in HEADERS if name in reached(name)]
    assert not circular, circular


def test_parts_of_the_c_interface_do_not_need_the_whole():
    parts = [name for name in included("thalweg/thalweg.h") if name.endswith(".h")]
    assert len(parts) == 11, parts
    for name in parts:
        assert "thalweg/thalweg.h" not in reached(name), name
    assert reached("thalweg/types.h") == set()
