# SPDX-License-Identifier: Apache-2.0
"""Counters of processes as OpenMetrics text, and a server of it for this machine."""

from __future__ import annotations

import http.server
from collections.abc import Callable, Iterator
from typing import Any

from .live import Snapshot

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LOOPBACK = "127.0.0.1"

# name: (type, unit, help)
FAMILIES = {
    "thalweg_bytes": ("counter", "bytes", "Bytes of messages and byte streams, by endpoint and direction."),
    "thalweg_messages": ("counter", "", "Messages, by endpoint and direction."),
    "thalweg_access_bytes": ("counter", "bytes", "Bytes of puts, gets, atomics and blocks that were posted here."),
    "thalweg_accesses": ("counter", "", "Puts, gets, atomics and blocks that were posted here."),
    "thalweg_retries": ("counter", "", "How often what was to be sent found no room or credit."),
    "thalweg_way_bytes": ("counter", "bytes", "Bytes that moved, by way, as tw_context_counters counts them."),
    "thalweg_way_operations": ("counter", "", "Operations that moved bytes, by way."),
    "thalweg_endpoints": ("gauge", "", "Endpoints of a worker."),
    "thalweg_posted_receives": ("gauge", "", "Receives that wait for a message."),
    "thalweg_unexpected_messages": ("gauge", "", "Messages that wait for a receive."),
    "thalweg_links": ("gauge", "", "Ends of connections that a process has."),
    "thalweg_refused_connections": ("counter", "", "Refused connections, by cause."),
    "thalweg_cache_hits": ("counter", "", "Look-ups that found what was kept, by cache."),
    "thalweg_cache_misses": ("counter", "", "Look-ups that did not."),
}
NOT_CAUSES = {"links", "moved", "named", "workers", "caches", "traced"}

Sample = tuple[str, dict[str, Any], int]


def text(snapshots: list[Snapshot]) -> str:
    """OpenMetrics text of all of them."""
    samples: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for snapshot in snapshots:
        for name, labels, value in samples_of(snapshot):
            suffix = "_total" if FAMILIES[name][0] == "counter" else ""
            inside = ",".join(f'{label}="{escaped(str(given))}"' for label, given in labels.items())
            samples[name].append(f"{name}{suffix}{{{inside}}} {value}")
    lines = []
    for name, (kind, unit, explanation) in FAMILIES.items():
        lines.append(f"# TYPE {name} {kind}")
        if unit:
            lines.append(f"# UNIT {name} {unit}")
        lines += [f"# HELP {name} {explanation}", *samples[name]]
    return "\n".join([*lines, "# EOF", ""])


def escaped(value: str) -> str:
    """A label's value."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def samples_of(snapshot: Snapshot) -> Iterator[Sample]:
    """What one context counts."""
    counters = snapshot["counters"]
    who = {"pid": snapshot["pid"], "program": snapshot["program"], "context": snapshot["context"]}
    if snapshot["ranks"]:
        who["rank"] = snapshot["rank"]
    yield "thalweg_links", who, counters["links"]
    for cause, count in counters.items():
        if cause not in NOT_CAUSES:
            yield "thalweg_refused_connections", {**who, "cause": cause}, count
    for way, moved in counters["moved"].items():
        yield "thalweg_way_bytes", {**who, "way": way}, moved["bytes"]
        yield "thalweg_way_operations", {**who, "way": way}, moved["operations"]
    for cache, count in counters["caches"].items():
        yield "thalweg_cache_hits", {**who, "cache": cache}, count["hits"]
        yield "thalweg_cache_misses", {**who, "cache": cache}, count["misses"]
    for worker in counters["workers"]:
        yield from worker_samples({**who, "worker": worker["id"]}, worker)


def worker_samples(who: dict[str, Any], worker: dict[str, Any]) -> Iterator[Sample]:
    """Of a worker: each listed endpoint, and as endpoint "other" all that are gone or not listed, so that the sum is right."""
    yield "thalweg_endpoints", who, worker["endpoints"]
    yield "thalweg_posted_receives", who, worker["posted"]
    yield "thalweg_unexpected_messages", who, worker["unexpected"]
    rest = dict(flat(worker["sum"]))
    for endpoint in worker["listed"]:
        named = {**who, "endpoint": endpoint["id"], "peer": endpoint["peer"], "transport": endpoint["transport"]}
        for (name, direction), value in flat(endpoint):
            rest[name, direction] = max(0, rest[name, direction] - value)
            yield name, {**named, **({"direction": direction} if direction else {})}, value
    for (name, direction), value in rest.items():
        yield name, {**who, "endpoint": "other", **({"direction": direction} if direction else {})}, value


def flat(counts: dict[str, Any]) -> Iterator[tuple[tuple[str, str], int]]:
    """((family, direction), value) of an endpoint's counts."""
    for direction in ("sent", "received"):
        yield ("thalweg_bytes", direction), counts[direction]["bytes"]
        yield ("thalweg_messages", direction), counts[direction]["messages"]
    yield ("thalweg_access_bytes", ""), counts["accesses"]["bytes"]
    yield ("thalweg_accesses", ""), counts["accesses"]["operations"]
    yield ("thalweg_retries", ""), counts["retries"]


def server(port: int, ask: Callable[[], list[Snapshot]]) -> http.server.HTTPServer:
    """Serves the text at http://127.0.0.1:port/metrics, to this machine only; port 0 picks one. Run and close it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rsplit(":", 1)[0]
            if self.path != "/metrics" or host not in (LOOPBACK, "localhost"):  # not a page that was led here by its name
                return self.send_error(404)
            body = text(ask()).encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return None

        def log_message(self, *_: Any) -> None:  # quiet
            pass

    return http.server.HTTPServer((LOOPBACK, port), Handler)
