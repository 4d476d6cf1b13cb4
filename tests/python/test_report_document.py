# SPDX-License-Identifier: Apache-2.0
"""The document of thalweg report: what is read is checked, errors name the place, writing is whole or nothing."""

from __future__ import annotations

import copy
import json
import random
import tracemalloc

import pytest

for needed in ("typer", "jsonschema"):
    pytest.importorskip(needed)

from report_fixtures import report  # noqa: E402
from thalweg._report import document, findings  # noqa: E402


def changed(change):
    """The text of a good report in which one thing is changed."""
    content = copy.deepcopy(report("healthy_box"))
    change(content)
    return json.dumps(content)


def first_row(content, test):
    return next(row for step in content["steps"] for row in step["rows"] if row["test"] == test)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda c: c.pop("machine"), "the whole: 'machine' is a required property"),
        (lambda c: c["machine"].update(processors=0), "machine.processors: 0 is less than the minimum of 1"),
        (lambda c: c["steps"][0].update(state="fine"), "steps[0].state: 'fine' is not one of"),
        (lambda c: first_row(c, "copies").update(bytes_per_s=-1), "bytes_per_s: -1 is less than the minimum"),
        (lambda c: first_row(c, "tag_lat").update(latency_us="fast"), "latency_us: 'fast' is not of type 'object'"),
        (lambda c: first_row(c, "tag_lat").update(size=1.5), "size: 1.5 is not of type 'integer'"),
        (lambda c: first_row(c, "tag_lat").update(size=1 << 80), "size: "),
        (lambda c: c["steps"][2]["rows"].append([]), "is not of type 'object'"),
        (lambda c: c["topology"]["links"][0].pop("to"), "topology.links[0]: 'to' is a required property"),
        (lambda c: c["topology"].update(format="hwloc"), "topology.format: 'thalweg topology 1' was expected"),
        (lambda c: c["info"]["limits"]["ptrace"].update(good="yes"), "info.limits.ptrace.good: 'yes' is not of type 'boolean'"),
        (lambda c: c.update(created="yesterday"), "created: 'yesterday' does not match"),
        (lambda c: c["gpus"][1].update(index="one"), "gpus[1].index: 'one' is not of type 'integer'"),
        (lambda c: first_row(c, "memory").update(threads=[1]), "threads: [1] is not of type 'integer'"),
        (lambda c: first_row(c, "memory").update(cpu_node=5000), "cpu_node: 5000 is greater than the maximum of 1023"),
        (lambda c: first_row(c, "copies").update(bytes_per_s=1e300), "bytes_per_s: 1e+300 is greater than the maximum"),
        (lambda c: c["machine"].update(host="\ud800"), "half of a surrogate pair is no text"),
        (lambda c: c.update(steps=[c["steps"][0]] * 1001), "steps: 1001 are more than the 1000 that a report may have"),
        (lambda c: c["steps"][0].update(rows=[{"test": "x"}] * 20001), "rows are more than the 20000"),
        (lambda c: c.update(gpus=[{"index": 0}] * 65), "gpus: 65 are more than the 64"),
        (lambda c: c["topology"].update(nodes=[{"id": "machine"}] * 8193), "topology.nodes: 8193 are more than the 8192"),
        (lambda c: c["topology"].update(links=[{}] * 32769), "topology.links: 32769 are more than the 32768"),
        (
            lambda c: c["steps"][0]["rows"].extend({"test": "copies", "from": f"cuda:{n}", "to": "host"} for n in range(70)),
            "different devices and memories are more than the 64",
        ),
    ],
)
def test_errors_name_the_place(change, place):
    with pytest.raises(document.BadReport) as error:
        document.parse(changed(change), "night.json")
    assert "night.json" in str(error.value) and place in str(error.value) and len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no JSON"),
        ("[1]", "its format is 'None'"),
        ('{"format": "thalweg report 9"}', "thalweg report --json FILE writes one"),
        ('{"format": "thalweg report 1", "x": NaN}', "NaN is no number"),
        ("[" * 100000, "no JSON that can be read"),
        ('{"format": "thalweg report 1", "x": 1e999}', "1e999 is too large a number"),
        ('{"format": "thalweg report 1", "x": ' + "9" * 5000 + "}", "no JSON that can be read"),
        (b"\xff\xfe\x00", "no JSON"),
        (json.dumps({"format": "x" * 5000}), "is no report"),
    ],
)
def test_what_is_no_report(text, words):
    with pytest.raises(document.BadReport, match=words):
        document.parse(text, "file")


def test_numbers_next_to_nothing_are_nothing():
    text = changed(lambda c: first_row(c, "tag_lat").update(ns=0)).replace('"ns": 0}', '"ns": 1e-320}')
    assert "1e-320" in text and first_row(document.parse(text, "file"), "tag_lat")["ns"] == 0


