# SPDX-License-Identifier: Apache-2.0
"""``thalweg explain``: which way an operation takes between two processes here, or a collective among several, and why."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json as json_module
import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing import resource_tracker
from typing import Annotated

import typer

from . import native
from .options import refuse
from .sizes import parse_size

HELP = """Explains the route of one operation between two processes of this machine: every candidate protocol, its
predicted cost, and why the losers lost. Starts the second process itself. Of a collective: every algorithm with the time that
is predicted for it among -n ranks of this machine, and what rank 0 does by the one that is taken; with --trigger of one on a
queue, or in a plan, by devices that --place names.

Examples: [bold]thalweg explain send 64K[/bold], [bold]thalweg explain put 1M --transport tcp[/bold],
[bold]thalweg explain send 1M --measure[/bold], [bold]thalweg explain allreduce --size 1M -n 8[/bold],
[bold]thalweg explain allreduce --size 64K -n 4 --trigger queue --place cuda[/bold]."""


class Verb(str, enum.Enum):
    """Operations tw_endpoint_explain knows."""

    send, put, get, am, bytes, atomic = "send", "put", "get", "am", "bytes", "atomic"
    put_blocks, get_blocks = "put_blocks", "get_blocks"
    # Collectives, as tw_group_explain names them.
    barrier, broadcast, reduce, allreduce = "barrier", "broadcast", "reduce", "allreduce"
    reduce_scatter, allgather, gather, scatter = "reduce_scatter", "allgather", "gather", "scatter"
    alltoall, scan, exclusive_scan = "alltoall", "scan", "exclusive_scan"


POINT_TO_POINT = {"send", "put", "get", "am", "bytes", "atomic", "put_blocks", "get_blocks"}


class Trigger(str, enum.Enum):
    """What starts a collective: its own call, a prepared plan by the host, a queue, a graph of it, a plan on a queue."""

    call, host, queue, graph, plan = "call", "host", "queue", "graph", "plan"


class Transport(str, enum.Enum):
    """Transports that can be asked for."""

    auto, self, shm, tcp = "auto", "self", "shm", "tcp"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("explain", help=HELP)(explain)


def explain(
    verb: Annotated[Verb, typer.Argument(help="The operation.")],
    size: Annotated[
        str | None,
        typer.Argument(help="Bytes; K, M and G are understood. Of a collective: a rank's longer buffer, of float32."),
    ] = None,
    named_size: Annotated[str | None, typer.Option("--size", help="The same as the argument.")] = None,
    ranks: Annotated[int | None, typer.Option("-n", "--count", min=1, max=4096, help="Ranks of a collective (2).")] = None,
    algorithm: Annotated[str | None, typer.Option(help="Of a collective: the schedule by this one.")] = None,
    repeatable: Annotated[bool, typer.Option(help="Of a collective: where the same input has to give the same bits.")] = False,
    trigger: Annotated[
        Trigger, typer.Option(help="Of a collective: its own call; on a queue, or captured by a graph; in a plan (host, plan).")
    ] = Trigger.call,
    place: Annotated[
        str | None,
        typer.Option(help="Of --trigger: host (the default), cuda:N, emulated:N; without a number the rank's own device."),
    ] = None,
    transport: Annotated[Transport, typer.Option(help="Only this transport; auto: the cheapest reachable.")] = Transport.auto,
    measure: Annotated[
        bool, typer.Option(help="Runs every possible way by force, and the choice, and says what they took.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object with the text in it.")] = False,
) -> None:
    """Prints tw_endpoint_explain, or tw_group_explain."""
    if size is not None:
        refuse("and SIZE are the same: give one", size=named_size)
    called = trigger is Trigger.call
    if verb.value in POINT_TO_POINT:
        among = {"count": ranks, "algorithm": algorithm, "repeatable": repeatable, "trigger": not called, "place": place}
        refuse(f"is of collectives: {verb.value} is none", **among)
    else:
        refuse(f"is of operations between two processes: {verb.value} is a collective", measure=measure)
    if called:
        refuse("is of --trigger queue, graph, host or plan: a call's buffers are not asked for", place=place)
    try:
        length = length_of(verb, size, named_size)
        if verb.value not in POINT_TO_POINT:
            options: dict[str, object] = {"algorithm": algorithm, "repeatable": repeatable}
            explain_collective(verb, length, (ranks or 2, transport, trigger, place or "host"), options, json)
            return
        used, texts = ask_many(verb.value, [length], None if transport is Transport.auto else transport.value)
        text = texts[length]
        measured = measured_ways(verb.value, used, length) if measure else []
    except (native.NativeError, ValueError) as error:
        typer.secho(f"thalweg explain: {error}", err=True, fg="red")
        raise typer.Exit(1) from None
    if json:
        answer = {"verb": verb.value, "size": length, "transport": used, "explanation": text}
        typer.echo(json_module.dumps(answer | ({"measured": measured} if measure else {})))
        return
    typer.echo(text.rstrip("\n"))
    for one in measured:
        typer.echo(f"measured {one['microseconds']:12.2f} us  {one['route']}  ({one['way']})")


def length_of(verb: Verb, size: str | None, named: str | None) -> int:
    """By either argument; a barrier has none."""
    given = size if size is not None else named
    if given is None and verb is not Verb.barrier:
        raise ValueError("how many bytes? Give SIZE or --size SIZE, such as 1M")
    return parse_size(given) if given is not None else 0


def explain_collective(
    verb: Verb, length: int, among: tuple[int, Transport, Trigger, str], options: dict[str, object], json: bool
) -> None:
    """Prints tw_group_explain, or tw_group_explain_on, of a group that is made for it."""
    from .explain_group import Ranks, explain_group

    ranks, transport, trigger, place = among
    if transport is Transport.self:
        raise ValueError("a collective has several processes: --transport shm or tcp")
    group = Ranks(ranks, None if transport is Transport.auto else transport.value, trigger.value, place)
    text = explain_group(verb.value, length, group, options)
    if json:
        answer = {"verb": verb.value, "size": length, "ranks": ranks, "trigger": trigger.value, "explanation": text}
        typer.echo(json_module.dumps(answer))
    else:
        typer.echo(text.rstrip("\n"))


def measured_ways(verb: str, transport: str, size: int) -> list[dict[str, object]]:
    """The choice first, then each other route."""
    from . import ways  # it asks this module

    if verb not in ways.TESTS or transport not in ways.WAYS:
        raise ValueError(f"--measure cannot run {verb} over {transport}: it measures {', '.join(ways.TESTS)}")
    row = ways.measure(verb, transport, [size], seconds=0.2)[0]
    return [dataclasses.asdict(one) for one in (row.chosen, *row.forced)]


def ask_many(verb: str, sizes: list[int], transport: str | None) -> tuple[str, dict[int, str]]:
    """(transport in use, the table for each size) for an endpoint to a process started here."""
    if transport == "self":
        with native.Context() as context:
            return answer(context, context.address(), verb, sizes, None)
    hand_on_key()
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    other = spawn.Process(target=counterpart, args=(there,), daemon=True)
    with deaf():
        other.start()
    there.close()
    try:
        with native.Context() as context:
            if not here.poll(20):
                raise native.NativeError("the second process did not start within 20 s")
            address = here.recv()
            if isinstance(address, str):
                raise native.NativeError(f"in the second process: {address}")
            return answer(context, address, verb, sizes, transport)
    except EOFError:
        raise native.NativeError("the second process ended early") from None
    finally:
        here.close()
        other.join(5)
        if other.is_alive():
            other.kill()


def hand_on_key() -> None:
    """The library takes the job key out of the environment at the first context: what is started next needs it once more."""
    if "THALWEG_JOB_KEY" in os.environ:
        os.environ["THALWEG_JOB_KEY"] = os.environ["THALWEG_JOB_KEY"]  # as Python has it, from when it began


def answer(
    context: native.Context, address: bytes, verb: str, sizes: list[int], transport: str | None
) -> tuple[str, dict[int, str]]:
    """Connects and asks."""
    endpoint = context.connect(address, transport)
    used = native.library().tw_endpoint_transport(endpoint).decode()
    return used, {size: native.explain(endpoint, verb, size) for size in sizes}


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """Processes that start here do not hear Ctrl-C: this one answers it, and ends them."""
    resource_tracker.ensure_running()  # it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def counterpart(pipe) -> None:
    """The second process: sends its address, then progresses until the first one closes the pipe."""
    try:
        with native.Context() as context:
            pipe.send(context.address())
            while not pipe.poll(0.001):
                while context.progress():
                    pass
    except native.NativeError as error:
        with contextlib.suppress(OSError):  # the first one has ended
            pipe.send(str(error))
    except (EOFError, OSError):
        pass
