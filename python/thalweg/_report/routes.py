# SPDX-License-Identifier: Apache-2.0
"""Which route the library takes at each size, as `thalweg explain` says: one JSON object a line, for a report's step."""

from __future__ import annotations

import json
import re
import sys

from thalweg._cli import explain, native

SIZES = [1 << exponent for exponent in range(3, 27)]


def chosen(text: str) -> str:
    """The candidate that is marked in the table of tw_endpoint_explain."""
    found = re.search(r"^\s*\*\s+(\S+)", text, re.MULTILINE)
    return found[1] if found else ""


def main() -> int:
    """Rows for messages, puts and gets over each transport."""
    for transport in ("shm", "tcp"):
        for verb in ("send", "put", "get"):
            try:
                _, texts = explain.ask_many(verb, SIZES, transport)
            except native.NativeError as error:
                print(json.dumps({"test": "routes", "verb": verb, "transport": transport, "unavailable": str(error)}))
                continue
            for size, text in texts.items():
                row = {"test": "routes", "verb": verb, "transport": transport, "size": size, "route": chosen(text)}
                print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
