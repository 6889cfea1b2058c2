"""Axes and lines of the plots."""

import pytest

from proxy.cli.evaluation.plot import Axis, Line, line_plot


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis("ms", 0.0, 100.0), [0, 20, 40, 60, 80, 100]),
        (Axis("ms", 99.0, 121.0), [100, 105, 110, 115, 120]),
        (Axis("ms", 0.0, 1.0), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (Axis("ms", 4.75, 5.25), [4.8, 4.9, 5, 5.1, 5.2]),
    ],
)
def test_axes_have_round_ticks(axis: Axis, ticks: list[float]) -> None:
    assert axis.ticks() == pytest.approx(ticks)
    assert all(-1e-9 <= axis.place(tick) <= 1 + 1e-9 for tick in ticks)


def test_a_line_goes_up_as_its_values_do_and_stays_inside() -> None:
    axis = Axis("ms", 0.0, 10.0)
    svg = line_plot("title", [Line("a", [(0.0, 0.0), (5.0, 5.0), (10.0, 99.0)], 1)], axis, axis)
    line = next(element for element in svg if (element.get("class") or "").startswith("line"))
    points = [tuple(map(float, pair.split(","))) for pair in (line.get("points") or "").split()]
    width, height = map(float, (svg.get("viewBox") or "").split()[2:])
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
