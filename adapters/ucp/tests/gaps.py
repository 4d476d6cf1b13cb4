#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the adapter lacks of UCX's interface is in the list of docs/adapters.md, and nothing else is.

usage: gaps.py LIBRARY HEADERS

 - Every function that the headers declare is exported, and nothing else.
 - Every enumerator of theirs (fields, flags, features, operations) is named in the sources' code, or in the list.
 - What the code only accepts, in a mask of known bits, and never looks at is among the list's hints that change nothing.
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
MASK = r"\bconstexpr\s+\w+\s+(k\w+)\s*=\s*([\w\s|]+\|[\w\s|]+);"


def code_of(path: pathlib.Path) -> str:
    """A source's text without comments: a name in a comment handles nothing."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)


def only_accepted(code: str) -> set[str]:
    """Names in masks of known bits: kNAME = A | B, where ~kNAME or check_...(kNAME) refuses others."""
    code = re.sub(r"^#.*$", "", code, flags=re.MULTILINE)
    masks = {}
    for name, names in re.findall(MASK, code):
        masks[name] = masks.get(name, "") + " " + names
    rest = re.sub(MASK, "", code)
    knowing = {name for name in masks if re.search(rf"~\s*{name}\b|check_(?:fields|mask)\([^;]*\b{name}\b", rest)}
    knowing -= {name for name in masks if re.search(rf"&\s*{name}\)\s*!=\s*{name}\b|{name}\s*&\s*~", rest)}  # all are required
    # A mask of masks knows what they know.
    knowing |= {part for name in knowing for part in re.findall(r"\bk\w+", masks[name]) if part in masks}
    accepted = {one for name in knowing for one in re.findall(r"\bUCP_\w+", masks[name])}
    required = {one for name in masks.keys() - knowing for one in re.findall(r"\bUCP_\w+", masks[name])}
    return accepted - required


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


def listed() -> tuple[set[str], set[str], set[str]]:
    """Functions and enumerators in the docs' list, and those among them that are hints."""
    section = re.search(r"^## What is not supported$(.*?)(?=^## |\Z)", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    if section is None:
        return set(), set(), set()
    hints = re.search(r"^Hints that change nothing: .*?(?=^\s*$|\Z)", section[1], re.MULTILINE | re.DOTALL)
    functions, names = set(re.findall(r"`(ucp_\w+)`", section[1])), set(re.findall(r"`(UCP_\w+\*?)`", section[1]))
    return functions, names, set(re.findall(r"`(UCP_\w+\*?)`", hints[0])) if hints else set()


def among(name: str, patterns: set[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def sources_use(name: str, sources: str) -> int:
    """How often it stands in code that is no mask of constants."""
    rest = re.sub(r"^#.*$", "", sources, flags=re.MULTILINE)
    rest = re.sub(MASK, "", rest)
    return len(re.findall(rf"\b{name}\b", rest))


def main() -> int:
    library, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    text = headers(folder)
    codes = [code_of(path) for path in sorted((ADAPTER / "src").glob("*.?pp"))]
    sources = "\n".join(codes)
    functions, names, hints = listed()
    have, want = exported(library), declared(text)
    refusing = set(re.findall(r'unsupported\(\s*"(ucp_\w+)"', sources))
    findings = [f"{name} is declared and not exported" for name in sorted(want - have)]
    findings += [f"{name} is exported and not declared" for name in sorted(have - want)]
    findings += [f"{name} refuses something and is not in {DOCS.name}" for name in sorted(refusing - functions)]
    known = set(re.findall(r"\bUCP_\w+", sources))
    unknown = {name for name in enumerators(text) - known if not among(name, names)}
    findings += [f"{name} is neither handled nor in {DOCS.name}" for name in sorted(unknown)]
    shared = "\n".join(code_of(path) for path in (ADAPTER / "src").glob("*.hpp"))
    masked = {
        name
        for code in codes
        for name in only_accepted(code + shared)
        if sources_use(name, sources) == 0 and not among(name, hints)
    }
    findings += [f"{name} is accepted without effect and not among the hints of {DOCS.name}" for name in sorted(masked)]
    for finding in findings:
        print(f"gaps: {finding}")
    print(f"gaps: {len(have)} functions, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
