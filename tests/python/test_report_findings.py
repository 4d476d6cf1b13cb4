# SPDX-License-Identifier: Apache-2.0
"""Findings of thalweg report: each injected fault gives its own and no other, health gives none, with noise too."""

from __future__ import annotations

import ast
import inspect
import pathlib
import random
import statistics

import pytest

for needed in ("typer", "jsonschema", "jinja2", "matplotlib"):
    pytest.importorskip(needed)

from report_fixtures import EXPECTED, FOLDER, HEALTHY, report  # noqa: E402
from thalweg._cli import topology_graph  # noqa: E402
from thalweg._report import document, findings, page, readings, rules_gpu, rules_host, rules_run, topology, units  # noqa: E402

REAL = pathlib.Path(__file__).parents[2] / "benchmarks" / "results" / "reports"

MEASURED = {"bytes_per_s", "bandwidth_GBps", "rate_Mps", "ns", "p99_ns", "host_adds_per_s", "device_adds_per_s"}


def found(document):
    return [(one.rule, one.about) for one in findings.find(document)]


def test_every_saved_report_is_expected_and_the_generator_writes_them(tmp_path):
    import make

    make.make(tmp_path)
    assert {path.stem for path in FOLDER.glob("*.json")} == set(EXPECTED)
    for name in EXPECTED:
        assert (tmp_path / f"{name}.json").read_text() == (FOLDER / f"{name}.json").read_text(), f"run {FOLDER / 'make.py'}"


@pytest.mark.parametrize("name", EXPECTED)
def test_a_fault_gives_its_finding_and_no_other(name):
    assert found(report(name)) == EXPECTED[name]


def test_every_rule_has_a_fault_and_says_what_helps():
    rules = set()
    for module in (rules_run, rules_host, rules_gpu):
        calls = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Call)]
        rules |= {call.args[0].value for call in calls if getattr(call.func, "id", "") == "Finding"}
    assert rules == {rule for expected in EXPECTED.values() for rule, _ in expected}
    for name in EXPECTED:
        for one in findings.find(report(name)):
            assert one.what.endswith(".") and one.remedy.endswith(".") and one.numbers and len(one.what) < 250, one


def test_why_gpus_do_not_reach_each_other_is_said_where_nvml_says_it():
    (without,), (told,) = (findings.find(report(name)) for name in ("no_peer_to_peer", "no_peer_to_peer_by_option"))
    assert "driver says why" not in without.what and "nvidia-smi topo -p2p r" in without.remedy
    assert "an option of the driver's module turns it off" in told.what and "NVreg_RegistryDwords" in told.remedy
    assert "the driver's reason, for 6 of them: disabled by registry key" in told.numbers
    for reason in ("chipset not supported", "GPU not supported", "IOH topology not supported", "not supported", "unknown"):
        changed = report("no_peer_to_peer_by_option")
        for pair in changed["topology"]["peers"]:
            pair["read"] = reason
        (one,) = findings.find(changed)
        assert any(number.endswith(": " + reason) for number in one.numbers)
        assert (one.remedy == without.remedy) == (reason not in rules_gpu.NO_ACCESS)
    changed["topology"]["peers"] = [{"from": "gpu:0", "to": "gpu:1", "read": "ok", "write": "ok"}]  # of another pair nothing
    assert findings.find(changed) == [without]


def with_noise(document, part, random_numbers):
    """Each measured number up to `part` larger or smaller, a row's all by the same."""
    for step in document["steps"]:
        for row in step["rows"]:
            factor = 1 + random_numbers.uniform(-part, part)
            for name in MEASURED & set(row):
                row[name] = row[name] / factor if name.endswith("ns") else row[name] * factor
            for name in row.get("latency_us", {}):
                row["latency_us"][name] *= 1 + random_numbers.uniform(-part, part)
            for name in row.get("figures", {}):
                row["figures"][name] *= factor
    return document


@pytest.mark.parametrize("name", HEALTHY)
def test_noise_of_ten_percent_is_no_finding(name):
    seeds = random.Random(20261126)
    for _ in range(60):
        seed = seeds.getrandbits(32)
        assert found(with_noise(report(name), 0.1, random.Random(seed))) == [], f"seed {seed}"


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in HEALTHY])
def test_noise_of_three_percent_hides_no_fault(name):
    seeds = random.Random(7)
    for _ in range(10):
        seed = seeds.getrandbits(32)
        assert found(with_noise(report(name), 0.03, random.Random(seed))) == EXPECTED[name], f"seed {seed}"


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7])
def test_rules_do_without_what_was_not_measured(name, share):
    """Rows, fields of the document and whole steps are missing: no rule fails, and none finds what was not there before."""
    chosen = random.Random(f"{name} {share}")
    document = report(name)
    for step in document["steps"]:
        step["rows"] = [row for row in step["rows"] if chosen.random() < share]
    for field in ("info", "topology", "gpus"):
        if chosen.random() > share:
            document.pop(field, None)
    assert {rule for rule, _ in found(document)} <= {rule for rule, _ in EXPECTED[name]}


def test_words_name_the_part_and_the_numbers():
    (one,) = findings.find(report("gpu_pcie_x8"))
    assert one.what == "GPU 3 reaches half the bandwidth of its siblings: PCIe x8, could be x16."
    assert one.severity == "fault" and one.numbers == ("GPU 3: 12.6 GB/s to or from the host", "the others: 25.1 GB/s")
    (one,) = findings.find(report("nvlink_down"))
    assert "GPU 1 and GPU 2" in one.what and "NVLink down: GPU 1 and GPU 2 (3)" in one.numbers
    (one,) = findings.find(report("memory_channel"))
    assert "node 1 reaches half the memory bandwidth" in one.what


