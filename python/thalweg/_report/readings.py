# SPDX-License-Identifier: Apache-2.0
"""What rules, figures and tables read in a report: rows by test, and matrices of them."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Callable, Iterable, Iterator

from .document import Document, Row
from .topology import told_of

_DEVICE = re.compile(r"[a-z_]{1,32}:[0-9]{1,6}")
LARGE = 1 << 20  # bytes from which on a copy says what a link carries
SMALL = 4096  # and up to which it says how long a link takes
_ORDINARY = ("ordinary", "plain", "pageable")


def is_device(name: str) -> bool:
    """cuda:0, not host or pinned."""
    return _DEVICE.fullmatch(name) is not None


def is_ordinary(name: str) -> bool:
    """Host memory that the driver has not pinned."""
    return any(word in name for word in _ORDINARY)


def is_pinned(name: str) -> bool:
    """Host memory that is pinned, as matrices of copies have it unless they say otherwise."""
    return not is_device(name) and not is_ordinary(name)


def is_measured(row: Row) -> bool:
    """Whether its numbers mean something: there are some, and the data was right."""
    return "unavailable" not in row and row.get("verified") is not False


def rows(document: Document, test: str, **fields: object) -> Iterator[Row]:
    """Measured rows of a test with these fields."""
    for row in all_rows(document):
        if row["test"] == test and all(row.get(name) == v for name, v in fields.items()):
            yield row


def all_rows(document: Document) -> Iterator[Row]:
    """Measured rows of all tests."""
    for step in document["steps"]:
        yield from filter(is_measured, step["rows"])


def wrong_rows(document: Document) -> Iterator[Row]:
    """Those that moved wrong data."""
    for step in document["steps"]:
        yield from (row for row in step["rows"] if row.get("verified") is False)


def size_of(row: Row) -> int:
    """Bytes that a row is about; 0: none."""
    return row.get("size") or row.get("bytes") or 0


def bandwidth_of(row: Row) -> float | None:
    """Bytes a second."""
    if "bytes_per_s" in row:
        return row["bytes_per_s"]
    return row["bandwidth_GBps"] * 1e9 if row.get("bandwidth_GBps") else None


def latency_of(row: Row) -> float | None:
    """Median nanoseconds."""
    if row.get("ns"):
        return row["ns"]
    return row["latency_us"]["p50"] * 1e3 if row.get("latency_us", {}).get("p50") else None


def memories(row: Row) -> list[str]:
    """Of both sides' buffers, as messages have them."""
    found = row.get("memory", [])
    return found if isinstance(found, list) else []


@dataclasses.dataclass(frozen=True)
class Copy:
    """What a cell of a matrix of copies is. Host memory is "pinned" or "ordinary"."""

    source: str
    target: str
    by: str = "engine"
    direction: str = "one"


def _copy_of(row: Row) -> Copy | None:
    """None: a row that lacks an end."""
    if not isinstance(row.get("from"), str) or not isinstance(row.get("to"), str):
        return None
    host = row["memory"] if isinstance(row.get("memory"), str) else "pinned"
    source, target = (host if end == "host" else end for end in (row["from"], row["to"]))
    return Copy(source, target, row.get("by", "engine"), row.get("direction", "one"))


def copies(document: Document) -> dict[Copy, float]:
    """Bytes a second of the largest copy of each kind; both ways at once in either order."""
    largest: dict[Copy, tuple[int, float]] = {}
    for row in rows(document, "copies"):
        value, copy = bandwidth_of(row), _copy_of(row)
        if value and copy and size_of(row) >= LARGE:
            largest[copy] = max(largest.get(copy, (0, 0.0)), (size_of(row), value))
    both = {Copy(c.target, c.source, c.by, c.direction): value for c, value in largest.items() if c.direction == "both"}
    return {copy: value for copy, (_, value) in {**both, **largest}.items()}


def copy_latencies(document: Document) -> dict[Copy, float]:
    """Nanoseconds of the smallest copy of each kind."""
    smallest: dict[Copy, tuple[int, float]] = {}
    for row in rows(document, "copies", direction="one"):
        value, copy = latency_of(row), _copy_of(row)
        if value and copy and size_of(row) <= SMALL:
            smallest[copy] = min(smallest.get(copy, (SMALL + 1, 0.0)), (size_of(row), value))
    return {copy: value for copy, (_, value) in smallest.items()}


def unreached(document: Document) -> set[tuple[str, str]]:
    """Pairs of devices that do not reach each other's memory, as the library and the copies say."""
    pairs = {(row["from"], row["to"]) for row in rows(document, "copies", p2p=False) if _copy_of(row)}
    for device in document.get("info", {}).get("devices", []):
        for text in device.get("reaches", []):
            other, _, how = text.partition(" ")
            if how.startswith("not at all"):
                pairs.add((device["name"], other))
    return pairs


