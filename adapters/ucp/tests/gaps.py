#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the adapter lacks of UCX's interface is in the list of docs/adapters.md, and nothing else is.

usage: gaps.py LIBRARY HEADERS

 - Every function that the headers declare is exported, and nothing else.
 - Every enumerator of theirs (fields, flags, features, operations) is named in the sources, or in the list.
 - Every function that says "unsupported" is in the list.
"""

from __future__ import annotations

import fnmatch
import pathlib
import re
import subprocess
import sys

ADAPTER = pathlib.Path(__file__).resolve().parent.parent
DOCS = ADAPTER.parent.parent / "docs" / "adapters.md"
NAMES = ("ucp.h", "ucp_def.h", "ucp_compat.h", "device/ucp_host.h")
# Enumerators that are no request of a caller: masks, ends of enumerations, second names.
NO_REQUESTS = r"_LAST$|_CLASS_MASK$|_SHIFT$|^UCP_AM_SEND_REPLY$|_VERSION|^UCP_(API|ENTITY)_|^UCP_DEVICE_"


def headers(folder: pathlib.Path) -> str:
    """Their text, without comments."""
    texts = [(folder / "ucp" / "api" / name).read_text() for name in NAMES if (folder / "ucp" / "api" / name).exists()]
    return re.sub(r"/\*.*?\*/", "", "\n".join(texts), flags=re.DOTALL)


def declared(text: str) -> set[str]:
    """Functions with external linkage."""
    text = re.sub(r"static inline.*?\n}", "", text, flags=re.DOTALL)
    return set(re.findall(r"^[a-z][^;{}#=()]*?\b(ucp_\w+)\s*\([^()]*\);", text, re.MULTILINE | re.DOTALL))


def enumerators(text: str) -> set[str]:
    bodies = re.findall(r"enum\b[^{;]*\{(.*?)\}", text, re.DOTALL)
    names = {name for body in bodies for name in re.findall(r"^\s*(UCP_\w+)", body, re.MULTILINE)}
    return {name for name in names if not re.search(NO_REQUESTS, name)}


def exported(library: str) -> set[str]:
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in lines.splitlines()}


def listed() -> tuple[set[str], set[str]]:
    """Functions and enumerators in the docs' list."""
    section = re.search(r"^## What is not supported$(.*?)(?=^## |\Z)", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    if section is None:
        return set(), set()
    return set(re.findall(r"`(ucp_\w+)`", section[1])), set(re.findall(r"`(UCP_\w+\*?)`", section[1]))


def main() -> int:
    library, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    text = headers(folder)
    sources = "\n".join(path.read_text() for path in sorted((ADAPTER / "src").glob("*.?pp")))
    functions, names = listed()
    have, want = exported(library), declared(text)
    refusing = set(re.findall(r'unsupported\(\s*"(ucp_\w+)"', sources))
    findings = [f"{name} is declared and not exported" for name in sorted(want - have)]
    findings += [f"{name} is exported and not declared" for name in sorted(have - want)]
    findings += [f"{name} refuses something and is not in {DOCS.name}" for name in sorted(refusing - functions)]
    known = set(re.findall(r"\bUCP_\w+", sources))
    unknown = {name for name in enumerators(text) - known if not any(fnmatch.fnmatch(name, pattern) for pattern in names)}
    findings += [f"{name} is neither handled nor in {DOCS.name}" for name in sorted(unknown)]
    for finding in findings:
        print(f"gaps: {finding}")
    print(f"gaps: {len(have)} functions, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
