"""What the public judge of `benchmarks.leak_judge` says of the peers: `python -m benchmarks.peers.judged`.

Each is set up to guard prompts and answers, with forms of its own for the judge's e-mail addresses, SSNs,
card and phone numbers; NeMo takes regular expressions. The judge sends no key, so LiteLLM runs without one.
"""

import argparse
import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.leak_judge import COLUMNS, SEEDS, judgement, row
from benchmarks.peers.systems import System, litellm, nemo, running
from benchmarks.relay import free_port

PATTERNS = (
    r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}\b",
    r"\b\d{3}-\d{2}-\d{4}\b",
    r"\b(?:\d[ -]?){13,16}\b",
    r"(?:\+?1[ .-]?)?\(?\d{3}\)?[ .-]?\d{3}[ .-]?\d{4}\b",
)
UNLOCKED = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "True"}


def systems(upstream: str) -> list[System]:
    names = ("email", "us_ssn", "credit_card", "visa", "mastercard", "amex", "us_phone")
    patterns = [{"pattern_type": "prebuilt", "pattern_name": n, "action": "MASK"} for n in names]
    guard: dict[str, Any] = {"guardrail": "litellm_content_filter", "mode": ["pre_call", "post_call"]}
    content_filter = litellm(upstream, {**guard, "patterns": patterns})
    environment = {n: v for n, v in content_filter.environment.items() if n != "LITELLM_MASTER_KEY"}
    rails = {"output": {"patterns": list(PATTERNS)}, "input": {"patterns": list(PATTERNS)}}
    nemo_rails = {
        "input": {"flows": ["regex check input"]},
        "output": {
            "flows": ["regex check output"],
            "streaming": {"enabled": True, "stream_first": False, "chunk_size": 20, "context_size": 10},
        },
        "config": {"regex_detection": rails},
    }
    return [
        dataclasses.replace(content_filter, environment=environment | UNLOCKED),
        nemo("NeMo, stream_first: False, 20 and 10", upstream, nemo_rails),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--seeds", default=SEEDS, help="each draws other values")
    options, of_judge = parser.parse_known_args()
    print(COLUMNS, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for i, name in enumerate(system.name for system in systems("")):
            print(name, flush=True)
            for seed in options.seeds.split(","):
                port, reports = free_port(), Path(folder) / str(i) / seed
                system = systems(f"http://127.0.0.1:{port}/v1")[i]
                with running(system, reports / "system", free_port()) as (url, _):
                    print(row(judgement(seed, url, port, reports, of_judge)), flush=True)


if __name__ == "__main__":
    main()
