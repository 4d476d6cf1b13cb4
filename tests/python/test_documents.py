# SPDX-License-Identifier: Apache-2.0
"""The documents name functions, constants and members that exist."""

import pathlib
import re

import pytest
import thalweg

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DECLARED = "\n".join(path.read_text() for path in sorted((ROOT / "include").rglob("*")) if path.is_file())
WORDS = set(re.findall(r"\w+", DECLARED))
# A shorthand for several (`TW_OP_*`, `tw_request_wait_...`) or a program's own names.
C_NAMES = re.compile(r"\b(?:tw|TW)_[A-Za-z0-9_]*[A-Za-z0-9]\b(?![_*])")
PYTHON_NAMES = re.compile(r"`(?:thalweg|tw)((?:\.[A-Za-z_]\w*)+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_c_are_declared(page: pathlib.Path) -> None:
    names = set(C_NAMES.findall(page.read_text()))
    assert sorted(names - WORDS) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_python_exist(page: pathlib.Path) -> None:
    for path in PYTHON_NAMES.findall(page.read_text()):
        if path.startswith((".h", ".json", ".device")):
            continue
        found = thalweg
        for name in path.split(".")[1:]:
            found = getattr(found, name)


def test_the_architecture_has_the_sizes_of_the_rings() -> None:
    layout = (ROOT / "src/transports/shm/layout.hpp").read_text()

    def size(name: str) -> int:
        first, _, second = re.search(rf"\b{name} = (\d+)( \* (\d+))?;", layout).groups()
        return int(first) * int(second or 1)

    body = int(re.search(r"kInlineMax = .*// (\d+)", layout)[1])
    page = " ".join((ROOT / "ARCHITECTURE.md").read_text().split())
    assert f"{size('kSlots')} slots of {size('kSlotBytes')} bytes (header and up to {body} body bytes)" in page
    assert f"ring of {size('kBulkBytes') >> 10} KiB for larger bodies" in page
    assert f"of {size('kDeepBytes') >> 10} KiB or" in page


def test_the_pages_name_many() -> None:
    """The patterns find what they look for."""
    text = (ROOT / "docs" / "coming-from.md").read_text()
    assert len(set(C_NAMES.findall(text))) > 100
