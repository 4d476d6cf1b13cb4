# SPDX-License-Identifier: Apache-2.0
"""Rules about GPUs and their links."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from thalweg._cli.topology_graph import far_more

from . import readings
from .document import Document
from .rule import FAULT, NOTE, WARNING, Finding, Rule, threshold
from .topology import Graph, between_sockets, count_of, is_down, kind_of
from .units import number, part_of, rate


def _name(device: str) -> str:
    """GPU 3, of cuda:3."""
    kind, _, number_ = device.partition(":")
    return f"GPU {number_}" if kind == "cuda" else device


def _link_words(document: Document, device: str) -> str:
    """What the driver says is wrong with a GPU's PCIe link, or nothing."""
    facts = readings.gpu_facts(document, device)
    graph = Graph(document)
    node = graph.gpu(device)
    link = graph.pcie(node) if node else {}
    width, most = facts.get("pcie_width", link.get("lanes")), facts.get("pcie_width_max", link.get("most_lanes"))
    if width and most and width < most:
        return f"PCIe x{number(width)}, could be x{number(most)}"
    generation, newest = facts.get("pcie_generation"), facts.get("pcie_generation_max")
    if generation and newest and generation < newest:
        return f"PCIe generation {number(generation)}, could be {number(newest)}"
    return ""


def gpu_link(document: Document) -> Iterator[Finding]:
    """A GPU that reaches the host slower than its siblings, or whose link is narrower than it could be."""
    values: dict[str, float] = {}
    for copy, value in readings.copies(document).items():
        ends = (copy.source, copy.target)
        if copy.by == "engine" and copy.direction == "one" and sum(map(readings.is_pinned, ends)) == 1:
            device = next((end for end in ends if readings.is_device(end)), None)
            if device is not None:
                values[device] = min(values.get(device, value), value)
    for device in readings.devices(document):
        words = _link_words(document, device)
        siblings = readings.median(v for other, v in values.items() if other != device)
        own = values.get(device)
        slow = bool(own and siblings and own < threshold("gpu_link") * siblings)
        narrow = words.startswith("PCIe x")  # generations are lowered while a GPU idles
        if not slow and not narrow:
            continue
        part = f" reaches {part_of(own / siblings)} bandwidth of its siblings" if slow and own and siblings else ""
        numbers = [f"{_name(device)}: {rate(own)} to or from the host"] if own else []
        numbers += [f"the others: {rate(siblings)}"] if siblings else []
        yield Finding(
            "gpu_link",
            FAULT,
            device,
            f"{_name(device)}{part or ' has a narrow link'}"
            + (f": {words}." if words else ": its link to the host is narrow."),
            "Reseat the card or its riser, look at the slot's lanes in the firmware's settings (bifurcation, generation), then "
            "at nvidia-smi -q -d PCIE under load.",
            tuple(numbers),
        )


# By the driver's reason: what it means, and what helps.
NO_ACCESS = {
    "chipset not supported": (
        "the chipset between them, or what a virtual machine is shown of it, does not carry it",
        "Turn ACS off for the bridges above them, the IOMMU to pass-through (iommu=pt), and give a virtual machine all GPUs of "
        "a switch; GPUs below one switch may reach each other where those of two sockets do not.",
    ),
    "GPU not supported": (
        "these models have no peer access, or not with each other",
        "Nothing on this machine turns it on: use GPUs of one model that has it, or leave their copies to pinned host memory.",
    ),
    "IOH topology not supported": (
        "they are below different I/O hubs, between which it does not pass",
        "Put GPUs that work together below one socket's PCIe (thalweg topo shows where they are), by slots or by the choice of "
        "ranks' GPUs.",
    ),
    "disabled by registry key": (
        "an option of the driver's module turns it off",
        "Look for NVreg_RegistryDwords in /etc/modprobe.d and in /proc/driver/nvidia/params, take the option for peer mappings "
        "out, and load the module again.",
    ),
}
ANY_ACCESS = (
    "Turn ACS off for the bridges above them, the IOMMU to pass-through (iommu=pt), and give a virtual machine or "
    "container all GPUs of a switch; nvidia-smi topo -p2p r says what the driver permits."
)


def _reasons(document: Document, pairs: set[frozenset[str]]) -> dict[str, list[frozenset[str]]]:
    """Pairs of devices by the driver's reason why they have no access; without those of which it says nothing."""
    graph = Graph(document)
    why: dict[str, list[frozenset[str]]] = {}
    for pair in sorted(pairs, key=sorted):
        ends = [node for device in sorted(pair) if (node := graph.gpu(device)) is not None]
        reason = graph.no_access(ends[0], ends[1]) if len(ends) == 2 else ""
        if reason:
            why.setdefault(reason, []).append(pair)
    return why


