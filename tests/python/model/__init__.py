# SPDX-License-Identifier: Apache-2.0
"""Random programs of the Python package against a reference of what its operations mean: docs/testing.md, "The model"."""
