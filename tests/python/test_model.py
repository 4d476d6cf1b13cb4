# SPDX-License-Identifier: Apache-2.0
"""Random programs of all operations against a reference: docs/testing.md, "The model"."""

import os

import hypothesis
import pytest
from model.program import MODES, programs
from model.run import run

PROGRAMS = int(os.environ.get("THALWEG_PYTHON_MODEL_PROGRAMS", 100))
SEED = int(os.environ.get("THALWEG_PYTHON_MODEL_SEED", 0))  # 0: always the same programs
SHRINKING = 600  # seconds: a program between processes runs many times for each step


@pytest.mark.timeout(SHRINKING + 2 * PROGRAMS)
@pytest.mark.parametrize("mode", MODES)
def test_random_programs(mode):
    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=PROGRAMS, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(program=programs(mode))
    def check(program):
        run(program)

    check()
