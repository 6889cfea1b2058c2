"""The provenance of a release: SLSA 1.0, as an in-toto statement (https://slsa.dev/spec/v1.0/provenance)."""

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tools.release.kernels import compiler_version

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
TOOLS = ("build", "setuptools", "wheel")


def statement(packages: Sequence[Path], commit: str, ref: str, seconds: int) -> str:
    """`packages`: the files that the statement is about. `seconds`: the commit's time."""
    repository = os.environ.get("GITHUB_REPOSITORY", "")
    source = f"git+https://github.com/{repository}" if repository else "git+local"
    predicate: dict[str, Any] = {
        "buildDefinition": {
            "buildType": f"{source}/tools/release@v1",
            "externalParameters": {"repository": source, "ref": ref},
            "internalParameters": {"SOURCE_DATE_EPOCH": seconds},
            "resolvedDependencies": [
                {"uri": f"{source}@{ref}", "digest": {"gitCommit": commit}},
                *({"uri": f"pkg:pypi/{name}@{version(name)}"} for name in TOOLS),
                {"uri": f"pkg:generic/python@{platform.python_version()}"},
                {"uri": "pkg:generic/cc", "annotations": {"version": compiler_version()}},
            ],
        },
        "runDetails": {"builder": {"id": _builder()}, "metadata": _metadata(seconds)},
    }
    subjects = [
        {"name": path.name, "digest": {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}}
        for path in packages
    ]
    found = {"_type": STATEMENT, "subject": subjects, "predicateType": PREDICATE, "predicate": predicate}
    return json.dumps(found, indent=2) + "\n"


def _builder() -> str:
    """The workflow that builds, else the kind of machine: then the statement is worth its signature."""
    server, workflow = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_WORKFLOW_REF")
    return (
        f"{server}/{workflow}" if server and workflow else f"local:{platform.system()}-{platform.machine()}"
    )


def _metadata(seconds: int) -> dict[str, str]:
    started = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    run = os.environ.get("GITHUB_RUN_ID")
    return {"startedOn": started, **({"invocationId": run} if run else {})}
