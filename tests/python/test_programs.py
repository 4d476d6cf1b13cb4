# SPDX-License-Identifier: Apache-2.0
"""tests/programs/run.py: what is absent is skipped, what fails is told, and neither keeps the others from running."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
import time

import pytest

RUN = pathlib.Path(__file__).resolve().parent.parent / "programs" / "run.py"


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """The module, with a folder of its own, and true in place of Thalweg's command."""
    spec = importlib.util.spec_from_file_location("programs_run", RUN)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "programs_run", module)  # dataclasses look there
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "WORK", tmp_path)
    monkeypatch.setattr(sys, "argv", [str(RUN), "--quick", "--thalweg", "true"])
    monkeypatch.setattr(module.signal, "signal", lambda *_: None)
    return module


def test_without_the_command_all_is_absent():
    command = [sys.executable, str(RUN), "--quick", "--thalweg", "/no/such/command", "perftest"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 77 and "absent: no /no/such/command" in done.stdout, done


def test_without_any_program_all_is_absent(programs, monkeypatch, capsys):
    found = programs.shutil.which
    monkeypatch.setattr(programs.shutil, "which", lambda name: found(name) if name == "true" else None)
    assert programs.main() == 77
    assert capsys.readouterr().out.count(": absent: no ") == len(programs.QUICK)


@pytest.mark.parametrize(("options", "code"), [(["--quick"], 0), ([], 1)])
def test_an_adapter_of_old_headers_fails_the_whole_run(programs, monkeypatch, tmp_path, capsys, options, code):
    thalweg = tmp_path / "thalweg"
    thalweg.write_text("#!/bin/sh\necho 'thalweg ucx: this adapter is as UCX 1.13, by its headers' >&2\n")
    thalweg.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(RUN), *options, "--thalweg", str(thalweg), "good"])
    monkeypatch.setattr(programs, "PROGRAMS", {"good": lambda _: "1.0"})
    assert programs.main() == code
    assert "this adapter is as UCX 1.13" in capsys.readouterr().out


def test_one_programs_surprise_does_not_stop_the_others(programs, monkeypatch, capsys):
    def late(_):
        raise subprocess.TimeoutExpired("pip", 600)

    def empty(_):
        return next(iter(()))

    monkeypatch.setattr(programs, "PROGRAMS", {"late": late, "empty": empty, "good": lambda _: "1.0"})
    monkeypatch.setattr(programs, "QUICK", ("late", "empty", "good"))
    assert programs.main() == 1
    said = capsys.readouterr().out
    assert said.count("FAILED: ") == 2 and "TimeoutExpired" in said and "StopIteration" in said and "good: passed: 1.0" in said


def test_what_does_not_end_is_killed_with_all_that_it_started(programs, tmp_path):
    """Another process keeps the output open: waiting for its end would take a minute."""
    thalweg = tmp_path / "thalweg"
    thalweg.write_text("#!/bin/sh\necho begun\nsleep 60 &\nsleep 60\n")
    thalweg.chmod(0o755)
    start = time.monotonic()
    with pytest.raises(programs.Failed, match="not ended after 1 s(.|\n)*begun"):
        programs.Bench([str(thalweg)], {"PATH": "/usr/bin:/bin"}, True).run(["program"], seconds=1)
    assert time.monotonic() - start < 20
