"""The results of a bench: figures of every run, medians over repetitions, ratios between targets, and
JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import orjson

from weir_bench.client import RequestRecord
from weir_bench.measure import ErrorCount, Figures, count_errors, figures, median_figures, ratio_figures
from weir_bench.plan import Level, Plan, Run, Target


@dataclass(frozen=True)
class Summary:
    """One target under one load. `figures`: medians over its runs. `ratios`: medians of each run's figures
    divided by those of the first target's run of the same repetition; None for the first target itself."""

    target: Target
    level: Level
    runs: Sequence[Run]
    figures: Figures
    ratios: Figures | None

    @property
    def records(self) -> list[RequestRecord]:
        """The records of all requests that did not fail."""
        return [record for run in self.runs for record in run.records if record.failure is None]


class Results:
    """If the bench was `interrupted`, `runs` may be fewer than planned, and the last one incomplete."""

    def __init__(
        self, plan: Plan, runs: Sequence[Run], *, interrupted: bool = False, weir_version: str = ""
    ) -> None:
        self.plan = plan
        self.runs = [run for run in runs if run.records]
        self.interrupted = interrupted
        self.weir_version = weir_version
        self.created = datetime.now().astimezone()

    @cached_property
    def figures(self) -> Mapping[Run, Figures]:
        return {
            run: figures(run.records, run.duration, self.plan.slos) | {"client_cpu": run.client_cpu}
            for run in self.runs
        }

    @cached_property
    def summaries(self) -> Sequence[Summary]:
        """The summaries in the plan's order, without targets and loads that were not measured."""
        pairs = [(level, target) for level in self.plan.levels for target in self.plan.targets]
        return [summary for pair in pairs if (summary := self._summary(*pair))]

    @property
    def errors(self) -> Mapping[Target, Mapping[str, ErrorCount]]:
        """The errors of each target that has any."""
        found = {
            target: count_errors(
                record for run in self.runs if run.target == target for record in run.records
            )
            for target in self.plan.targets
        }
        return {target: errors for target, errors in found.items() if errors}

    @property
    def notes(self) -> list[str]:
        """How the figures were measured, and how to read them; one line each."""
        plan = self.plan
        fields = {name: value for name, value in plan.fields.items() if not name.startswith("stream")}
        shown = [f"{name} {orjson.dumps(value).decode()}" for name, value in fields.items()]
        notes = [", ".join([plan.endpoint, *shown, f"seed {plan.seed}"])]
        if plan.repetitions > 1:
            notes.append(f"Each figure is the median of {plan.repetitions} repetitions.")
        if len(plan.targets) > 1:
            notes.append(f"A ratio is a figure divided by that of {plan.targets[0].name}.")
        if plan.slos:
            within = " and ".join(f"{metric} within {limit:g} ms" for metric, limit in plan.slos.items())
            notes.append(f"good/s counts requests with {within}.")
        if self.interrupted:
            notes.append("Interrupted: only the requests until then were measured.")
        return notes

    def to_json(self, *, detailed: bool = False) -> bytes:
        """`detailed`: add the times of each request, in seconds since its run began."""
        found = {
            "weir": self.weir_version,
            "created": self.created.isoformat(timespec="seconds"),
            "interrupted": self.interrupted,
            "settings": self.settings,
            "summary": [self._summary_json(summary) for summary in self.summaries],
            "runs": [self._run_json(run, detailed) for run in self.runs],
        }
        return orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    @property
    def settings(self) -> dict[str, Any]:
        """The whole plan without the API key."""
        plan = self.plan
        names = ("seed", "endpoint", "fields", "num_prompts", "duration", "burstiness", "max_concurrency")
        settings = {name: getattr(plan, name) for name in (*names, "repetitions", "num_warmups", "timeout")}
        return settings | {
            "prompts": repr(plan.prompts),
            "slos": dict(plan.slos),
            "targets": [asdict(target) for target in plan.targets],
        }

    def _summary(self, level: Level, target: Target) -> Summary | None:
        runs = [run for run in self.runs if run.level == level and run.target.name == target.name]
        if not runs:
            return None
        base = {
            run.repetition: self.figures[run]
            for run in self.runs
            if run.level == level and run.target.name == self.plan.targets[0].name
        }
        ratios = [
            ratio_figures(self.figures[run], base[run.repetition]) for run in runs if run.repetition in base
        ]
        is_first = target.name == self.plan.targets[0].name
        return Summary(
            target,
            level,
            runs,
            figures=median_figures([self.figures[run] for run in runs]),
            ratios=median_figures(ratios) if ratios and not is_first else None,
        )

    def _summary_json(self, summary: Summary) -> dict[str, Any]:
        ratios = {"ratios": summary.ratios} if summary.ratios else {}
        where = _where(summary.target, summary.level)
        return where | {"repetitions": len(summary.runs)} | summary.figures | ratios

    def _run_json(self, run: Run, detailed: bool) -> dict[str, Any]:
        errors = {kind: asdict(count) for kind, count in count_errors(run.records).items()}
        requests = {"requests": [_request_json(record) for record in run.records]} if detailed else {}
        where = _where(run.target, run.level)
        return where | {"repetition": run.repetition} | self.figures[run] | {"errors": errors} | requests


def _where(target: Target, level: Level) -> dict[str, Any]:
    # JSON has no infinity. vLLM also writes it as a string.
    rate = "inf" if level.request_rate == float("inf") else level.request_rate
    return {
        "target": target.name,
        "model": target.model,
        "concurrency": level.concurrency,
        "request_rate": rate,
    }


def _request_json(record: RequestRecord) -> dict[str, Any]:
    return asdict(record) | {"times": record.times.tolist()}
