"""The choice among ways to multiply, and products that do not depend on the number of rows."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.device.kernels.protocol import Linear
from engine.device.kernels.quantized import Weight
from engine.device.trials import TrialRecord
from engine.models.linear import torch_linear
from engine.models.linear_trial import MARGIN, ROWS, SMALL, LinearTrial, MixedLinear, chosen
from engine.models.quantized import quantize_int8


class Named:
    """A `Linear` that says its name in place of the product."""

    def __init__(self, name: float) -> None:
        self.name = name

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        return torch.full((x.shape[0], 1), self.name)


def no_linear(weight: Weight, bias: Tensor | None, /) -> None:
    return None


def times(few: float, many: float) -> dict[int, float]:
    return {rows: few if rows <= 8 else many for rows in ROWS}


def test_one_way_serves_all_rows_by_default() -> None:
    of = {"few": times(1.0, 3.0), "many": times(2.0, 1.0)}
    assert set(chosen(of, batch_invariant=True).values()) == {"many"}
    assert set(chosen({"a": times(1.0, 1.0), "b": times(1.1, 1.1)}, batch_invariant=True).values()) == {"a"}


def test_each_number_of_rows_may_have_its_own() -> None:
    of = {"few": times(1.0, 3.0), "many": times(2.0, 1.0)}
    found = chosen(of, batch_invariant=False)
    assert {rows for rows, name in found.items() if name == "few"} == {1, 2, 4, 8}


def test_a_second_layout_must_pay() -> None:
    of = {"few": times(1.0, 3.0), "many": times(0.99 * MARGIN, 1.0)}
    assert set(chosen(of, batch_invariant=False).values()) == {"many"}


def test_a_number_of_rows_goes_to_the_next_that_was_timed() -> None:
    mixed = MixedLinear({1: Named(1), 8: Named(8), 256: Named(256)})
    assert [mixed(torch.ones(n, 3))[0].item() for n in (1, 2, 8, 9, 256, 1000)] == [1, 8, 8, 256, 256, 256]


def trial(monkeypatch: pytest.MonkeyPatch, *, batch_invariant: bool) -> tuple[Linear, Tensor]:
    """A product where `few` is the fastest for few rows, and `many` for more; and its weight."""
    measured = {"few": times(1.0, 9.0), "many": times(9.0, 1.0)}
    monkeypatch.setattr("engine.models.linear_trial.measured", lambda *_: measured)
    makers = {"never": no_linear, "few": torch_linear, "many": torch_linear}
    make = LinearTrial(makers, torch.float32, TrialRecord(None), batch_invariant=batch_invariant)
    weight = torch.randn(SMALL // 128, 128)
    return make(weight, None), weight


def test_both_layouts_are_kept_only_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(20, 128)
    for batch_invariant in (True, False):
        linear, weight = trial(monkeypatch, batch_invariant=batch_invariant)
        assert isinstance(linear, MixedLinear) != batch_invariant
        for rows in (1, 20):
            assert torch.allclose(linear(x[:rows]), x[:rows] @ weight.T, atol=1e-4)


def test_a_way_whose_order_depends_on_the_rows_is_chosen_only_if_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_name: dict[str, Linear] = {name: Named(i) for i, name in enumerate(("slow", "fast", "torch"))}
    of = {"slow": times(9.0, 9.0), "fast": times(2.0, 2.0), "torch": times(1.0, 1.0)}
    monkeypatch.setattr(
        "engine.models.linear_trial.measured", lambda makers, *_: {name: of[name] for name in makers}
    )

    def choose(*names: str, batch_invariant: bool) -> Linear:
        make = LinearTrial(
            {name: lambda _weight, _bias, name=name: by_name[name] for name in names},
            torch.float32,
            TrialRecord(None),
            batch_invariant=batch_invariant,
            in_one_order=["slow", "fast"],
        )
        return make(torch.randn(SMALL // 128, 128), None)

    assert choose("slow", "fast", "torch", batch_invariant=True) is by_name["fast"]
    assert choose("slow", "torch", batch_invariant=True) is by_name["slow"]
    assert choose("torch", batch_invariant=True) is by_name["torch"]
    assert choose("slow", "fast", "torch", batch_invariant=False) is by_name["torch"]


def test_a_small_matrix_is_not_tried(tmp_path: Path) -> None:
    path = tmp_path / "trials.json"
    make = LinearTrial({"a": torch_linear, "b": torch_linear}, torch.float32, TrialRecord(path))
    make(torch.randn(8, 8), None)
    assert not path.exists()


def test_a_single_way_is_not_timed(tmp_path: Path) -> None:
    path = tmp_path / "trials.json"
    make = LinearTrial({"never": no_linear, "a": torch_linear}, torch.float32, TrialRecord(path))
    make(torch.randn(SMALL // 128, 128), None)
    assert not path.exists()


def test_a_quantized_matrix_is_not_tried(tmp_path: Path) -> None:
    path = tmp_path / "trials.json"
    makers = {"never": no_linear, "a": torch_linear}
    weight, x = torch.randn(SMALL // 128, 128), torch.randn(3, 128)
    linear = LinearTrial(makers, torch.float32, TrialRecord(path))(quantize_int8(weight), None)
    assert torch.allclose(linear(x), x @ weight.T, atol=1.0)
    assert not path.exists()


def test_what_was_measured_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.models.linear_trial.READ", SMALL)
    monkeypatch.setattr("engine.device.trials._num_preemptions", lambda: 0)  # the machine may be busy
    path = tmp_path / "trials.json"
    weight = torch.randn(SMALL // 128, 128)
    for _ in range(2):
        make = LinearTrial({"a": torch_linear, "b": torch_linear}, torch.float32, TrialRecord(path))
        x = torch.randn(5, 128)
        assert torch.allclose(make(weight, None)(x), x @ weight.T, atol=1e-4)
        text = path.read_text()
        monkeypatch.setattr("engine.models.linear_trial.measured", lambda *_: pytest.fail("again"))
    assert str(ROWS[-1]) in text
