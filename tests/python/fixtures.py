# SPDX-License-Identifier: Apache-2.0
"""Workers of one process, for tests that need no second one."""

import secrets

import pytest
import thalweg as tw


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