def peer_to_peer(document: Document) -> Iterator[Finding]:
    """GPUs whose copies to each other go through the host, and why, where the driver says it."""
    if pairs := readings.unreached(document):
        both = {frozenset(pair) for pair in pairs}
        count, why = len(both), _reasons(document, both)
        most = max(why, key=lambda reason: len(why[reason]), default="")
        meaning, remedy = NO_ACCESS.get(most, ("", ANY_ACCESS))
        values = [v for c, v in readings.copies(document).items() if (c.source, c.target) in pairs and c.direction == "one"]
        names = ", ".join(sorted({f"{_name(min(pair))} and {_name(max(pair))}" for pair in pairs})[:8])
        yield Finding(
            "peer_to_peer",
            FAULT,
            "GPUs",
            f"{count} {'pair' if count == 1 else 'pairs'} of GPUs do not reach each other's memory: copies between them go "
            "through the host." + (f" The driver says why: {meaning}." if meaning else ""),
            remedy,
            (
                f"without access: {names}{' and more' if count > 8 else ''}",
                *(f"the driver's reason, for {len(some)} of them: {reason}" for reason, some in why.items()),
                *([f"best of them: {rate(max(values))}"] if values else []),
            ),
        )


def _joined(graph: Graph, one: str, other: str) -> object:
    """What pairs have to have in common to be compared: their NVLinks, whatever state they are in; else the sockets between."""
    here, there = graph.gpu(one), graph.gpu(other)
    if here is None or there is None:
        return None
    if links := graph.nvlinks(here, there):
        return ("nvlink", len(links), sum(link.get("bandwidth", 0) for link in links))
    if not graph.nvlinks_known:
        return None
    switched = [graph.nvlinks_of(node) for node in (here, there)]
    path = graph.path(here, there) or []
    return ("switch", min(switched)) if min(switched) else ("pcie", any(between_sockets(link) for link in path))


def _slow_pairs(document: Document) -> dict[frozenset[str], tuple[float, float]]:
    """Pairs of GPUs that are slower than others which are joined alike: (theirs, the others' median)."""
    graph, denied = Graph(document), readings.unreached(document)
    values: dict[frozenset[str], float] = {}
    for copy, value in readings.copies(document).items():
        pair = frozenset((copy.source, copy.target))
        direct = copy.by == "engine" and copy.direction == "one" and (copy.source, copy.target) not in denied
        if direct and len(pair) == 2 and all(map(readings.is_device, pair)):
            values[pair] = min(values.get(pair, value), value)
    kinds = {pair: _joined(graph, *sorted(pair)) for pair in values}
    slow = {}
    for pair, value in values.items():
        siblings = readings.median(v for other, v in values.items() if other != pair and kinds[other] == kinds[pair])
        if siblings and value < threshold("gpu_pair") * siblings:
            slow[pair] = (value, siblings)
    return slow


def _links_down(document: Document) -> dict[str, int]:
    """NVLinks that are down, by what they join in words."""
    graph = Graph(document)
    down: collections.Counter[str] = collections.Counter()
    for link in (*graph.links, *graph.lost):
        if link["kind"] == "nvlink" and is_down(link):
            ends = sorted(_node_name(graph, link[end]) for end in ("from", "to") if end in link)
            words = "between " + " and ".join(ends) if len(ends) > 1 else f"of {ends[0]}, which do not say where they lead"
            down[words] += count_of(link)
    return dict(down)


def _node_name(graph: Graph, node: str) -> str:
    """GPU 1, of gpu:1; of other nodes their names."""
    known = kind_of(node) == "gpu" and node in graph.nodes and graph.device(node)
    return _name(graph.device(node)) if known else node.replace(":", " ")


def nvlink(document: Document) -> Iterator[Finding]:
    """NVLinks that are down or missing: by the topology, and by pairs that are slower than their siblings."""
    down, slow = _links_down(document), _slow_pairs(document)
    if not down and not slow:
        return
    gpus = collections.Counter(name for pair in slow for name in pair)
    name, count = gpus.most_common(1)[0] if gpus else ("", 0)
    if slow and count == len(slow) > 1:
        about, where = name, f"between {_name(name)} and the other GPUs"
    elif slow:
        about = ", ".join("-".join(sorted(pair)) for pair in slow)
        where = "between " + ", ".join(" and ".join(map(_name, sorted(pair))) for pair in slow)
    else:
        about, where = "links", ", ".join(down)
    numbers = [f"{' and '.join(map(_name, sorted(p)))}: {rate(v)}, alike: {rate(s)}" for p, (v, s) in list(slow.items())[:8]]
    numbers += [f"NVLink down: {ends.removeprefix('between ')} ({many})" for ends, many in down.items()]
    if not down and not Graph(document).nvlinks_known:  # so it cannot be said that one is missing
        yield Finding(
            "nvlink",
            WARNING,
            about,
            f"Copies {where} are slower than those of other GPUs; which NVLinks there are is not known.",
            "Let NVML be found (libnvidia-ml.so.1; in containers NVIDIA_DRIVER_CAPABILITIES=utility) and measure again: the "
            "topology tells then whether a link is down.",
            tuple(numbers),
        )
        return
    dead = sum(down.values())
    joined = "A link is slow or missing" if not down else "An NVLink is down" if dead == 1 else f"{dead} NVLinks are down"
    yield Finding(
        "nvlink",
        FAULT,
        about,
        f"{joined} {where}.",
        "nvidia-smi nvlink --status and the kernel's log (NVRM: Xid 74) name the link; reset the GPUs, for switches the fabric "
        "manager (systemctl status nvidia-fabricmanager), then have the board looked at.",
        tuple(numbers),
    )