def test_a_machine_with_one_gpu_has_its_link_judged_by_the_driver():
    document = report("healthy_box")
    for step in document["steps"]:
        step["rows"] = [row for row in step["rows"] if not {"cuda:1", "cuda:2", "cuda:3"} & {row.get("from"), row.get("to")}]
    document["info"]["devices"] = document["info"]["devices"][:1]
    assert found(document) == []
    document["gpus"][0]["pcie_width"] = 4
    assert found(document) == [("gpu_link", "cuda:0")]
    document["gpus"] = []
    assert found(document) == []
    next(link for link in document["topology"]["links"] if link["from"] == "gpu:0")["lanes"] = 8
    assert found(document) == [("gpu_link", "cuda:0")]


@pytest.mark.parametrize("path", sorted(REAL.glob("*h200*.json")), ids=lambda path: path.stem)
def test_links_of_healthy_hosts_have_counted_some_errors(path):
    """Reports of real H200: each link has counted up to some thirty since its driver was loaded."""
    content = document.load(path)
    assert sum(link.get("errors", 0) > 0 for link in content["topology"]["links"]) >= 17
    assert not [one for one in findings.find(content) if one.rule == "link_errors"]
    links = [link for link in content["topology"]["links"] if link["kind"] == "nvlink"]
    links[3]["errors"] *= 100
    links[3]["errors"] += 100
    (one,) = [one for one in findings.find(content) if one.rule == "link_errors"]
    assert one.numbers[0] == f"NVLink 3: {units.number(links[3]['errors'])}" and "in the median" in one.numbers[-1]


def test_a_link_stands_out_by_its_siblings():
    far = topology_graph.far_more
    assert far({}) == ({}, 0) and far({"a": 10**9})[0] == {}  # nothing to compare it with
    assert far({"a": 99, "b": 0, "c": 0})[0] == {} and far({"a": 100, "b": 0, "c": 0})[0] == {"a": 100}
    assert far({"a": 1000, "b": 60, "c": 40}) == ({"a": 1000}, 60) and far({"a": 900, "b": 900, "c": 900})[0] == {}
    chosen = random.Random(5)
    for _ in range(200):
        counts = {number: chosen.choice((0, 1, 7, 30, 400, 9000)) for number in range(chosen.randrange(2, 9))}
        for name, count in counts.items():
            middle = statistics.median(other for key, other in counts.items() if key != name)
            assert (name in far(counts)[0]) == (count >= 20 * max(middle, 5)), counts


def test_what_is_not_known_of_nvlinks_is_not_said_to_be_missing():
    (one,) = findings.find(report("without_nvml"))
    assert one.severity == "warning" and "not known" in one.what and "missing" not in one.what
    (one,) = findings.find(report("lost_links"))
    assert one.what == "2 NVLinks are down of GPU 0, which do not say where they lead."
    content = report("without_nvml")
    for step in content["steps"]:
        step["rows"] = [row for row in step["rows"] if row["test"] != "copies"]
    assert found(content) == []
    assert "not known: there was no NVML to tell of them" in page.page(content)


def test_devices_are_known_by_their_pci_address_where_uuids_differ():
    """As those of MIG, whose UUIDs are their own, and where the driver's tool tells none."""
    content = report("gpu_pcie_x8")
    for number, device in enumerate(content["info"]["devices"]):
        device["uuid"] = f"MIG-{number:032x}"
        device["pci"] = f"0000:{16 * number + 23:02x}:00.0"
    assert [readings.gpu_facts(content, f"cuda:{n}")["index"] for n in range(4)] == [0, 1, 2, 3]
    assert found(content) == [("gpu_link", "cuda:3")]
    for gpu in content["gpus"]:
        del gpu["uuid"]
    assert readings.gpu_facts(content, "cuda:3")["pcie_width"] == 8
    for number in range(4):
        node = next(node for node in content["topology"]["nodes"] if node["id"] == f"gpu:{number}")
        node["pci"] = f"0000:{16 * (3 - number) + 23:02x}:00.0"
    assert topology.Graph(content).device("gpu:0") == "cuda:3"


def test_devices_are_known_by_their_uuid():
    document = report("gpu_pcie_x8")
    names = [device["uuid"] for device in document["info"]["devices"]]
    for device, uuid in zip(document["info"]["devices"], reversed(names), strict=True):
        device["uuid"] = uuid  # as CUDA_DEVICE_ORDER=FASTEST_FIRST may number them
    assert readings.gpu_facts(document, "cuda:0")["pcie_width"] == 8


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.26, "0.26"), (12.55, "12.6"), (1234567, "1,234,567"), (0.0004, "0.0004"), (131.7, "132")],
)
def test_numbers_are_short(value, text):
    assert units.number(value) == text


def test_units():
    assert [units.rate(r) for r in (25.1e9, 132e9, 3.2e6)] == ["25.1 GB/s", "132 GB/s", "3.2 MB/s"]
    assert [units.time(t) for t in (90, 8300, 2.5e6, 3e9)] == ["90 ns", "8.3 µs", "2.5 ms", "3 s"]
    assert [units.part_of(p) for p in (0.5, 0.51, 0.25, 0.63)] == ["half the", "half the", "a quarter of the", "63 % of the"]
