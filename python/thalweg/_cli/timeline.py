# SPDX-License-Identifier: Apache-2.0
"""Reads timelines: files of Perfetto's trace format, of which what the library writes (``src/trace/packets.cpp``)."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator

# Numbers of the format's fields.
PACKET = 1
TIMESTAMP, TRACK_EVENT, TRACK_DESCRIPTOR = 8, 11, 60
UUID, TRACK_NAME, PROCESS, THREAD, PARENT = 1, 2, 3, 4, 5
PID, TID, THREAD_NAME, PROCESS_NAME = 1, 2, 5, 6
ANNOTATION, TYPE, TRACK, CATEGORY, EVENT_NAME, FLOW, FLOW_ENDS = 4, 9, 11, 22, 23, 47, 48
ANNOTATION_NAME, UNSIGNED, SIGNED, STRING = 10, 3, 4, 6
BEGINS, ENDS, INSTANT = 1, 2, 3

Field = tuple[int, "int | bytes"]


class TimelineError(RuntimeError):
    """The file is no timeline; the text says why."""


@dataclasses.dataclass
class Track:
    """A line: a process, a thread, operations that are under way, or a queue of a device."""

    uuid: int
    name: str = ""
    process: int = 0  # its track
    pid: int = 0
    thread: int = 0  # 0: it is none


@dataclasses.dataclass
class Slice:
    """Something that lasted, or (end == begin) happened."""

    track: int
    name: str
    category: str
    begin: int  # nanoseconds
    end: int
    depth: int = 0
    inside: int = 0  # nanoseconds of it that slices within it took
    arguments: dict[str, int | str] = dataclasses.field(default_factory=dict)
    flow: int = 0  # an arrow begins here
    flow_ends: int = 0
    ended: bool = True

    def number(self, name: str) -> int:
        """An argument that is one, else 0."""
        value = self.arguments.get(name, 0)
        return value if isinstance(value, int) else 0


@dataclasses.dataclass
class Timeline:
    """What was read."""

    tracks: dict[int, Track]
    slices: list[Slice]
    instants: list[Slice]
    cut: bool = False  # the file breaks off: its process was killed


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, where it ends)."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise TimelineError("a number of more than 64 bits: this is no timeline, or it is damaged")


def fields(data: bytes) -> Iterator[Field]:
    """The fields of a message. Raises IndexError where it breaks off."""
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value: int | bytes
            value, at = varint(data, at)
        elif kind == 1:
            value, at = int.from_bytes(data[at : at + 8], "little"), at + 8
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        elif kind == 5:
            value, at = int.from_bytes(data[at : at + 4], "little"), at + 4
        else:
            raise TimelineError(f"a field of kind {kind}: this is no timeline, or it is damaged")
        if at > end:
            raise IndexError("it breaks off")
        yield key >> 3, value


def number(value: int | bytes) -> int:
    """A field that must be one."""
    if not isinstance(value, int):
        raise TimelineError("a text in place of a number: this is no timeline, or it is damaged")
    return value


def raw(value: int | bytes) -> bytes:
    """A field that must be bytes."""
    if not isinstance(value, bytes):
        raise TimelineError("a number in place of a message: this is no timeline, or it is damaged")
    return value


def words(value: int | bytes) -> str:
    """A field that must be text."""
    return raw(value).decode(errors="replace")


class Reader:
    """Puts packets together."""

    def __init__(self) -> None:
        self.timeline = Timeline({}, [], [])
        self._open: dict[int, list[Slice]] = {}
        self._last: dict[int, int] = {}  # of each process

    def file(self, path: pathlib.Path) -> None:
        """Adds a file. One that breaks off is read up to there."""
        data = path.read_bytes()
        events: list[tuple[int, bytes]] = []
        try:
            for name, value in fields(data):
                if name != PACKET:
                    raise TimelineError(f"{path} is no timeline: it has a field {name} in place of packets")
                self.packet(raw(value), events)
        except IndexError:
            self.timeline.cut = True
        for at, event in sorted(events, key=lambda one: one[0]):  # stable: of one time in the order of the file
            self.event(at, event)

    def packet(self, data: bytes, events: list[tuple[int, bytes]]) -> None:
        """Sorts it: lines at once, events by their times."""
        at = 0
        for name, value in fields(data):
            if name == TIMESTAMP:
                at = number(value)
            elif name == TRACK_DESCRIPTOR:
                self.track(raw(value))
            elif name == TRACK_EVENT:
                events.append((at, raw(value)))

    def track(self, data: bytes) -> None:
        """Describes a line."""
        found = dict(fields(data))
        track = self.timeline.tracks.setdefault(number(found[UUID]), Track(number(found[UUID])))
        track.process = number(found.get(PARENT, track.process or track.uuid))
        track.name = words(found[TRACK_NAME]) if TRACK_NAME in found else track.name
        if PROCESS in found:
            of = dict(fields(raw(found[PROCESS])))
            track.pid, track.name = number(of[PID]), words(of.get(PROCESS_NAME, b""))
        if THREAD in found:
            of = dict(fields(raw(found[THREAD])))
            track.pid, track.thread, track.name = number(of[PID]), number(of[TID]), words(of.get(THREAD_NAME, b""))

    def event(self, at: int, data: bytes) -> None:
        """Begins, ends or marks something."""
        made = Slice(0, "", "", at, at)
        kind = 0
        for name, value in fields(data):
            if name == TYPE:
                kind = number(value)
            elif name == TRACK:
                made.track = number(value)
            elif name == CATEGORY:
                made.category = words(value)
            elif name == EVENT_NAME:
                made.name = words(value)
            elif name == FLOW:
                made.flow = number(value)
            elif name == FLOW_ENDS:
                made.flow_ends = number(value)
            elif name == ANNOTATION:
                made.arguments.update(annotation(raw(value)))
        if made.track not in self.timeline.tracks:
            raise TimelineError("an event of a line that was not described: the timeline is damaged")
        process = self.timeline.tracks[made.track].process
        self._last[process] = max(self._last.get(process, 0), at)
        stack = self._open.setdefault(made.track, [])
        if kind == BEGINS:
            made.depth, made.ended = len(stack), False
            stack.append(made)
            self.timeline.slices.append(made)
        elif kind == ENDS:
            self._end(stack, at, made.arguments)
        elif kind == INSTANT:
            self.timeline.instants.append(made)
        else:
            raise TimelineError(f"an event of type {kind}: the timeline is damaged")

    def _end(self, stack: list[Slice], at: int, arguments: dict[str, int | str]) -> None:
        if not stack:
            raise TimelineError("an end without a begin: the timeline is damaged")
        done = stack.pop()
        done.end, done.ended = at, True
        done.arguments.update(arguments)
        if stack:
            stack[-1].inside += done.end - done.begin

    def finish(self) -> Timeline:
        """What is still open lasts until the last event of its process."""
        for uuid, stack in self._open.items():
            for one in stack:
                one.end = self._last.get(self.timeline.tracks[uuid].process, one.begin)
        return self.timeline


def annotation(data: bytes) -> dict[str, int | str]:
    """{name: value}."""
    found = dict(fields(data))
    name = words(found[ANNOTATION_NAME])
    if STRING in found:
        return {name: words(found[STRING])}
    if SIGNED in found:
        value = number(found[SIGNED])
        return {name: value - (1 << 64) if value >> 63 else value}
    return {name: number(found.get(UNSIGNED, 0))}


def read(paths: list[pathlib.Path]) -> Timeline:
    """All of them as one. Raises TimelineError, OSError."""
    reader = Reader()
    for path in paths:
        try:
            reader.file(path)
        except TimelineError as error:
            raise TimelineError(f"{path}: {error}") from None
        except (KeyError, IndexError):
            raise TimelineError(f"{path}: a packet lacks what it must have: this is no timeline, or it is damaged") from None
    return reader.finish()


def merge(paths: list[pathlib.Path], out: pathlib.Path, replace: bool = False) -> bool:
    """Joins timelines: one behind the other, as packets stand alone. True: the end of one was cut and is left out.

    Raises TimelineError, OSError: FileExistsError where out exists and is not to be replaced.
    """
    whole = []
    cut = False
    for path in paths:
        data = path.read_bytes()
        end = 0
        try:
            while end < len(data):
                key, at = varint(data, end)
                length, at = varint(data, at)
                if key != (PACKET << 3 | 2):
                    raise TimelineError(f"{path} is no timeline: it has something else in place of packets")
                if at + length > len(data):
                    raise IndexError
                end = at + length
        except IndexError:
            cut = True
        whole.append(data[:end])
    with out.open("wb" if replace else "xb") as file:
        for data in whole:
            file.write(data)
    return cut
