# SPDX-License-Identifier: Apache-2.0
"""Topologies: from Python and by `thalweg topo`, on saved machines; and what a link that is down makes of routes. Each in a
process of its own, which THALWEG_TOPOLOGY tells its machine."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import xml.etree.ElementTree

import pytest
import thalweg as tw

MACHINES = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "topologies"
NAMES = sorted(path.stem for path in MACHINES.glob("*.json"))
SVG = "{http://www.w3.org/2000/svg}"


def run(*command: str, machine: str | pathlib.Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process on a saved machine, by its name or file."""
    given = {**os.environ, "COLUMNS": "160", **environment}
    if machine is not None:
        given["THALWEG_TOPOLOGY"] = str(machine if os.sep in str(machine) else MACHINES / f"{machine}.json")
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=given)


def topo(*arguments: str, machine: str | pathlib.Path | None = None) -> str:
    """What `thalweg topo` prints."""
    pytest.importorskip("typer")
    done = run(sys.executable, "-m", "thalweg._cli.main", "topo", *arguments, machine=machine, THALWEG_EMULATED="")
    assert done.returncode == 0, done.stderr
    return done.stdout


def python(text: str, machine: str | pathlib.Path | None = None, **environment: str) -> str:
    """What a script prints."""
    done = run(sys.executable, "-c", textwrap.dedent(text), machine=machine, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def broken(path: pathlib.Path, machine: str, *pairs: tuple[str, str]) -> pathlib.Path:
    """A saved machine whose NVLinks between such nodes are down."""
    whole = json.loads((MACHINES / f"{machine}.json").read_text())
    down = [link for link in whole["links"] if (link["from"], link["to"]) in pairs]
    assert len(down) >= len(pairs)
    for link in down:
        link["state"] = "down"
    path.write_text(json.dumps(whole))
    return path


# ------------------------------------------------------------------------------------------- from Python


def test_this_machine():
    here = tw.topology()
    assert here.nodes[0]["id"] == "machine" and "Topology" in repr(here)
    places = [here.place(rank, 2) for rank in range(2)]
    for place in places:
        assert place.processors and set(place.processors) <= os.sched_getaffinity(0)
    assert here.distance("machine", "machine").kind == "X"
    with pytest.raises(tw.InvalidError, match="no node"):
        here.distance("machine", "gpu:99")
    with pytest.raises(tw.InvalidError, match="rank 2 of 2"):
        here.place(2, 2)


def test_a_saved_machine():
    said = python(
        """
        import json, thalweg as tw
        there = tw.topology()
        places = [there.place(rank, 8) for rank in range(8)]
        print(json.dumps([[p.gpu for p in places], [p.nic for p in places], [p.place for p in places[:2]]]))
        print(len(there.all("gpu")), there.distance("gpu:0", "gpu:4"), repr(there))
        """,
        machine="dgx1",
        THALWEG_EMULATED="devices=8",
    ).splitlines()
    cards = [f"mlx5_{rank // 2}" for rank in range(8)]
    assert json.loads(said[0]) == [list(range(8)), cards, ["emulated:0", "emulated:1"]]
    assert said[1].startswith("8 Distance(kind='NV2', hops=1, links=2, links_down=0, bandwidth=50000000000.0")
    assert "8 gpu, 4 nic" in said[1]


def test_a_file_that_is_not_right(tmp_path):
    file = tmp_path / "wrong.json"
    file.write_text('{"format": "thalweg topology 1", "nodes": [{"id": "machine"}, {"id": "gpu:1", "parent": "machine"}]}')
    said = python(
        """
        import thalweg as tw
        for ask in (tw.topology, tw.Context):
            try:
                ask()
            except tw.InvalidError as error:
                print(error)
        """,
        machine=file,
    ).splitlines()
    assert len(said) == 2
    for line in said:
        assert f'{file}:1:70: "id" is "gpu:1"; kinds are numbered in order, so the next is "gpu:0"' in line


# ------------------------------------------------------------------------------------------- thalweg topo


@pytest.mark.parametrize("name", NAMES)
def test_topo_draws_every_machine(name, tmp_path):
    whole = json.loads((MACHINES / f"{name}.json").read_text())
    picture = tmp_path / "machine.svg"
    said = topo("--ranks", "3", "--svg", str(picture), machine=name)
    assert whole["name"] in said and "Ranks" in said
    drawn = [node["id"] for node in whole["nodes"] if node["id"].partition(":")[0] not in ("machine", "cache", "core")]
    for node in drawn:
        assert node in said, node
    root = xml.etree.ElementTree.parse(picture).getroot()
    words = {text.text for text in root.iter(f"{SVG}text")}
    assert set(drawn) <= words
    cores = [box for box in root.iter(f"{SVG}rect") if box.get("class") == "core"]
    assert len(cores) == sum(node["id"].startswith("core:") for node in whole["nodes"])
    width, height = float(root.get("width")), float(root.get("height"))
    for box in root.iter(f"{SVG}rect"):
        if box.get("x"):
            assert float(box.get("x")) >= 0 and float(box.get("x")) + float(box.get("width")) <= width
            assert float(box.get("y")) + float(box.get("height")) <= height


def with_peers(path: pathlib.Path, why: dict[tuple[int, int], str]) -> pathlib.Path:
    """Four GPUs of two sockets, whose driver says so of these pairs, and of all others that they have access."""
    whole = json.loads((MACHINES / "two_sockets_pcie.json").read_text())
    whole["peers"] = [
        {"from": f"gpu:{one}", "to": f"gpu:{other}", "read": said, "write": said, "nvlink": "not supported"}
        for one, other in itertools.combinations(range(4), 2)
        for said in [why.get((one, other), "ok")]
    ]
    path.write_text(json.dumps(whole))
    return path


def test_topo_says_why_gpus_do_not_reach_each_other(tmp_path):
    apart = {(0, 2): "chipset not supported", (1, 3): "chipset not supported", (0, 1): "disabled by registry key"}
    file = with_peers(tmp_path / "apart.json", apart)
    said = topo(machine=file)
    assert "! no peer access between gpu 0-2, 1-3: chipset not supported, says the driver" in said
    assert "! no peer access between gpu 0-1: disabled by registry key, says the driver" in said
    assert said.count("no peer access") == 2
    assert json.loads(topo("--json", machine=file))["peers"] == json.loads(file.read_text())["peers"]
    first = python("import thalweg as tw; print(tw.topology().peers[0]['read'])", machine=file)
    assert first == "disabled by registry key\n"
    nobody = dict.fromkeys(itertools.combinations(range(4), 2), "GPU not supported")
    said = topo(machine=with_peers(tmp_path / "nobody.json", nobody))
    assert "! no peer access between any two GPUs: GPU not supported, says the driver" in said
    assert "peer access" not in topo(machine=with_peers(tmp_path / "all.json", {}))
    assert "peer access" not in topo(machine="two_sockets_pcie")


def test_the_matrix_is_nvidia_smis():
    said = topo(machine="dgx1")
    lines = [line.split() for line in said.splitlines() if line.strip().startswith("gpu:")]
    rows = {line[0]: " ".join(line[1:]) for line in lines}
    assert rows["gpu:0"] == "X NV1 NV1 NV2 NV2 SYS SYS SYS PIX PHB SYS SYS NODE SYS"
    assert "!" not in said
    assert "NODE a NUMA node" in said and "SYS the links" in said


def test_topo_names_what_is_down(tmp_path):
    file = broken(tmp_path / "m.json", "hgx_h200_4", ("gpu:0", "gpu:1"))
    said = topo("--svg", str(tmp_path / "m.svg"), machine=file)
    assert "! all 6 NVLinks between gpu:0 and gpu:1 are down" in said and "6 x NVLink 4 down" in said
    assert "6 down" in (tmp_path / "m.svg").read_text()


def changed(path: pathlib.Path, machine: str, change) -> pathlib.Path:
    """A saved machine in which something is changed."""
    whole = json.loads((MACHINES / f"{machine}.json").read_text())
    change(whole)
    path.write_text(json.dumps(whole))
    return path


def nvlinks(whole):
    return [link for link in whole["links"] if link["kind"] == "nvlink"]


def test_topo_names_links_with_far_more_errors_than_the_others(tmp_path):
    """Every link counts some."""

    def some(whole, most=12):
        for number, link in enumerate(nvlinks(whole)):
            link["errors"] = most if number == 0 else number % 7

    assert "errors" not in topo(machine=changed(tmp_path / "m.json", "power9", some))
    said = topo(machine=changed(tmp_path / "n.json", "power9", lambda whole: some(whole, 1200)))
    assert "! NVLink 2 from gpu:0 to gpu:1 has counted 1200 errors, in the median they have" in said


def test_topo_names_links_that_do_not_say_where_they_lead(tmp_path):
    def lose(whole):
        for link in nvlinks(whole)[:1]:
            link["state"] = "down"
            del link["to"]

    file = changed(tmp_path / "m.json", "hgx_h200_4", lose)
    said = topo("--svg", str(tmp_path / "m.svg"), machine=file)
    assert said.count("are down and do not say where they lead") == 1 and "gpu:0 - ?" in said
    assert json.loads(topo("--json", machine=file))["links"]


def test_topo_says_that_nvlinks_are_not_known(tmp_path):
    def forget(whole):
        whole["links"] = [link for link in whole["links"] if link["kind"] != "nvlink"]
        whole["nvlinks"] = "unknown"

    file = changed(tmp_path / "m.json", "hgx_h200_4", forget)
    assert topo(machine=file).count("! NVLinks are not known: there was no NVML to tell of them") == 1
    assert json.loads(topo("--json", machine=file))["nvlinks"] == "unknown"


def test_topo_draws_nodes_that_share_a_cache(tmp_path):
    """Sub-NUMA clusters."""
    nodes = [
        {"id": "machine"},
        {"id": "package:0", "parent": "machine"},
        {"id": "cache:0", "parent": "package:0", "memory": 1 << 25},
    ]
    for numa in range(2):
        nodes.append({"id": f"numa:{numa}", "parent": "cache:0", "memory": 1 << 30})
        nodes += [{"id": f"core:{n}", "parent": f"numa:{numa}", "processors": str(n)} for n in (2 * numa, 2 * numa + 1)]
    file = tmp_path / "m.json"
    file.write_text(json.dumps({"format": "thalweg topology 1", "name": "SNC", "source": "", "nodes": nodes, "links": []}))
    said = topo("--svg", str(tmp_path / "m.svg"), machine=file)
    assert "cache:0  32 MiB" in said and "numa:1  1 GiB" in said and "cores 2-3" in said
    boxes = xml.etree.ElementTree.parse(tmp_path / "m.svg").getroot().iter(f"{SVG}rect")
    assert [box.get("class") for box in boxes].count("core") == 4
    assert {"cache:0", "32 MiB of cache", "numa:1"} <= set((tmp_path / "m.svg").read_text().replace("<", ">").split(">"))


def test_names_are_cut_between_characters(tmp_path):
    def name(whole):
        for node in whole["nodes"]:
            if node["id"].startswith("nic:"):
                node["name"] = "x" + "\N{EURO SIGN}" * 40  # 121 bytes; a placement has room for 63

    file = changed(tmp_path / "m.json", "hgx_h200_4", name)
    assert json.loads(topo("--json", "--ranks", "1", machine=file))["ranks"][0]["nic"] == "x" + "\N{EURO SIGN}" * 20


def test_switches_that_are_nested_too_deep_are_refused(tmp_path):
    nodes = [{"id": "machine"}, *({"id": f"switch:{n}", "parent": f"switch:{n - 1}" if n else "machine"} for n in range(5000))]
    file = tmp_path / "m.json"
    file.write_text(json.dumps({"format": "thalweg topology 1", "name": "", "source": "", "nodes": nodes}))
    pytest.importorskip("typer")
    done = run(sys.executable, "-m", "thalweg._cli.main", "topo", machine=file)
    assert done.returncode == 1 and "is below 32 switches already" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_json_is_a_machine_again(name, tmp_path):
    file = tmp_path / "again.json"
    file.write_text(topo("--json", machine=name))
    again = json.loads(topo("--json", machine=file))
    first = json.loads(file.read_text())
    assert again["nodes"] == first["nodes"] and again["links"] == first["links"]


def test_the_json_of_this_machine_is_one_too(tmp_path):
    file = tmp_path / "here.json"
    file.write_text(topo("--json"))
    assert json.loads(topo("--json", machine=file))["nodes"] == json.loads(file.read_text())["nodes"]


def test_placements_as_json():
    places = json.loads(topo("--json", "--ranks", "4", machine="power9"))["ranks"]
    assert [place["gpu"] for place in places] == [0, 1, 2, 3] and [place["numa"] for place in places] == [0, 0, 1, 1]
    assert places[0]["processors"] == list(range(40)) and places[0]["device"] is None and places[0]["place"] == "host"


def test_topo_says_what_is_wrong():
    pytest.importorskip("typer")
    done = run(sys.executable, "-m", "thalweg._cli.main", "topo", machine="/no/such/file.json")
    assert done.returncode == 1 and "/no/such/file.json (THALWEG_TOPOLOGY)" in done.stderr


def test_info_says_what_the_topology_is_made_of():
    with tw.Context() as context:
        found = context.info()["topology"]
    assert found["source"] and found["hwloc"] and found["nvml"]
    said = python("import json, thalweg as tw; print(json.dumps(tw.Context().info()['topology']))", machine="dgx1")
    assert json.loads(said)["gpu"] == 8 and "dgx1.json (THALWEG_TOPOLOGY)" in json.loads(said)["source"]


# ------------------------------------------------------------------------------------------- routes

ROUTES = """
import os, sys
import numpy as np
sys.path.insert(0, {folder!r})
from peers import connected
import thalweg as tw

LENGTH = 300_001

def target(endpoint, pipe):
    context = endpoint.worker.context
    memory = tw.Memory.allocate(context, LENGTH, place="emulated:1")
    pipe.send(memory.export())
    while not pipe.poll(0):
        endpoint.worker.wait(0.01)
    pipe.recv()
    seen = np.empty(LENGTH, np.uint8)
    tw.copy(context, seen, memory)
    pipe.send(seen)

if __name__ == "__main__":
    with connected(target) as (endpoint, pipe):
        context = endpoint.worker.context
        remote = tw.RemoteMemory(endpoint, pipe.recv())
        payload = np.random.default_rng().integers(0, 256, LENGTH, np.uint8)
        source = tw.Memory.allocate(context, LENGTH, place="emulated:0")
        tw.copy(context, source, payload)
        print(remote.explain("put", buffer=source))
        endpoint.put(source, remote, 0, visible=True)
        print(endpoint.explain("send", buffer=source))
        moved = context.counters()["moved"]
        print("moved by", [way for way, count in moved.items() if count["operations"]])
        pipe.send("now")
        while not pipe.poll(0):
            endpoint.worker.wait(0.01)
        assert (pipe.recv() == payload).all()
        print("reaches", context.info()["devices"][0]["reaches"])
"""


def routes(tmp_path, machine):
    """What a put from emulated:0 to another process's emulated:1 says of its way; its bytes are checked."""
    script = tmp_path / "routes.py"
    script.write_text(ROUTES.format(folder=str(pathlib.Path(__file__).parent)))
    done = run(sys.executable, str(script), machine=machine, THALWEG_EMULATED="devices=4", THALWEG_COSTS="off")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_links_that_are_up_are_the_way(tmp_path):
    said = routes(tmp_path, "hgx_h200_4")
    assert "emulated:1 by nvlink, with atomics" in said
    assert "moved by ['push']" in said and "link to emulated:1" not in said


def test_a_link_that_is_down_leaves_pcie(tmp_path):
    file = broken(tmp_path / "m.json", "hgx_h200_4", ("gpu:0", "gpu:1"))
    said = routes(tmp_path, file)
    assert "emulated:1 by pcie'" in said and "emulated:2 by nvlink, with atomics" in said
    assert "moved by ['push']" in said
    assert said.count(f"link to emulated:1: pcie, as all 6 NVLinks between gpu:0 and gpu:1 are down in {file}") == 2


def test_links_that_are_down_beside_others_are_named(tmp_path):
    def some(whole):
        links = [link for link in nvlinks(whole) if (link["from"], link["to"]) == ("gpu:0", "gpu:1")]
        whole["links"] += [{**link, "count": 2, "state": "down"} for link in links[:1]]

    file = changed(tmp_path / "m.json", "hgx_h200_4", some)
    said = routes(tmp_path, file)
    assert "emulated:1 by nvlink, with atomics" in said
    assert said.count(f"link to emulated:1: nvlink; 2 of 8 NVLinks between gpu:0 and gpu:1 are down in {file}") == 2


def test_where_nvlinks_are_not_known_nothing_is_taken_away(tmp_path):
    def forget(whole):
        whole["links"] = [link for link in whole["links"] if link["kind"] != "nvlink"]
        whole["nvlinks"] = "unknown"

    said = routes(tmp_path, changed(tmp_path / "m.json", "dgx1", forget))
    assert "emulated:1 by pcie, with atomics" in said and "link to" not in said


def test_a_link_that_is_down_between_sockets_leaves_the_host(tmp_path):
    file = broken(tmp_path / "m.json", "dgx1", ("gpu:0", "gpu:1"), ("gpu:0", "gpu:4"))
    whole = json.loads(file.read_text())
    # GPU 1 at the other socket, so nothing is left between it and GPU 0; parents stand first
    moved = [node for node in whole["nodes"] if node["id"].startswith(("gpu", "nic"))]
    rest = [node for node in whole["nodes"] if node not in moved]
    for node in moved:
        if node["id"] == "gpu:1":
            node["parent"] = "switch:3"
    whole["nodes"] = [*rest, *moved]
    whole["links"] = [
        {**link, "to": "switch:3"} if link["kind"] == "pcie" and link["from"] == "gpu:1" else link for link in whole["links"]
    ]
    file.write_text(json.dumps(whole))
    said = routes(tmp_path, file)
    why = f"NVLink between gpu:0 and gpu:1 is down in {file}, and they are on different NUMA nodes"
    assert "emulated:1 not at all: copies between them go through the host" in said
    assert "moved by ['staging']" in said
    assert said.count(f"link to emulated:1: none, so through host memory, as {why}") == 2
    assert why in said.partition("link to")[0], "the way that is not possible names it, too"
