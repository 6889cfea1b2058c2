"""Two replays of one recording, before and after a guard was changed: which text and verdicts differ."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hooks.testing import Released
from proxy.cli.replays.snapshot import JSONObject, changes, snapshot


@dataclass(frozen=True)
class Comparison:
    """A recording, and what a client gets of it before and after."""

    path: Path
    before: Released
    after: Released

    @cached_property
    def _snapshots(self) -> tuple[JSONObject, JSONObject]:
        return snapshot(self.before), snapshot(self.after)

    @property
    def is_answer_changed(self) -> bool:
        """Whether a client gets another answer: hooks in shadow mode change none."""
        before, after = self._snapshots
        return any(before[name] != after[name] for name in ("outputs", "failure"))

    @cached_property
    def gone(self) -> list[JSONObject]:
        """The verdicts that only the hooks before return; verdicts that change no text are left out."""
        before, after = self._snapshots
        return _without(before["verdicts"], after["verdicts"])

    @cached_property
    def new(self) -> list[JSONObject]:
        before, after = self._snapshots
        return _without(after["verdicts"], before["verdicts"])

    @property
    def is_changed(self) -> bool:
        return self.is_answer_changed or bool(self.gone or self.new)

    def lines(self) -> Iterator[str]:
        """The report as text. Lines from before begin with `- `, and those from after with `+ `."""
        if not self.is_changed:
            yield f"{self.path}  as before"
            return
        what = "another answer" if self.is_answer_changed else "the same answer, other verdicts"
        yield f"{self.path}  {what}"
        yield from (f"  {line}" for line in changes(*self._snapshots))

    def as_json(self) -> JSONObject:
        before, after = self._snapshots
        return {
            "file": str(self.path),
            "answer_changed": self.is_answer_changed,
            "before": before["outputs"],
            "after": after["outputs"],
            "gone": self.gone,
            "new": self.new,
            "failure": {"before": before["failure"], "after": after["failure"]},
        }


def summary(comparisons: Iterable[Comparison]) -> Iterator[str]:
    """How many answers differ, and how many verdicts are gone and new, by hook, action and reason."""
    all_of_them = list(comparisons)
    num_changed = sum(one.is_answer_changed for one in all_of_them)
    yield f"{num_changed} of {len(all_of_them)} answers changed"
    gone = Counter(_kind(verdict) for one in all_of_them for verdict in one.gone)
    new = Counter(_kind(verdict) for one in all_of_them for verdict in one.new)
    for kind in sorted(gone | new):
        yield f"  {kind}: {gone[kind]} gone, {new[kind]} new"


def _kind(verdict: JSONObject) -> str:
    action = f"would {verdict['action']}" if verdict["shadow"] else verdict["action"]
    return " ".join(str(part) for part in (verdict["hook"], action, verdict["reason"]) if part)


def _without(verdicts: Iterable[JSONObject], known: Iterable[JSONObject]) -> list[JSONObject]:
    """The verdicts that `known` does not have, or has fewer times."""
    left = Counter(_key(one) for one in known)
    found = []
    for verdict in verdicts:
        if left[_key(verdict)]:
            left[_key(verdict)] -= 1
        else:
            found.append(verdict)
    return found


def _key(verdict: Any) -> str:
    return json.dumps(verdict, sort_keys=True)
