# SPDX-License-Identifier: Apache-2.0
"""Findings of thalweg report: each injected fault gives its own and no other, health gives none, with noise too."""

from __future__ import annotations

import ast
import inspect
import random

import pytest

for needed in ("typer", "jsonschema", "jinja2", "matplotlib"):
    pytest.importorskip(needed)

from report_fixtures import EXPECTED, FOLDER, HEALTHY, report  # noqa: E402
from thalweg._report import findings, readings, rules_gpu, rules_host, rules_run, units  # noqa: E402

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