def link_errors(document: Document) -> Iterator[Finding]:
    """Links with far more errors than the others: every link counts some while it trains, and now and then later."""
    graph = Graph(document)
    links = [link for link in (*graph.links, *graph.lost) if link["kind"] == "nvlink"]
    if any(link.get("errors") for link in links):
        counts = {number_: link.get("errors", 0) for number_, link in enumerate(links)}
        far, median = far_more(counts)
        gpus: dict[str, list[str]] = {}
        for number_, count in far.items():
            port = f"NVLink {number(links[number_]['port'])}" if "port" in links[number_] else "NVLink"
            gpus.setdefault(links[number_]["from"], []).append(f"{port}: {number(count)}")
        for gpu, said in gpus.items():
            yield _errors_of(
                graph.device(gpu) if gpu in graph.nodes else gpu, said, f"in the median of all links: {number(median)}"
            )
        return
    sums = {
        device: sum(readings.gpu_facts(document, device).get("link_errors", {}).values())
        for device in readings.devices(document)
    }
    each = max((graph.nvlinks_of(gpu) for gpu in graph.of_kind("gpu")), default=1)
    far, median = far_more(sums, max(1, each))
    for device in far:
        kinds = readings.gpu_facts(document, device)["link_errors"]
        said = [f"{kind}: {number(count)}" for kind, count in kinds.items() if count]
        yield _errors_of(device, said, f"in the median of all GPUs: {number(median)}")


def _errors_of(device: str, said: list[str], others: str) -> Finding:
    return Finding(
        "link_errors",
        WARNING,
        device or "links",
        f"NVLinks of {_name(device)} have counted far more errors than the others.",
        "Watch whether they grow under load (nvidia-smi nvlink --errorcounters); if so, have the board looked at.",
        (*said[:8], others),
    )


def slowed(document: Document) -> Iterator[Finding]:
    """Clocks that were lowered by heat or power."""
    for device in readings.devices(document):
        facts = readings.gpu_facts(document, device)
        if facts.get("slowed_by"):
            celsius = facts.get("celsius_max")
            yield Finding(
                "slowed",
                FAULT,
                device,
                f"{_name(device)} lowered its clocks: {', '.join(facts['slowed_by'])}.",
                "Look at fans, air flow and power cables; nvidia-smi -q -d TEMPERATURE,PERFORMANCE names the limit.",
                (f"up to {number(celsius)} °C",) if celsius is not None else (),
            )


def pinned(document: Document) -> Iterator[Finding]:
    """Pinned memory that is slower than ordinary memory, which the driver has to copy first."""
    table = readings.copies(document)
    slow = {}
    for device in readings.devices(document):
        pairs = [
            (c, v) for c, v in table.items() if device in (c.source, c.target) and c.by == "engine" and c.direction == "one"
        ]
        fast = readings.median(v for c, v in pairs if sum(map(readings.is_pinned, (c.source, c.target))) == 1)
        plain = readings.median(v for c, v in pairs if sum(map(readings.is_ordinary, (c.source, c.target))) == 1)
        if fast and plain and fast < threshold("pinned") * plain:
            slow[device] = f"{_name(device)}: pinned {rate(fast)}, ordinary {rate(plain)}"
    if slow:
        yield Finding(
            "pinned",
            WARNING,
            ", ".join(slow),
            f"Copies of {', '.join(map(_name, slow))} are slower with pinned host memory than with ordinary.",
            "Look at the IOMMU (iommu=pt), at the NUMA node of pinned memory (numactl), and at the balloon driver of a virtual "
            "machine.",
            tuple(slow.values()),
        )


def far_from_nic(document: Document) -> Iterator[Finding]:
    """A GPU whose nearest NIC is behind the other socket, where siblings have one near."""
    graph = Graph(document)
    nics = graph.of_kind("nic")
    far: dict[str, bool] = {}
    for node in graph.of_kind("gpu") if nics else []:
        reached = graph.paths(node)
        paths = [reached[nic]() for nic in nics if nic in reached]
        if paths:
            far[graph.device(node) or node] = all(any(map(between_sockets, path)) for path in paths)
    names = [name for name, is_far in far.items() if is_far]
    if names and len(names) < len(far):
        yield Finding(
            "far_from_nic",
            NOTE,
            ", ".join(names),
            f"{', '.join(map(_name, names))}: every NIC is behind the other socket.",
            "Give network traffic to ranks on the other GPUs, or put a NIC into a slot of that socket.",
            (f"{len(far) - len(names)} of {len(far)} GPUs have a NIC at their socket",),
        )


RULES: tuple[Rule, ...] = (gpu_link, nvlink, peer_to_peer, slowed, link_errors, pinned, far_from_nic)