def numa(document: Document, operation: str = "triad") -> dict[tuple[int, int], float]:
    """(node of the processors, node of the memory): bytes a second, of the most threads."""
    most: dict[tuple[int, int], tuple[int, float]] = {}
    for row in rows(document, "memory", operation=operation):
        value = bandwidth_of(row)
        if value and "cpu_node" in row and "memory_node" in row:
            key = (row["cpu_node"], row["memory_node"])
            most[key] = max(most.get(key, (0, 0.0)), (row.get("threads") or 1, value))
    return {key: value for key, (_, value) in most.items()}


def tier_copies(document: Document) -> dict[tuple[str, str], float]:
    """(from, to): bytes a second."""
    found = {}
    for row in rows(document, "tiers"):
        value = bandwidth_of(row)
        if value and row.get("operation", "copy") == "copy" and "from" in row and "to" in row:
            found[row["from"], row["to"]] = value
    return found


def tier_streams(document: Document) -> dict[tuple[str, str], float]:
    """(tier, operation): bytes a second, of operations within a tier."""
    found = {}
    for row in rows(document, "tiers"):
        value = bandwidth_of(row)
        if value and "tier" in row:
            found[row["tier"], row.get("operation", "")] = value
    return found


def small_writes(document: Document) -> list[tuple[str, str, int, float, float | None]]:
    """(tier, operation, bytes, median ns, 99th percentile ns) of writes that wait until they are kept."""
    found = []
    for row in rows(document, "tiers"):
        if row.get("ns") and "tier" in row:
            found.append((row["tier"], row.get("operation", ""), size_of(row), row["ns"], row.get("p99_ns", row.get("ns_99"))))
    return found


def message_latency(document: Document, test: str, transport: str, size: int) -> float | None:
    """Nanoseconds, between host memories."""
    for row in rows(document, test, transport=transport, size=size):
        if not any(is_device(memory) for memory in memories(row)):
            return latency_of(row)
    return None


def socket_latency(document: Document, transport: str) -> float | None:
    """Nanoseconds of the smallest message over sockets: unix, tcp."""
    found = [(size_of(row), value) for row in rows(document, "sockets", transport=transport) if (value := latency_of(row))]
    return min(found)[1] if found else None


def devices(document: Document) -> list[str]:
    """Names of those that work, and of those that copies were measured with."""
    names = [d["name"] for d in document.get("info", {}).get("devices", []) if d["usable"] and is_device(d["name"])]
    names += [end for copy in copies(document) for end in (copy.source, copy.target) if is_device(end)]
    return sorted(set(names), key=lambda name: (name.partition(":")[0], int(name.partition(":")[2])))


def gpu_facts(document: Document, device: str) -> dict:
    """What the driver said of a device: by its UUID or PCI address, because CUDA may number devices in another order."""
    known: dict = next((d for d in document.get("info", {}).get("devices", []) if d["name"] == device), {})
    gpus = document.get("gpus", [])
    if known.get("uuid") or known.get("pci"):
        return told_of(known, gpus) or {}
    return next((gpu for gpu in gpus if f"cuda:{gpu['index']}" == device), {})


def median(values: Iterable[float]) -> float | None:
    """None of nothing."""
    found = list(values)
    return statistics.median(found) if found else None


def switches(document: Document, verb: str, transport: str) -> dict[int, str]:
    """Sizes at which the library's route changes, with the one from there on; the first size has the first route.

    As `thalweg explain` said; else by the routes of the measured rows, which have fewer sizes."""
    test = {"send": "tag_lat", "put": "put_lat", "get": "get_lat"}[verb]
    asked = list(rows(document, "routes", verb=verb, transport=transport)) or list(rows(document, test, transport=transport))
    changes: dict[int, str] = {}
    last = ""
    for row in sorted(asked, key=size_of):
        route = row.get("route", "").removeprefix(f"{transport} ")
        if route and route != last:
            changes[size_of(row)] = last = route
    return changes


def curve(document: Document, test: str, value: Callable[[Row], float | None], **fields: object) -> list[tuple[int, float]]:
    """(size, value) of a test's rows between ordinary host memories, or of those with these fields, in order of size."""
    found = {}
    for row in rows(document, test, **fields):
        one = value(row)
        if one and ("memory" in fields or not any(is_device(memory) for memory in memories(row))):
            found[size_of(row)] = one
    return sorted(found.items())
