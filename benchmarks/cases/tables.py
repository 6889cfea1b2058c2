"""The tables of a measurement of finders: recall of groups of cases, and what is found in real files."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

from benchmarks.cases.case import Case
from benchmarks.cases.finders import Finder, Span

T = TypeVar("T")
REAL = frozenset({"EMAIL_ADDRESS"})
"""Kinds that real files have: their finds are right."""
_SHARE = 0.75
"""Share of a value's letters and digits that must be cut for a hit."""


def is_hit(case: Case, spans: Iterable[Span]) -> bool:
    """Whether the value, or nearly all of it, is cut. Without a value: whether anything is."""
    if case.value is None:
        return any(True for _ in spans)
    cut = {i for start, end, _ in spans for i in range(max(start, case.start), min(end, case.end))}
    places = [i for i in range(case.start, case.end) if case.text[i].isalnum()] or range(case.start, case.end)
    return sum(place in cut for place in places) >= _SHARE * len(places)


def hits(finder: Finder, cases: Sequence[Case]) -> list[bool]:
    found = finder.find([case.text for case in cases])
    return [is_hit(case, spans) for case, spans in zip(cases, found.spans, strict=True)]


def print_groups(title: str, cases: Iterable[Case], finders: Sequence[Finder], num_wrong: int = 0) -> None:
    """Print the share of hits in each group, a column a finder, and cases that the first one gets wrong."""
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.group].append(case)
    print(f"\n{title:<44}  texts" + "".join(f"{finder.name:>16}" for finder in finders))
    for group, members in sorted(groups.items()):
        columns = [hits(finder, members) for finder in finders]
        shares = "".join(f"{100 * sum(column) / len(column):15.1f}%" for column in columns)
        print(f"  {group:<42} {len(members):6}{shares}", flush=True)
        wrong = [case for case, hit in zip(members, columns[0], strict=True) if hit == (case.value is None)]
        for case in _some(wrong, num_wrong):
            print(f"      {case.entity}: {case.text[:160]!r}")


def print_dresses(cases: Sequence[Case], finder: Finder, num_wrong: int = 0) -> None:
    """Print the share of hits by dress: of all, and of those whose value is found without its dress."""
    plain = [_undressed(case) for case in cases]
    rows: dict[str, list[tuple[Case, bool, bool]]] = defaultdict(list)
    for case, is_found, is_known in zip(cases, hits(finder, cases), hits(finder, plain), strict=True):
        rows[case.entity.partition("|")[0]].append((case, is_found, is_known))
    rows["all"] = [row for members in rows.values() for row in members]
    print(f"\n{'The same values in typographic dress':<44}  texts        found   of those found without it")
    for name, members in rows.items():
        known = [is_found for _, is_found, is_known in members if is_known]
        share = 100 * sum(is_found for _, is_found, _ in members) / len(members)
        print(f"  {name:<42} {len(members):6} {share:11.1f}% {100 * sum(known) / max(1, len(known)):15.1f}%")
        wrong = [case for case, is_found, is_known in members if is_known and not is_found]
        for case in _some(wrong, num_wrong if name != "all" else 0):
            print(f"      {case.text[:160]!r}")


def _undressed(case: Case) -> Case:
    value = case.plain or ""
    text = case.text[: case.start] + value + case.text[case.end :]
    return Case(case.group, case.entity, text, value, case.start, case.start + len(value))


def print_files(files: Sequence[Case], finders: Sequence[Finder], num_wrong: int = 0) -> None:
    """Print what is found in real files, and at which speed. Nearly all of it is false."""
    size = sum(len(case.text) for case in files) / 1e6
    print(f"\n{len(files)} real files, {size:.1f} MB: finds that are no e-mail address")
    for finder in finders:
        found = finder.find([case.text for case in files])
        kinds = Counter(name for spans in found.spans for _, _, name in spans)
        count = sum(count for name, count in kinds.items() if name not in REAL)
        most = ", ".join(f"{name} {count}" for name, count in kinds.most_common(5) if name not in REAL)
        print(f"  {finder.name:<24} {count / size:8.1f} a MB {size / found.seconds:8.2f} MB/s   {most}")
        if finder is finders[0]:
            places = [
                (case, span)
                for case, spans in zip(files, found.spans, strict=True)
                for span in spans
                if span[2] not in REAL
            ]
            for case, (start, end, name) in _some(places, num_wrong):
                print(f"      {name} {case.text[max(0, start - 40) : start]!r} {case.text[start:end][:80]!r}")


def _some(items: Sequence[T], count: int) -> Sequence[T]:
    """Up to `count` of the items, evenly."""
    return items[:: max(1, len(items) // count)][:count] if count else ()
