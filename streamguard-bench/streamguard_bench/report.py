"""The report of a run: a page without anything to load, and a table for a terminal."""

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from streamguard_bench.judges import FAULTS
from streamguard_bench.target import FAILURES

OUTCOMES = ("leaked", "in part", "withheld", "refused", "absent")
COLOURS = {
    "leaked": "#c0392b",
    "in part": "#e08e45",
    "withheld": "#3c8d5a",
    "refused": "#7f8fa6",
    "absent": "#c9ced6",
}
TIMES = (
    ("first text, ms", "first", 1e3),
    ("delay of a piece, median, ms", "held_p50", 1e3),
    ("delay of a piece, 99 %, ms", "held_p99", 1e3),
    ("most characters held", "held_most", 1),
    ("CPU for a piece, µs", "cpu_per_piece", 1e6),
    ("memory, MB", "memory", 1e-6),
)
"""The label, the field of `Times`, and the factor to the label's unit."""
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { padding: .25em .7em; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
.bad { background: #f7d9d5; } .part { background: #fbe6d2; } .good { background: #dff0e4; }
.key span { display: inline-block; width: .9em; height: .9em; margin: 0 .3em 0 1em; vertical-align: -1px; }
"""


def leaked_of(counts: dict[str, int]) -> str:
    """Answers that let a value out, wholly or in part, of all that had one."""
    out, total = counts.get("leaked", 0) + counts.get("in part", 0), sum(counts.values())
    missing = [name for name in ("refused", "absent") if counts.get(name, 0) == total and total]
    return missing[0] if missing else f"{out} of {total}"


def _tone(counts: dict[str, int]) -> str:
    if counts.get("leaked"):
        return "bad"
    return "part" if counts.get("in part") else "good" if counts.get("withheld") else ""


def html_of(found: dict[str, Any]) -> str:
    results = [result for result in found["results"] if not result["error"]]
    parts = [
        f"<p>Seed {found['seed']}, {escape(found['date'])}, {escape(found['machine'])}.</p>",
        "<h2>Answers that let a value out</h2>",
        "<p>Each answer has a value that the server is set up to guard. “Absent”: the server sends no such"
        " channel.</p>",
        _channel_table(results),
        *map(_bars, results),
        _key(),
        "<h2>Streams that let a value out, by the way they are cut</h2>",
        _table(
            ["cut", *_names(results)],
            _rows(results, "cuts", lambda n: f"{n[1]} of {n[0]}", lambda n: "bad" if n[1] else "good"),
        ),
        "<h2>Other faults</h2>",
        _fault_table(results),
        "<h2>While the guard fails</h2>",
        _table(
            ["the guard is", *_names(results)],
            _rows(results, "failures", _failure, lambda one: "bad" if one.get("leaked") else "good"),
        ),
        "<h2>Times</h2>",
        "<p>Harmless streams, 50 pieces a second. The delay is from the upstream's piece to the client.</p>",
        _times_table(results),
        _plot(results, "held_p99", "The longest delays of a piece (99th percentile), ms", 1000),
        _plot(results, "cpu_per_piece", "CPU time of the server for a piece, µs", 1e6),
        "".join(
            f"<p>{escape(r['name'])} was not run: {escape(r['error'])}</p>"
            for r in found["results"]
            if r["error"]
        ),
    ]
    head = f"<!doctype html><meta charset=utf-8><title>streamguard-bench</title><style>{STYLE}</style>"
    return f"{head}<h1>streamguard-bench</h1>{''.join(parts)}"


def _names(results: Sequence[dict[str, Any]]) -> list[str]:
    return [str(result["name"]) for result in results]


def _table(head: Sequence[str], rows: Sequence[Sequence[tuple[str, str]]]) -> str:
    heads = "".join(f"<th>{escape(text)}</th>" for text in head)
    lines = ("".join(f'<td class="{tone}">{escape(text)}</td>' for text, tone in row) for row in rows)
    return f"<table><tr>{heads}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _rows(results: Sequence[dict[str, Any]], part: str, shown: Any, tone: Any) -> list[list[tuple[str, str]]]:
    names = dict.fromkeys(name for result in results for name in result[part])
    return [
        [
            (name, ""),
            *((shown(r[part][name]), tone(r[part][name])) if name in r[part] else ("", "") for r in results),
        ]
        for name in names
    ]


def _channel_table(results: Sequence[dict[str, Any]]) -> str:
    return _table(["channel", *_names(results)], _rows(results, "channels", leaked_of, _tone))


def _failure(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _fault_table(results: Sequence[dict[str, Any]]) -> str:
    """The faults that are not of channels: those have a table of their own."""
    rows = []
    for fault in dict.fromkeys(name for result in results for name in result["faults"]):
        judge, _, place = fault.partition(": ")
        if judge in ("leak", "part"):
            continue
        counts = [result["faults"].get(fault, 0) for result in results]
        rows.append(
            [(f"{FAULTS[judge]} ({place})", ""), *((str(n or ""), "bad" if n else "") for n in counts)]
        )
    return _table(["fault", *_names(results)], rows) if rows else "<p>None.</p>"


def _times_table(results: Sequence[dict[str, Any]]) -> str:
    rows = []
    for label, name, unit in TIMES:
        direct = next((r["direct"][name] * unit for r in results if r["direct"]), 0)
        texts = [_time(result, name, unit) for result in results]
        without = f"{direct:,.0f}" if name not in ("cpu_per_piece", "memory") else ""
        rows.append([(label, ""), (without, ""), *((text, "") for text in texts)])
    return _table(["", "no server", *_names(results)], rows)


def _time(result: dict[str, Any], name: str, unit: float) -> str:
    return f"{result['times'][name] * unit:,.0f}" if result["times"] else ""


def _bars(result: dict[str, Any]) -> str:
    """For each channel, the shares of the outcomes."""
    height, width, left = 18, 420, 210
    lines = []
    for i, (channel, counts) in enumerate(result["channels"].items()):
        at, total = float(left), sum(counts.values())
        lines.append(f'<text x="{left - 8}" y="{i * height + 13}" text-anchor="end">{escape(channel)}</text>')
        for outcome in OUTCOMES:
            share = width * counts.get(outcome, 0) / total if total else 0
            if share:
                box = f'x="{at:.1f}" y="{i * height + 2}" width="{share:.1f}" height="{height - 4}"'
                lines.append(f'<rect {box} fill="{COLOURS[outcome]}"/>')
            at += share
    size = f'width="{left + width}" height="{height * len(result["channels"])}"'
    return f'<h3>{escape(result["name"])}</h3><svg {size} font-size="12">{"".join(lines)}</svg>'


def _key() -> str:
    return (
        '<p class="key">'
        + "".join(f'<span style="background:{COLOURS[o]}"></span>{o}' for o in OUTCOMES)
        + "</p>"
    )


def _plot(results: Sequence[dict[str, Any]], name: str, title: str, unit: float) -> str:
    values = [(r["name"], r["times"][name] * unit) for r in results if r["times"]]
    most = max((value for _, value in values), default=0)
    if not most:
        return ""
    lines = []
    for i, (label, value) in enumerate(values):
        y = i * 22
        lines.append(f'<text x="202" y="{y + 15}" text-anchor="end">{escape(label)}</text>')
        lines.append(
            f'<rect x="210" y="{y + 3}" width="{max(1, 360 * value / most):.1f}" height="16" fill="#4a76b8"/>'
        )
        lines.append(f'<text x="{216 + 360 * value / most:.1f}" y="{y + 15}">{value:,.0f}</text>')
    size = f'width="680" height="{22 * len(values)}"'
    return f'<h3>{escape(title)}</h3><svg {size} font-size="12">{"".join(lines)}</svg>'


def markdown_of(found: dict[str, Any]) -> str:
    """A table for a page: streams by channel, whole answers together, and the rest in short."""
    results = [result for result in found["results"] if not result["error"]]
    names = dict.fromkeys(name for result in results for name in result["channels"])
    rows = [
        (name, [leaked_of(r["channels"][name]) if name in r["channels"] else "" for r in results])
        for name in names
        if not name.endswith(", whole")
    ]
    rows.append(("whole answers, all channels", [leaked_of(_whole(result)) for result in results]))
    for judge, words in FAULTS.items():
        counts = [sum(n for f, n in r["faults"].items() if f.startswith(f"{judge}:")) for r in results]
        if judge not in ("leak", "part") and any(counts):
            rows.append((words, [str(n or "") for n in counts]))
    rows.extend(
        (f"the guard is {how}", [_failure(r["failures"].get(how, {})) for r in results]) for how in FAILURES
    )
    rows += [(label, [_time(result, name, unit) for result in results]) for label, name, unit in TIMES]
    lines = [("", _names(results)), ("---", ["---"] * len(results)), *rows]
    return "\n".join(f"| {' | '.join([name, *cells])} |" for name, cells in lines)


def _whole(result: dict[str, Any]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for name, counts in result["channels"].items():
        if name.endswith(", whole"):
            total.update(counts)
    return total


def text_of(found: dict[str, Any]) -> str:
    """The same in short, for a terminal."""
    lines = [f"seed {found['seed']}, {found['date']}, {found['machine']}"]
    for result in found["results"]:
        lines.append(f"\n{result['name']}")
        if result["error"]:
            lines.append(f"  was not run: {result['error']}")
            continue
        lines.append("  answers that let a value out, by channel:")
        lines += [f"    {name:26} {leaked_of(counts)}" for name, counts in result["channels"].items()]
        lines += [
            f"  {count:4} times: {FAULTS[f.partition(': ')[0]]} ({f.partition(': ')[2]})"
            for f, count in result["faults"].items()
        ]
        lines += [f"  guard {how}: {_failure(counts)}" for how, counts in result["failures"].items()]
        if times := result["times"]:
            lines.append(
                f"  first text {times['first'] * 1e3:.0f} ms, delay {times['held_p50'] * 1e3:.1f} and"
                f" {times['held_p99'] * 1e3:.1f} ms, {times['held_most']} characters held,"
                f" {times['cpu_per_piece'] * 1e6:.0f} µs of CPU a piece"
            )
    return "\n".join(lines)
