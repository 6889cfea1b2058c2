"""Tensors of several types reach the host in one piece, and are the same there."""

import numpy as np
import pytest
import torch

from engine.device.transfers import HostCopy, Staging, on_device, packed, sent, unpacked

CPU = torch.device("cpu")


def tensors() -> list[torch.Tensor]:
    """Empty ones too, and ones whose bytes leave the next one at an odd place."""
    return [
        torch.tensor([2**40, -1]),
        torch.tensor([True, False, True]),
        torch.zeros(0, 4),
        torch.tensor([[0.5, float("nan")], [float("-inf"), 3.0]]).t(),
        torch.tensor([], dtype=torch.long),
        torch.tensor([7.25, 1.0], dtype=torch.bfloat16),
    ]


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one.nan_to_num(9), other.nan_to_num(9))


def test_packed_tensors_are_the_same_unpacked() -> None:
    host = packed(tensors())
    assert host.dtype == torch.uint8
    assert len(host) == 16 + 3 + 16 + 4
    assert all(map(same, unpacked(host, tensors()), tensors()))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_copy_has_the_values_of_its_beginning_on_the_host(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    given = [t.to(device) for t in tensors()]
    there = HostCopy(given).tensors()
    assert {t.device for t in there} == {CPU}
    assert all(map(same, there, tensors()))


def test_values_and_arrays_are_sent_with_their_shapes() -> None:
    arrays = [np.arange(6).reshape(2, 3), np.zeros((0, 5), dtype=np.int64), np.array([9])]
    assert [t.tolist() for t in sent(arrays, CPU)] == [a.tolist() for a in arrays]
    assert on_device([(1, 2), (3, 4)], CPU).tolist() == [[1, 2], [3, 4]]
    assert on_device([0.5], CPU, torch.float32).dtype == torch.float32


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_numbers_that_were_sent_stay_while_the_next_ones_are_written(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    staging = Staging(torch.device(device))
    for size in (3, 7, 2, 40, 5):
        staging.numbers(size)[:] = size
        there = staging.send(size)
        staging.numbers(size + 1)[:] = 99
        assert there.tolist() == [size] * size
        staging.send(1)
