"""The report as a picture (SVG): how many streams are flagged within how many tokens."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from proxy.cli.evaluation.line_plot import NUM_COLOURS, Axis, Line, Point, line_plot
from proxy.cli.evaluation.report import Report, Row

_COLOURS = ("#2563eb", "#c2410c", "#15803d", "#7c3aed", "#b91c1c", "#0e7490")
_STYLE = (
    "text{fill:#555;font:12px system-ui,sans-serif}.grid{stroke:#ddd;fill:none}.axis{stroke:#555;fill:none}"
    ".line{fill:none;stroke-width:2}.dashed{stroke-dasharray:5 4}"
    + "".join(f".line.s{i}{{stroke:{colour}}}.dot.s{i}{{fill:{colour}}}" for i, colour in enumerate(_COLOURS))
)


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
        text = SubElement(svg, "text", {"x": "370", "y": str(180 - 14 * i), "text-anchor": "end"})
        text.set("style", f"fill:{_COLOURS[i % NUM_COLOURS]}")
        text.text = row.name
