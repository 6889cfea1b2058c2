"""Specs of processors are data that survives JSON (contract 7.4)."""

from pathlib import Path
from typing import Any

import pytest

from engine.sampling.logits_processors import (
    ForcedTokenSequenceSpec,
    LogitsProcessorSpec,
    NamedProcessorSpec,
    PythonProcessorSpec,
)
from engine.streams.recording import Recording
from tests.engine.conftest import completion

SPECS = [
    NamedProcessorSpec("likes", {"back": 2, "by": 0.5}),
    ForcedTokenSequenceSpec((5, 6), 1),
    ForcedTokenSequenceSpec((5,), 1, generation_only=False),
]


@pytest.mark.parametrize("spec", SPECS)
def test_a_spec_survives_json(spec: LogitsProcessorSpec, tmp_path: Path) -> None:
    assert LogitsProcessorSpec.from_json(spec.to_json()) == spec
    recording = Recording(completion((5, 6), logits_processors=(spec,)), ())
    recording.dump(tmp_path / "one.jsonl")
    assert Recording.load(tmp_path / "one.jsonl") == recording


def test_a_callable_cannot_become_json(tmp_path: Path) -> None:
    spec = PythonProcessorSpec(lambda: None)
    with pytest.raises(TypeError):
        spec.to_json()
    with pytest.raises(TypeError):
        Recording(completion((5, 6), logits_processors=(spec,)), ()).dump(tmp_path / "one.jsonl")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"kind": "python", "factory": "os.system"}, "unknown kind of logits processor 'python'"),
        ({"kind": "hypnosis"}, "unknown kind of logits processor 'hypnosis'"),
        ({"name": "likes"}, "unknown kind"),
        ({"kind": "named"}, "not a valid named"),
        ({"kind": "named", "name": "likes", "code": "x"}, "not a valid named"),
        ({"kind": "forced_token_sequence", "token_ids": [1.5], "eos_token_id": 1}, "integers"),
        ({"kind": "forced_token_sequence", "token_ids": [1], "eos_token_id": -1}, "integers"),
    ],
)
def test_an_invalid_spec_is_refused(value: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        LogitsProcessorSpec.from_json(value)