def test_a_table_that_no_page_can_show_is_refused_by_name():
    pytest.importorskip("matplotlib")
    from thalweg._report import parts

    content = report("healthy_plain")
    step = next(step for step in content["steps"] if step["name"] == "memory")
    step["rows"] = [
        {"test": "memory", "operation": "triad", "cpu_node": n, "memory_node": 1023 - n, "bytes_per_s": 1e9}
        for n in range(1024)
    ]
    content = document.parse(json.dumps(content), "file")
    findings.find(content)
    with pytest.raises(document.BadReport, match="Triad, GB/s: 1024 rows of 1024 columns are more than a page can show"):
        list(parts.BUILDERS["memory"](content))


def test_memory_without_processors_is_not_called_slow():
    content = report("healthy_box")
    content["machine"]["numa"].append({"node": 2, "processors": [], "memory_bytes": 1 << 38})
    step = next(step for step in content["steps"] if step["name"] == "memory")
    for cpu in (0, 1):
        row = {"test": "memory", "operation": "triad", "cpu_node": cpu, "memory_node": 2, "threads": 32, "bytes_per_s": 2e9}
        step["rows"].append(row)
    assert findings.find(document.parse(json.dumps(content), "file")) == []


def test_deep_topologies_cost_little():
    """A way of thousands of nodes, to each of many network cards."""
    content = report("healthy_box")
    nodes = [{"id": "machine"}, *({"id": f"switch:{n}", "parent": f"switch:{n - 1}" if n else "machine"} for n in range(8000))]
    nodes += [{"id": f"{kind}:{n}", "parent": "switch:7999" if n else "machine"} for kind in ("gpu", "nic") for n in range(64)]
    content["topology"].update(nodes=nodes, links=[])
    tracemalloc.start()
    try:
        findings.find(document.parse(json.dumps(content), "file"))
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_files_that_are_not_there_or_too_large(tmp_path, monkeypatch):
    with pytest.raises(document.BadReport, match="No such file"):
        document.load(tmp_path / "absent.json")
    (tmp_path / "large.json").write_text(" " * 2000)
    monkeypatch.setattr(document, "LARGEST", 1000)
    with pytest.raises(document.BadReport, match="no report is so large"):
        document.load(tmp_path / "large.json")


def mutated(value, chosen):
    """Somewhere in it something of another kind."""
    if isinstance(value, dict) and value and chosen.random() < 0.9:
        key = chosen.choice(list(value))
        return {**value, key: mutated(value[key], chosen)}
    if isinstance(value, list) and value and chosen.random() < 0.9:
        index = chosen.randrange(len(value))
        return [*value[:index], mutated(value[index], chosen), *value[index + 1 :]]
    numbers = [-1, 0, 1.0, 1e-320, 1e18, 1e308, 2**70, True]
    texts = ["", "<b>", "\ud800", "cuda:0", "cuda:" + "9" * 5000]
    return chosen.choice([None, [], [1], {}, [{}], *numbers, *texts])


def test_what_is_accepted_can_be_used():
    """Hundreds of reports with something odd in them: refused by name, or all that reads them works."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    from thalweg._report import parts, peaks, quantities

    chosen = random.Random(19)
    good, accepted = report("nvlink_down"), 0
    for step in good["steps"]:
        step["rows"] = step["rows"][:: len(step["rows"]) // 8 + 1]  # a few of each: checking takes most of the time
    for _ in range(200):
        try:
            content = document.parse(json.dumps(mutated(good, chosen)), "file")
        except document.BadReport:
            continue
        accepted += 1
        findings.find(content)
        quantities.of(content)
        peaks.peak_table(content)
        for name in ("memory", "tiers", "links", "triggers", "daxpy", "overlap", "atomics", "pages"):
            list(parts.BUILDERS[name](content))
    assert 10 < accepted < 190


def test_a_report_is_written_whole_and_reads_back(tmp_path):
    content = report("healthy_hgx")
    path = tmp_path / "out.json"
    document.write(path, document.text_of(content))
    assert document.load(path) == content
    assert max(map(len, path.read_text().splitlines())) < 3000, "a line for each row"
    with pytest.raises(TypeError):
        document.write(path, None)  # fails in the middle
    assert document.load(path) == content and [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_rows_of_a_measurement_are_checked():
    assert document.check_row({"test": "memory", "bytes_per_s": 1e10, "cpu_node": 0}) == ""
    assert "copy_ns" in document.check_row({"test": "collaborate", "copy_ns": "long"})
    assert document.check_row({"size": 3}) and document.check_row(7)
