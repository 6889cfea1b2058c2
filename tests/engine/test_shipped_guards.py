"""The guard models that ship: their size, and their worth on wordings that they were not trained on."""

import pytest
import torch
from transformers import AutoConfig

from engine.execution.probes.load import load_probes
from engine.models.classification_heads import classification_heads
from engine.protocol.demo import GENERATIVE_GUARD_DIR, MODEL_DIR, STREAM_GUARD_DIR
from engine.protocol.options import EngineConfig
from tools.demo.guards.exchanges import CATEGORIES, RISKS
from tools.demo.guards.measure import Judge, generative_judge, handmade, shares, stream_judge

MEGABYTE = 1_000_000


def test_the_guard_models_take_at_most_four_megabytes() -> None:
    files = [file for file in STREAM_GUARD_DIR.parent.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= 4 * MEGABYTE


def test_the_stream_guard_has_the_heads_of_qwen3guard_stream() -> None:
    heads = classification_heads(AutoConfig.from_pretrained(STREAM_GUARD_DIR))
    assert heads is not None
    assert heads.labels == {
        "risk_level": RISKS,
        "category": CATEGORIES,
        "query_risk_level": RISKS,
        "query_category": CATEGORIES,
    }


@pytest.mark.parametrize(
    "judge",
    [stream_judge(STREAM_GUARD_DIR), generative_judge(GENERATIVE_GUARD_DIR)],
    ids=["stream", "generative"],
)
def test_both_find_secrets_in_wordings_that_they_were_not_trained_on(judge: Judge) -> None:
    found = shares(judge, handmade())
    assert (found["detected"].value or 0) >= 0.9
    assert (found["false positives"].value or 0) <= 0.2


def test_the_probe_is_one_of_the_demo_model_and_calibrated() -> None:
    config = EngineConfig(model=str(MODEL_DIR), probes=("weir-demo-probe",))
    heads = load_probes(config, 256, torch.float32, torch.device("cpu"))
    assert heads is not None
    (info,) = heads.infos
    assert info.calibration is not None
    assert info.calibration.false_positive_rate is not None
    assert info.calibration.false_positive_rate <= 0.01
