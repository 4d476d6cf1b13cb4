# SPDX-License-Identifier: Apache-2.0
"""Counters of processes as OpenMetrics text, and a server of it for this machine."""

from __future__ import annotations

import contextlib
import http.server
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from .live import Snapshot, printable

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LOOPBACK = "127.0.0.1"
MOST_CLIENTS = 32  # at a time
CLIENT_SECONDS = 5.0  # that a client may be there: for its request and its answer

# name: (type, unit, help)
FAMILIES = {
    "thalweg_bytes": ("counter", "bytes", "Bytes of messages and byte streams, by endpoint and direction."),
    "thalweg_messages": ("counter", "", "Messages, by endpoint and direction."),
    "thalweg_access_bytes": ("counter", "bytes", "Bytes of puts, gets, atomics and blocks that were posted here."),
    "thalweg_accesses": ("counter", "", "Puts, gets, atomics and blocks that were posted here."),
    "thalweg_retries": ("counter", "", "How often what was to be sent found no room or credit, by endpoint."),
    "thalweg_worker_bytes": ("counter", "bytes", "thalweg_bytes of all endpoints that a worker has or had."),
    "thalweg_worker_messages": ("counter", "", "thalweg_messages of all endpoints that a worker has or had."),
    "thalweg_worker_access_bytes": ("counter", "bytes", "thalweg_access_bytes of all endpoints that a worker has or had."),
    "thalweg_worker_accesses": ("counter", "", "thalweg_accesses of all endpoints that a worker has or had."),
    "thalweg_worker_retries": ("counter", "", "thalweg_retries of all endpoints that a worker has or had."),
    "thalweg_way_bytes": ("counter", "bytes", "Bytes that moved, by way, as tw_context_counters counts them."),
    "thalweg_way_operations": ("counter", "", "Operations that moved bytes, by way."),
    "thalweg_endpoints": ("gauge", "", "Endpoints of a worker."),
    "thalweg_posted_receives": ("gauge", "", "Receives that wait for a message."),
    "thalweg_unexpected_messages": ("gauge", "", "Messages that wait for a receive."),
    "thalweg_links": ("gauge", "", "Ends of connections that a process has, of all its contexts."),
    "thalweg_refused_connections": ("counter", "", "Refused connections, by cause."),
    "thalweg_cache_hits": ("counter", "", "Look-ups of a process that found what was kept, by cache."),
    "thalweg_cache_misses": ("counter", "", "Look-ups of a process that did not, by cache."),
}
NOT_CAUSES = {"links", "moved", "named", "workers", "caches", "traced"}

Sample = tuple[str, dict[str, Any], int]


def text(snapshots: list[Snapshot]) -> str:
    """OpenMetrics text of all of them."""
    samples: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for name, labels, value in all_samples(snapshots):
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
    """A label's value; printable, as a terminal may show it."""
    return printable(value).replace("\\", r"\\").replace('"', r"\"")


def all_samples(snapshots: list[Snapshot]) -> Iterator[Sample]:
    """Of each context; and what is counted once for all contexts of a process once."""
    processes = {(snapshot["pid"], snapshot["program"]): snapshot for snapshot in snapshots}
    for snapshot in processes.values():
        yield from process_samples(snapshot)
    for snapshot in snapshots:
        yield from context_samples(snapshot)


def process_samples(snapshot: Snapshot) -> Iterator[Sample]:
    """What its process counts."""
    who = {"pid": snapshot["pid"], "program": snapshot["program"]}
    yield "thalweg_links", who, snapshot["counters"]["links"]
    for cache, count in snapshot["counters"]["caches"].items():
        yield "thalweg_cache_hits", {**who, "cache": cache}, count["hits"]
        yield "thalweg_cache_misses", {**who, "cache": cache}, count["misses"]


def context_samples(snapshot: Snapshot) -> Iterator[Sample]:
    """What one context counts."""
    counters = snapshot["counters"]
    who = {"pid": snapshot["pid"], "program": snapshot["program"], "context": snapshot["context"]}
    if snapshot["ranks"]:
        who["rank"] = snapshot["rank"]
    for cause, count in counters.items():
        if cause not in NOT_CAUSES and isinstance(count, int):
            yield "thalweg_refused_connections", {**who, "cause": cause}, count
    for way, moved in counters["moved"].items():
        yield "thalweg_way_bytes", {**who, "way": way}, moved["bytes"]
        yield "thalweg_way_operations", {**who, "way": way}, moved["operations"]
    for worker in counters["workers"]:
        yield from worker_samples({**who, "worker": worker["id"]}, worker)


def worker_samples(who: dict[str, Any], worker: dict[str, Any]) -> Iterator[Sample]:
    """Of a worker: each listed endpoint, and its sums, which never fall when an endpoint goes or is no longer listed."""
    yield "thalweg_endpoints", who, worker["endpoints"]
    yield "thalweg_posted_receives", who, worker["posted"]
    yield "thalweg_unexpected_messages", who, worker["unexpected"]
    yield from counts_samples("thalweg_worker_", who, worker["sum"])
    for endpoint in worker["listed"]:
        named = {**who, "endpoint": endpoint["id"], "peer": endpoint["peer"], "transport": endpoint["transport"]}
        yield from counts_samples("thalweg_", named, endpoint)


def counts_samples(prefix: str, who: dict[str, Any], counts: dict[str, Any]) -> Iterator[Sample]:
    """Of an endpoint, or of a worker's sums."""
    for direction in ("sent", "received"):
        yield prefix + "bytes", {**who, "direction": direction}, counts[direction]["bytes"]
        yield prefix + "messages", {**who, "direction": direction}, counts[direction]["messages"]
    yield prefix + "access_bytes", who, counts["accesses"]["bytes"]
    yield prefix + "accesses", who, counts["accesses"]["operations"]
    yield prefix + "retries", who, counts["retries"]


def _end(client: socket.socket) -> None:
    """Whatever its thread waits for."""
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)


class Server(http.server.ThreadingHTTPServer):
    """A thread per client, so that a silent one keeps no other waiting; one client too many is closed at once."""

    daemon_threads = True

    def __init__(self, port: int, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        self._places = threading.BoundedSemaphore(MOST_CLIENTS)
        super().__init__((LOOPBACK, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts the client's thread."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The client's thread."""
        deadline = threading.Timer(CLIENT_SECONDS, _end, (request,))  # a socket's own timeout begins anew with each byte
        deadline.daemon = True
        deadline.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Quiet about clients that go."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def server(port: int, ask: Callable[[], list[Snapshot]]) -> Server:
    """Serves the text at http://127.0.0.1:port/metrics, to every user of this machine; port 0 picks one. Run and close it."""
    one_at_a_time = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = CLIENT_SECONDS

        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rsplit(":", 1)[0]
            if self.path != "/metrics" or host not in (LOOPBACK, "localhost"):  # not a page that was led here by its name
                return self.send_error(404)
            with one_at_a_time:
                snapshots = ask()
            body = text(snapshots).encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return None

        def log_message(self, *_: Any) -> None:  # quiet
            pass

    return Server(port, Handler)
