"""`weir replay`: what a client would get of recorded answers, and whether this has changed.

It compares with a result that was accepted, or with the hooks of another configuration.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from engine.parsers import Parsers, Parsing
from engine.parsers.suggested import chosen_parser
from engine.protocol import Deltas, GenerationRequest
from engine.streams.feeding import feed_all, iterated
from engine.streams.flow import StagedFlow
from engine.streams.recording import Recording
from engine.upstream.replay import ReplayEngine
from hooks.loading.loader import HookLoadError, LoadedHook, load_hook
from hooks.pipeline.pipeline import Pipeline
from hooks.testing import Judgement, Released
from hooks.testing.play import collect
from hooks.testing.probe import Probe
from proxy.cli.argument_types import number_or_zero
from proxy.cli.chosen_hooks import add_hook_arguments, check_scores, chosen_settings, load_named
from proxy.cli.dialogue.terminal import harmless
from proxy.cli.leaving import leaving
from proxy.cli.replays.compare import Comparison, summary
from proxy.cli.replays.snapshot import VERSION, changes, failure_of, outputs_of, report, snapshot, verdict_of
from proxy.deployment.guard_models import DeployedModels
from proxy.deployment.read import chosen_policy, directory_of
from proxy.settings.serve import ServeSettings
from proxy.workers.signals import run_interruptible

MAX_QUESTION = 80
"""Characters of a question that a report shows."""


def add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    """show what hooks release of recorded answers"""
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="a recording, or a folder (weir serve --record)"
    )
    add_hook_arguments(parser)
    parser.add_argument(
        "--before", metavar="CONFIG", help="a YAML file with other hooks; only what then differs is shown"
    )
    parser.add_argument("--before-policy", metavar="POLICY", help="the policy of --before, or of --config")
    parser.add_argument(
        "--before-hook", action="append", default=[], metavar="HOOK", help="a hook of before; repeat in order"
    )
    parser.add_argument(
        "--speed",
        type=number_or_zero,
        default=0.0,
        help="1: as fast as recorded; 0: without waiting (%(default)g)",
    )
    parser.add_argument(
        "--accept",
        action="store_true",
        help="write the result to FILE.accepted.json, to compare later results with it",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=replay)


@dataclass(frozen=True)
class Replayed:
    """A recording, and its answer without and with hooks."""

    path: Path
    recording: Recording
    said: Released
    """The result for a client without hooks."""
    released: Released
    """The result for a client with hooks."""

    @property
    def accepted_path(self) -> Path:
        return self.path.with_suffix(".accepted.json")

    @cached_property
    def changes(self) -> list[str] | None:
        """The lines that differ from the accepted result, which is read at the first use; None if there
        is none. Raises `ValueError` if it cannot be read."""
        try:
            accepted = json.loads(self.accepted_path.read_text(encoding="utf-8"))
            if accepted["version"] != VERSION:
                raise ValueError("it is of another version")
            return changes(accepted, snapshot(self.released))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, LookupError) as error:
            reason = f"{self.accepted_path} is not a result of version {VERSION}; --accept makes a new one"
            raise ValueError(reason) from error

    def lines(self, *, is_accepting: bool) -> Iterator[str]:
        """The report as text. `is_accepting`: the result has just been accepted."""
        yield f"{self.path}  {_question(self.recording.request)}"
        if self.released.request not in (None, self.recording.request):
            yield f"  the model would be asked: {_question(self.released.request)}"
        yield from (f"  {line}" for line in report(self.said, self.released))
        if is_accepting:
            yield f"  accepted: {self.accepted_path}"
        elif self.changes is None:
            yield "  nothing was accepted yet (--accept)"
        elif self.changes:
            yield f"  changed since {self.accepted_path}:"
            yield from (f"  {line}" for line in self.changes)
        else:
            yield "  as accepted"

    def as_json(self) -> dict[str, object]:
        return {
            "file": str(self.path),
            "said": outputs_of(self.said),
            "released": outputs_of(self.released),
            "verdicts": [verdict_of(judgement) for judgement in self.released.judgements],
            "failure": failure_of(self.released),
            "changes": self.changes,
        }

    def accept(self) -> None:
        text = json.dumps(snapshot(self.released), indent=1, ensure_ascii=False) + "\n"
        # The result has text of the recording. Only those who may read the recording may read it, and until
        # its mode is copied, only its owner.
        self.accepted_path.touch(mode=0o600)
        self.accepted_path.write_text(text, encoding="utf-8")
        shutil.copymode(self.path, self.accepted_path)


class _Player:
    """Plays recordings through the hooks and parsers of a server."""

    def __init__(self, settings: ServeSettings, policy: str | None) -> None:
        """`policy`: its name; None: the default one. Raises `HookLoadError`, and `ValueError` if there is no
        such policy."""
        self._judgements: list[Judgement] = []
        chosen = chosen_policy(settings, policy)
        hooks = map(self._with_probe, load_named(chosen.hooks))
        allowed = [self._with_probe(load_hook(spec)) for spec in chosen.allowed_hooks]
        self._pipeline = Pipeline(hooks, allowed, chosen.options)
        self._models = DeployedModels(directory_of(settings), {})
        local = settings.base_model.local
        self._parsers = Parsers(local.reasoning_parser, chosen_parser(local.tool_call_parser, ""))

    async def start(self) -> None:
        """Give the hooks their models. Raises `HookLoadError`."""
        await self._pipeline.give_models(self._models)

    async def play(self, path: Path, speed: float) -> Replayed:
        """Raises `ValueError` if the file is not a recording, names a hook that is not allowed, or lacks
        scores that a hook reads."""
        recording = _load(path)
        named = [hook for name, hook in self._pipeline.allowed.items() if name in recording.request.hooks]
        check_scores((*self._pipeline.hooks, *named), recording, str(path))
        unguarded = replace(recording.request, hooks=())
        said = await collect(Pipeline(), unguarded, lambda _: self._answer(recording, speed=0))
        self._judgements.clear()
        released = await collect(self._pipeline, recording.request, lambda _: self._answer(recording, speed))
        return Replayed(path, recording, said, replace(released, judgements=tuple(self._judgements)))

    async def aclose(self) -> None:
        await self._pipeline.aclose()
        await self._models.aclose()

    def _with_probe(self, hook: LoadedHook) -> LoadedHook:
        return Probe(hook, self._judgements).hook

    def _answer(self, recording: Recording, speed: float) -> Deltas:
        request = recording.request
        answer = ReplayEngine([recording], speed=speed).generate(request)
        if not request.is_chat:
            return answer
        return iterated(StagedFlow(partial(feed_all, answer), [Parsing(self._parsers, request)]))


def replay(options: argparse.Namespace) -> None:
    """Exits with 1 if a result differs from the accepted one, or from that of before, and with 2 if a
    recording cannot be played."""
    with leaving("weir replay", OSError, ValueError, HookLoadError):
        is_comparing = options.before or options.before_policy or options.before_hook
        has_changed = run_interruptible(_compare(options) if is_comparing else _replay(options))
    raise SystemExit(1 if has_changed else 0)


async def _replay(options: argparse.Namespace) -> bool:
    has_changed = False
    results = []
    async with aclosing(_after(options)) as player:
        await player.start()
        for path in _recordings(options.files):
            one = await player.play(path, options.speed)
            if options.accept:
                one.accept()
            has_changed = has_changed or bool(one.changes)
            if options.json:
                results.append(one.as_json())
            else:
                print("\n".join(_coloured(one.lines(is_accepting=options.accept))), end="\n\n")
    if options.json:
        print(json.dumps(results, indent=1, ensure_ascii=False))
    return has_changed


async def _compare(options: argparse.Namespace) -> bool:
    """Whether a result differs from that of before."""
    if options.accept:
        raise ValueError("--accept: there is nothing to accept in a comparison")
    compared = []
    async with aclosing(_before(options)) as old, aclosing(_after(options)) as new:
        await asyncio.gather(old.start(), new.start())
        for path in _recordings(options.files):
            before, after = await old.play(path, options.speed), await new.play(path, options.speed)
            compared.append(Comparison(path, before.released, after.released))
    if options.json:
        print(json.dumps([one.as_json() for one in compared], indent=1, ensure_ascii=False))
    else:
        for one in compared:
            print("\n".join(_coloured(one.lines())))
        print("\n".join(summary(compared)))
    return any(one.is_changed for one in compared)


def _after(options: argparse.Namespace) -> _Player:
    return _Player(chosen_settings(options, options.config, options.hook), options.policy)


def _before(options: argparse.Namespace) -> _Player:
    # Another policy of the same file is before as well as another file.
    config = options.before or (None if options.before_hook else options.config)
    return _Player(chosen_settings(options, config, options.before_hook), options.before_policy)


def _recordings(paths: Iterable[Path]) -> Iterator[Path]:
    """The files, and those in folders. Raises `ValueError` for a folder without any."""
    for path in paths:
        files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not files:
            raise ValueError(f"{path}: there is no recording")
        yield from files


def _load(path: Path) -> Recording:
    """Raises `ValueError` for a file that is no recording, or that cannot be read."""
    try:
        return Recording.load(path)
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such file or folder") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError:
        if _is_conversation(path):
            reason = (
                "a conversation that the page saved, and no recording. Press Recording below an answer there"
            )
            raise ValueError(f"{path}: this is {reason}, and replay the file of it") from None
        raise


def _is_conversation(path: Path) -> bool:
    """Whether the page's Save wrote the file (`conversation.js`)."""
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("turns"), list)


def _coloured(lines: Iterable[str]) -> Iterator[str]:
    """The lines, harmless; on a terminal, removed lines are red and new lines green."""
    is_plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
    colours = {} if is_plain else {"-": "31", "+": "32"}
    for line in map(harmless, lines):
        colour = colours.get(line.lstrip()[:1])
        yield f"\x1b[{colour}m{line}\x1b[0m" if colour else line


def _question(request: GenerationRequest) -> str:
    asked = repr(request.messages[-1].get("content") if request.messages else request.prompts[0])
    return asked if len(asked) <= MAX_QUESTION else asked[: MAX_QUESTION - 1] + "…"
