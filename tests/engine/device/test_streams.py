"""Guard models have a stream of a GPU for themselves."""

from contextlib import nullcontext

import pytest
import torch

from engine.device.cuda import turns_of


@pytest.mark.parametrize("only_guards", [False, True])
def test_a_cpu_has_no_streams(only_guards: bool) -> None:
    assert turns_of(torch.device("cpu"), only_guards=only_guards) is nullcontext


def test_served_models_use_the_first_stream() -> None:
    assert turns_of(torch.device("cuda"), only_guards=False) is nullcontext


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda_guard_models_share_a_stream_that_is_preferred() -> None:
    first = torch.cuda.current_stream()
    streams = []
    for _ in range(2):
        with turns_of(torch.device("cuda"), only_guards=True)():
            streams.append(torch.cuda.current_stream())
    assert streams[0] == streams[1] != first
    assert streams[0].priority < first.priority
