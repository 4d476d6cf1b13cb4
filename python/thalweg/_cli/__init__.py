# SPDX-License-Identifier: Apache-2.0
"""The command ``thalweg``: info, perf, explain, run, demo."""
