"""The files of agents that the guards of `examples/agent.yaml` change: `make bench NAME=agent_files`.

    python -m benchmarks.agent_files [--files 2000] [--seed 1] [--lines]

pip and npm bring pinned packages, of which the seed chooses files. Each file is an answer twice: as text, and
as the argument of a call that writes it, in pieces of drawn sizes. `rewritten`: the agent has read the file,
so it is in the prompt as a tool's result, and the model writes what it was shown. `new`: the model writes it
from nothing. A file counts if the client gets other text, or no call. Each such file is listed with what is
in it, by guard, kind and line; `--lines` also prints the lines.
"""

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from benchmarks.agent_files.corpus import File, chosen, fetch
from benchmarks.machine import processor
from engine.protocol import Delta, Deltas, GenerationRequest, ToolCall
from hooks.detect.span_guard import SpanGuard
from hooks.loading.loader import HookSpec, load_hook
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import collect

CONFIG = Path("examples/agent.yaml")
MOST = 0.5
"""Percent of the files that a rewrite may change."""
_TOOLS = tuple(
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("read_file", "write_file")
)
_SIZES = (2, 9, 60, 400, 2000)
"""Characters of the pieces of an answer."""
_SHORT = 160


def pipeline_of(config: Path) -> Pipeline:
    hooks = yaml.safe_load(config.read_text(encoding="utf-8"))["hooks"]
    return Pipeline([load_hook(HookSpec(one["path"], one.get("args", {}))) for one in hooks])


def asking(file: File, *, is_read: bool) -> GenerationRequest:
    """The agent's request. `is_read`: it has read the file before."""
    path = json.dumps({"path": file.name})
    call = {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": path}}
    read = (
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": file.text},
    )
    asked = {"role": "user", "content": "Write the file."}
    messages = (asked, *read) if is_read else (asked,)
    return GenerationRequest(request_id="bench", model="m", endpoint="chat", messages=messages, tools=_TOOLS)


class Writer:
    """A model that writes the file as it was shown to it, once as text and once in a call."""

    def __init__(self, pipeline: Pipeline, seed: int) -> None:
        self._pipeline = pipeline
        self._rng = random.Random(seed)

    async def faults(self, file: File, *, is_read: bool) -> list[str]:
        """The forms in which the client does not get the file as it is."""
        request = asking(file, is_read=is_read)

        def answer(admitted: GenerationRequest) -> Deltas:
            text = admitted.messages[-1]["content"] if is_read else file.text
            return self._answer(text, json.dumps({"path": "f", "content": text}, ensure_ascii=False))

        released = await collect(self._pipeline, request, answer)
        if released.failure is not None:
            raise released.failure
        forms = [] if released.content == file.text else ["text"]
        arguments = json.dumps({"path": "f", "content": file.text}, ensure_ascii=False)
        return forms if released.tool_calls == [("write_file", arguments)] else [*forms, "call"]

    async def _answer(self, text: str, arguments: str) -> Deltas:
        for piece in self._pieces(text):
            yield Delta(text=piece)
        for piece in self._pieces(arguments):
            yield Delta(text=piece, channel="tool_call", tool_call=ToolCall(0, "write_file"))
        yield Delta(finish_reason="tool_calls")

    def _pieces(self, text: str) -> Iterator[str]:
        start = 0
        while start < len(text):
            end = start + self._rng.choice(_SIZES)
            yield text[start:end]
            start = end


def finds(pipeline: Pipeline, file: File, *, shows_lines: bool) -> Iterator[str]:
    """What the guards find in the file, each kind once a line."""
    lines = file.text.split("\n")
    told: set[tuple[str, str, int]] = set()
    for hook in pipeline.hooks:
        guard = getattr(hook.call, "__self__", hook.call)
        for match in guard.detector.scan(file.text)[0] if isinstance(guard, SpanGuard) else ():
            line = file.text.count("\n", 0, match.start)
            one = hook.name, match.entity, line + 1
            if one not in told:
                told.add(one)
                shown = f"  {lines[line].strip()[:_SHORT]}" if shows_lines else ""
                yield f"    {hook.name}, {match.entity}, line {line + 1}{shown}"


def measure(pipeline: Pipeline, files: list[File], seed: int, *, is_read: bool, shows_lines: bool) -> float:
    """Print the files that come out otherwise. Returns their share in percent."""
    title = "rewritten" if is_read else "new"
    writer = Writer(pipeline, seed)
    forms: list[str] = []
    num_changed = 0
    for file in files:
        faults = asyncio.run(writer.faults(file, is_read=is_read))
        if faults:
            num_changed += 1
            forms += faults
            print(f"  {title}, {' and '.join(faults)}: {file.name}")
            print(*finds(pipeline, file, shows_lines=shows_lines), sep="\n", flush=True)
    share = 100 * num_changed / len(files)
    print(
        f"{title}: {num_changed} of {len(files)} files ({share:.2f} %) come out otherwise: "
        f"{forms.count('text')} as text, {forms.count('call')} as a call\n",
        flush=True,
    )
    return share


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, default=CONFIG, help="the file with the guards")
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", action="store_true", help="print the lines with finds")
    options = parser.parse_args()
    print(processor())
    fetch()
    files = chosen(options.files, options.seed)
    languages = dict.fromkeys(file.language for file in files)
    print(", ".join(f"{sum(one.language == name for one in files)} {name}" for name in languages), "\n")
    pipeline = pipeline_of(options.config)
    measure(pipeline, files, options.seed, is_read=False, shows_lines=options.lines)
    share = measure(pipeline, files, options.seed, is_read=True, shows_lines=options.lines)
    sys.exit(share > MOST)


if __name__ == "__main__":
    main()
