"""A step's indices on the device."""

from engine.device.transfers import sent
from engine.execution.model_runner import ModelRunner
from tests.engine.device.steps import decoding


def test_indices_arrive_unchanged_in_one_copy(runner: ModelRunner) -> None:
    for layout in (decoding(runner, [40, 7, 120], drafts=20), decoding(runner, [3, 90])):
        _, *arrays = layout
        for array, tensor in zip(arrays, sent(arrays, runner.device), strict=True):
            assert tensor.tolist() == array.tolist()
            assert tensor.shape == array.shape
