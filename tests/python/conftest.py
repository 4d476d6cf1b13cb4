# SPDX-License-Identifier: Apache-2.0
"""Workers of one process, for tests that need no second one."""

import os
import secrets

import hypothesis
import pytest
import thalweg as tw

# Before the first context looks for devices; processes that tests start inherit it.
os.environ.setdefault("THALWEG_EMULATED", "devices=2")

hypothesis.settings.register_profile("tests", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.load_profile("tests")


@pytest.fixture(scope="session")
def context():
    """A context of the session's own key."""
    return tw.Context(job_key=secrets.token_bytes(32))


@pytest.fixture
def worker(context):
    """A worker that ends with its test."""
    with tw.Worker(context) as made:
        yield made


@pytest.fixture
def me(worker):
    """The worker's connection to itself."""
    return worker.connect(worker.address)
