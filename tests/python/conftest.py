# SPDX-License-Identifier: Apache-2.0
"""The tests' environment, and their fixtures."""

import os

import hypothesis
from fixtures import context, me, worker  # noqa: F401

# Before the first context looks for devices; processes that tests start inherit it.
os.environ.setdefault("THALWEG_EMULATED", "devices=2")
os.environ.setdefault("THALWEG_COSTS", "off")  # the same routes on every machine

hypothesis.settings.register_profile("tests", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.load_profile("tests")
