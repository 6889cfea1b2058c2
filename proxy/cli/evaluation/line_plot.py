"""Line plots as SVG. The picture's style sheet has the colours (`.s0`, `.s1`, ...).

No plotting library is used: a plot is one small file that needs no script.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement

Point = tuple[float, float]

NUM_COLOURS = 6
_WIDTH, _HEIGHT = 380.0, 230.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 50.0, 14.0, 24.0, 40.0
_MAX_DOTS = 12  # a line with more points has no dots


@dataclass(frozen=True, slots=True)
class Line:
    """Points in ascending order of x. `colour` counts from 0."""

    name: str
    points: Sequence[Point]
    colour: int
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    label: str
    low: float
    high: float

    def place(self, value: float) -> float:
        """The place of `value` on the axis: 0 at `low`, 1 at `high`."""
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round values between `low` and `high`."""
        step = _nice_above((self.high - self.low) / 6)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def line_plot(title: str, lines: Sequence[Line], x: Axis, y: Axis) -> Element:
    """An `svg`."""
    svg = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {_WIDTH:g} {_HEIGHT:g}",
            "role": "img",
            "aria-label": f"{title}: {y.label} by {x.label}",
        },
    )
    _draw_axes(svg, x, y)
    for line in lines:
        _draw_line(svg, line, _placer(x, y))
    return svg


def _placer(x: Axis, y: Axis) -> Callable[[Point], Point]:
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(point: Point) -> Point:
        across, up = (min(max(axis.place(v), 0.0), 1.0) for axis, v in zip((x, y), point, strict=True))
        return round(_LEFT + width * across, 1), round(_TOP + height * (1 - up), 1)

    return place


def _draw_axes(svg: Element, x: Axis, y: Axis) -> None:
    place = _placer(x, y)
    for value in y.ticks():
        left, height = place((x.low, value))
        _add_line(svg, "grid", [(left, height), (_WIDTH - _RIGHT, height)])
        _add_text(svg, (left - 6, height + 4), _short(value), "end")
    for value in x.ticks():
        across, bottom = place((value, y.low))
        _add_line(svg, "grid", [(across, bottom), (across, bottom + 4)])
        _add_text(svg, (across, bottom + 16), _short(value), "middle")
    _add_line(svg, "axis", [place((x.low, y.low)), place((x.high, y.low))])
    _add_text(svg, ((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 4), x.label, "middle")
    _add_text(svg, (8, 11), y.label, "start")


def _draw_line(svg: Element, line: Line, place: Callable[[Point], Point]) -> None:
    style = f"line s{line.colour % NUM_COLOURS}{' dashed' if line.dashed else ''}"
    drawn = _add_line(svg, style, [place(point) for point in line.points])
    SubElement(drawn, "title").text = line.name
    if len(line.points) > _MAX_DOTS:
        return
    for point in line.points:
        across, height = place(point)
        dot = SubElement(svg, "circle", {"cx": f"{across:g}", "cy": f"{height:g}", "r": "3.5"})
        dot.set("class", f"dot s{line.colour % NUM_COLOURS}")
        SubElement(dot, "title").text = f"{line.name}: {_short(point[0])}, {_short(point[1])}"


def _add_line(svg: Element, style: str, points: Iterable[Point]) -> Element:
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    return SubElement(svg, "polyline", {"class": style, "points": path})


def _add_text(svg: Element, place: Point, text: str, anchor: str) -> Element:
    found = SubElement(svg, "text", {"x": f"{place[0]:g}", "y": f"{place[1]:g}", "text-anchor": anchor})
    found.text = text
    return found


def _short(value: float) -> str:
    """A short form with at most four significant digits: 0.05, 12, 1,500, 2.5M."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g}M"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _nice_above(value: float) -> float:
    """Rounds up to 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * (1 - 1e-9))
