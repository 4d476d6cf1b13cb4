# SPDX-License-Identifier: Apache-2.0
"""The known defects of tests/model/defects can be put back into this tree: a patch that does not apply finds nothing."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
@pytest.mark.parametrize("patch", sorted((ROOT / "tests/model/defects").glob("*.patch")), ids=lambda patch: patch.stem)
def test_a_known_defect_applies(patch: pathlib.Path) -> None:
    done = subprocess.run(["git", "apply", "--check", patch], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
