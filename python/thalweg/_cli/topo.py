# SPDX-License-Identifier: Apache-2.0
"""``thalweg topo``: what is in this machine, what lies between, and where ranks belong."""

from __future__ import annotations

import json as json_module
import pathlib
from typing import Annotated

import typer
from rich.console import Console

from . import native, topology_svg, topology_tree
from .topology_graph import Graph

HELP = """Draws this machine: sockets, NUMA nodes, cores, PCIe, GPUs, NVLinks and network cards, and what lies between.

The matrix has the words of nvidia-smi topo -m: [bold]NV6[/bold] six NVLinks, [bold]PIX[/bold] one PCIe switch,
[bold]PXB[/bold] several, [bold]PHB[/bold] a host bridge, [bold]NODE[/bold] a NUMA node, [bold]SYS[/bold] the links between
NUMA nodes. Links that are down, or narrower than they could be, are named below it. Bandwidths are of one direction.

[bold]thalweg topo --ranks 8[/bold]: where 8 processes belong: GPU, processors, network card;
[bold]thalweg run --bind[/bold] puts them there. [bold]thalweg topo --svg machine.svg[/bold]: a picture.
[bold]thalweg topo --json > machine.json[/bold]: the machine as a file. With
[bold]THALWEG_TOPOLOGY=machine.json[/bold] this command, and the routes between devices, go by the file."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("topo", help=HELP)(topo)


def topo(
    ranks: Annotated[int, typer.Option("--ranks", min=0, max=4096, help="Place as many ranks; 0: none.", metavar="N")] = 0,
    svg: Annotated[pathlib.Path | None, typer.Option("--svg", help="Write a picture to this file.", metavar="FILE")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the topology as THALWEG_TOPOLOGY reads it; with --ranks the placements.")
    ] = False,
) -> None:
    """Prints it."""
    try:
        text = native.topology_json()
        places = [native.topology_place(rank, ranks) for rank in range(ranks)]
        if svg is not None:
            svg.write_text(topology_svg.draw(Graph(text), places), encoding="utf-8")
        if json:
            typer.echo(json_module.dumps({"ranks": places}, indent=1) if ranks else text, nl=bool(ranks))
        else:
            show(Graph(text), places, Console())
    except (native.NativeError, OSError) as error:
        typer.secho(f"thalweg topo: {error}", err=True, fg="red")
        raise typer.Exit(1) from None


def show(graph: Graph, places: list[dict[str, object]], console: Console) -> None:
    """The tree, links, the matrix, and the ranks if some were asked for."""
    said: list[str] = []
    console.print(topology_tree.tree(graph))
    console.print()
    if (links := topology_tree.links(graph)) is not None:
        console.print(links)
    if graph.all("gpu") or len(graph.all("numa")) > 1:
        table, narrow = topology_tree.matrix(graph, native.topology_distance)
        console.print(table)
        said += narrow
    for note in dict.fromkeys([*said, *topology_tree.notes(graph)]):
        console.print(f"  ! {note}", style="bold yellow", highlight=False)
    if places:
        console.print(topology_tree.placements(places))
