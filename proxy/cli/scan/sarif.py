"""Findings as SARIF 2.1.0, which code hosts and editors read.

The format: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html. It has no field with a value of
a finding, and no fingerprint of one: a number of few digits could be guessed from it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from proxy import __version__
from proxy.cli.scan.findings import Finding

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(found: Iterable[tuple[Path | None, Finding]]) -> dict[str, Any]:
    """A log with one run. A finding without a path is one of the standard input."""
    rules: dict[str, int] = {}
    results = [_result(path, finding, rules) for path, finding in found]
    driver = {
        "name": "weir",
        "semanticVersion": __version__,
        "rules": [{"id": rule, "shortDescription": {"text": _description(rule)}} for rule in rules],
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(path: Path | None, finding: Finding, rules: dict[str, int]) -> dict[str, Any]:
    rule = f"{finding.guard}/{finding.rule}"
    region = {
        "startLine": finding.start.line,
        "startColumn": finding.start.column,
        "endLine": finding.end.line,
        "endColumn": finding.end.column,
        "charOffset": finding.offset,
        "charLength": finding.length,
    }
    place = {"artifactLocation": {"uri": uri_of(path)}, "region": region}
    return {
        "ruleId": rule,
        "ruleIndex": rules.setdefault(rule, len(rules)),
        "level": "error",
        "message": {"text": f"{_description(rule)}."},
        "locations": [{"physicalLocation": place}],
    }


def _description(rule: str) -> str:
    guard, _, reason = rule.partition("/")
    return f"The guard {guard} found {reason}"


def uri_of(path: Path | None) -> str:
    """A relative path as a relative reference, any other as a URI."""
    if path is None:
        return "stdin"
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
