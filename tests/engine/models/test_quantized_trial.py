"""What the log says about the speed of smaller weights."""

import logging

import pytest
import torch

from engine.device.trials import Times, TrialRecord
from engine.models import quantized_trial
from engine.models.linear import torch_linear
from engine.models.quantized_trial import PLAIN, ROWS, SMALLER, log_speed


def level_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, smaller: float, plain: float
) -> str:
    times: Times = {SMALLER: dict.fromkeys(ROWS, smaller), PLAIN: dict.fromkeys(ROWS, plain)}
    monkeypatch.setattr(quantized_trial, "_measured", lambda *_: times)
    with caplog.at_level(logging.INFO, "weir.engine"):
        log_speed("int8", 32, {"torch": torch_linear}, torch.bfloat16, TrialRecord(None))
    (record,) = (record for record in caplog.records if "int8" in record.getMessage())
    return record.levelname


def test_slower_weights_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert level_logged(monkeypatch, caplog, smaller=2.0, plain=1.0) == "WARNING"
    assert "2.00 times as long" in caplog.text


def test_faster_weights_are_told_of_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert level_logged(monkeypatch, caplog, smaller=0.5, plain=1.0) == "INFO"


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_both_kinds_of_weights_are_timed(monkeypatch: pytest.MonkeyPatch, quantization: str) -> None:
    monkeypatch.setattr(quantized_trial, "OUTS", 8)
    monkeypatch.setattr(quantized_trial, "INS", 64)
    times = quantized_trial._measured(quantization, 32, [torch_linear], torch.bfloat16)
    assert all(seconds > 0 for by_rows in times.values() for seconds in by_rows.values())
    assert {name: tuple(by_rows) for name, by_rows in times.items()} == {SMALLER: ROWS, PLAIN: ROWS}
