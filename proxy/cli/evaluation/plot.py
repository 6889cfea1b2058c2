"""The report as a picture (SVG): how many streams are flagged within how many tokens.

No plotting library is used: a plot is one small file that needs no script.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, tostring

from proxy.cli.evaluation.report import Report, Row

Point = tuple[float, float]

_WIDTH, _HEIGHT = 380.0, 230.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 50.0, 14.0, 24.0, 40.0
_MAX_DOTS = 12  # a line with more points has no dots

_COLOURS = ("#2563eb", "#c2410c", "#15803d", "#7c3aed", "#b91c1c", "#0e7490")
_STYLE = (
    "text{fill:#555;font:12px system-ui,sans-serif}.grid{stroke:#ddd;fill:none}.axis{stroke:#555;fill:none}"
    ".line{fill:none;stroke-width:2}.dashed{stroke-dasharray:5 4}"
    + "".join(f".line.s{i}{{stroke:{colour}}}.dot.s{i}{{fill:{colour}}}" for i, colour in enumerate(_COLOURS))
)


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


def plot(report: Report) -> bytes:
    """An SVG file. A solid line has the detected share of unsafe replies by the delay in tokens; a dashed one
    has the share of safe replies that a guard flags by their end."""
    rows = report.rows
    most = max((delay for row in rows for delay in row.delays), default=1)
    x = Axis("tokens since the offence began", 0.0, float(max(most, 1)))
    lines = [line for i, row in enumerate(rows) for line in _lines(row, i, x.high)]
    svg = line_plot("Detection by delay", lines, x, Axis("share of replies flagged", 0.0, 1.0))
    style = Element("style")
    style.text = _STYLE
    svg.insert(0, style)
    _add_legend(svg, rows)
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + tostring(svg)


def _lines(row: Row, colour: int, end: float) -> list[Line]:
    lines: list[Line] = []
    total = row.detected.total
    if total:
        lines.append(Line(f"{row.name}: detected", _steps(row.delays, total, end), colour))
    if (share := row.false_positives.value) is not None:
        flat = [(0.0, share), (end, share)]
        lines.append(Line(f"{row.name}: false positives", flat, colour, dashed=True))
    return lines


def _steps(delays: Sequence[int], total: int, end: float) -> list[Point]:
    """The share of `total` that is flagged within each delay. Delays before the offence count at 0."""
    points: list[Point] = [(0.0, 0.0)]
    for count, delay in enumerate(delays, start=1):
        at = float(max(delay, 0))
        points += [(at, points[-1][1]), (at, count / total)]
    return [*points, (end, points[-1][1])]


def _add_legend(svg: Element, rows: Sequence[Row]) -> None:
    for i, row in enumerate(rows):
        text = _add_text(svg, (370, 180 - 14 * i), row.name, "end")
        text.set("style", f"fill:{_COLOURS[i % len(_COLOURS)]}")


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
    style = f"line s{line.colour % len(_COLOURS)}{' dashed' if line.dashed else ''}"
    drawn = _add_line(svg, style, [place(point) for point in line.points])
    SubElement(drawn, "title").text = line.name
    if len(line.points) > _MAX_DOTS:
        return
    for point in line.points:
        across, height = place(point)
        dot = SubElement(svg, "circle", {"cx": f"{across:g}", "cy": f"{height:g}", "r": "3.5"})
        dot.set("class", f"dot s{line.colour % len(_COLOURS)}")
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
