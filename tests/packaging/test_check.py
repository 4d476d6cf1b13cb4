# SPDX-License-Identifier: Apache-2.0
"""scripts/check.py: parts that go on, and what it records of them."""

import importlib.util
import json
import sys

import pytest
from conftest import ROOT


@pytest.fixture
def check(tmp_path, monkeypatch):
    """The script as a module, with parts that cost nothing and a record of its own."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    spec = importlib.util.spec_from_file_location("check", ROOT / "scripts" / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ran = module.ran = []

    def part(name, *command):
        def body(steps):
            ran.append(name)
            if command:
                steps.run(*command, limit=2)
            else:
                raise module.Skipped("no such tool (apt-get install it)")

        return body

    parts = {
        "bad": part("bad", "false"),
        "slow": part("slow", "sleep", "60"),
        "absent": part("absent"),
        "good": part("good", "true"),
    }
    monkeypatch.setattr(module, "PARTS", parts)
    monkeypatch.setattr(module, "APART", set())
    monkeypatch.setattr(module, "RECORD", tmp_path / "check.json")
    monkeypatch.setattr(module, "state", lambda: ("0123abc", False))
    return module


def test_every_part_runs_and_is_recorded(check, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["check.py"])
    assert check.main() == 1
    assert check.ran == ["bad", "slow", "absent", "good"]
    record = json.loads(check.RECORD.read_text())
    assert {name: last["result"] for name, last in record.items()} == {
        "bad": "failed",
        "slow": "failed",
        "absent": "skipped",
        "good": "passed",
    }
    assert "exit 1: false" in record["bad"]["note"] and "past its 2 s" in record["slow"]["note"]
    for last in record.values():
        assert last["revision"] == "0123abc" and last["changed"] is False and last["cores"] > 0
        assert last["seconds"] >= 0 and last["cpu_seconds"] >= 0 and last["date"].endswith("Z")


def test_resume_leaves_out_what_passed_at_this_revision(check, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["check.py", "bad", "good"])
    check.main()
    monkeypatch.setattr(sys, "argv", ["check.py", "--resume", "bad", "good"])
    check.main()
    assert check.ran == ["bad", "good", "bad"]
    monkeypatch.setattr(check, "state", lambda: ("a later one", False))
    check.main()
    assert check.ran == ["bad", "good", "bad", "bad", "good"]
