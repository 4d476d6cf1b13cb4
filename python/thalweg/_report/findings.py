# SPDX-License-Identifier: Apache-2.0
"""What is wrong or odd, in plain words: all rules over a report."""

from __future__ import annotations

from . import rules_gpu, rules_host, rules_run
from .document import Document
from .rule import ORDER, Finding


def find(document: Document) -> list[Finding]:
    """All findings, the worst first."""
    found = [finding for rule in (*rules_run.RULES, *rules_gpu.RULES, *rules_host.RULES) for finding in rule(document)]
    return sorted(found, key=lambda finding: ORDER.index(finding.severity))
