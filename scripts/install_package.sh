#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Python package and installs it into .venv (not editable). Incremental: build/python-* is kept.
set -euo pipefail
cd "$(dirname "$0")/.."
export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall .
.venv/bin/python -c 'import thalweg; print("package: thalweg", thalweg.__version__, "is in .venv")'
