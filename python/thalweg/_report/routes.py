# SPDX-License-Identifier: Apache-2.0
"""Which route the library takes at each size, as `thalweg explain` says: one JSON object a line, for a report's step."""

from __future__ import annotations

import json
import re
import sys

from thalweg._cli import explain, native

SIZES = [1 << exponent for exponent in range(3, 27)]


def chosen(text: str) -> str:
    """The candidate that tw_endpoint_explain says is taken."""
    found = re.search(r"^chosen: (.+)$", text, re.MULTILINE) or re.search(r"^\* (.+?)(?:  |$)", text, re.MULTILINE)
    return found[1].strip() if found else ""


def main() -> int:
    """Rows for messages, puts and gets over each transport: the first size of each route."""
    for transport in ("shm", "tcp"):
        for verb in ("send", "put", "get"):
            try:
                _, texts = explain.ask_many(verb, SIZES, transport)
            except native.NativeError as error:
                print(json.dumps({"test": "routes", "verb": verb, "transport": transport, "unavailable": str(error)}))
                continue
            last = ""
            for size in SIZES:
                route = chosen(texts[size])
                if route and route != last:
                    print(
                        json.dumps({"test": "routes", "verb": verb, "transport": transport, "size": size, "route": route}),
                        flush=True,
                    )
                    last = route
    return 0


if __name__ == "__main__":
    sys.exit(main())
