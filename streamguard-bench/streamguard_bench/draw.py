"""Draws the scripts of a run: each channel, each cut, each kind of value, and answers without any value."""

import dataclasses
import json
import random
from collections.abc import Callable, Iterator, Sequence

from streamguard_bench.scripts import CALL_NAME, CUTS, Names, Piece, Script, cut_pieces, interleaved, with_cut
from streamguard_bench.values import SENTENCES, draw, prose

CHANNELS = (
    "content",
    "reasoning",
    "call",
    "call, escaped",
    "logprobs",
    "token ids",
    "second choice",
    "echo",
    "Messages: content",
    "Messages: thinking",
    "Messages: tool use",
)
"""The channels in which a value may reach a client. Those of whole answers are counted by themselves."""


class Draw:
    """The scripts of one run. Two runs with one seed have the same scripts."""

    def __init__(self, seed: int, kinds: Sequence[str], apis: Sequence[str]) -> None:
        self._rng = random.Random(f"scripts {seed}")
        self._names = Names(random.Random(f"names {seed}"))
        self._kinds = kinds
        self._apis = apis
        self._forms: dict[str, Callable[[str, str, str], Script]] = {
            "content": self._content,
            "reasoning": self._reasoning,
            "call": self._call,
            "call, escaped": self._escaped_call,
            "logprobs": self._logprobs,
            "token ids": self._ids,
            "second choice": self._second_choice,
            "echo": self._echo,
            "Messages: content": self._content_of_messages,
            "Messages: thinking": self._thinking,
            "Messages: tool use": self._tool_use,
        }

    @property
    def channels(self) -> list[str]:
        """The channels of the server's interfaces."""
        found = [name for name in CHANNELS if not name.startswith("Messages") and name != "echo"]
        found += ["echo"] if "completions" in self._apis else []
        return found + [name for name in CHANNELS if name.startswith("Messages") and "messages" in self._apis]

    def leaks(self, count: int) -> Iterator[Script]:
        """About `count` scripts with a value for each channel, streamed and whole."""
        for channel in self.channels:
            for i in range(count):
                kind, cut = self._kinds[i % len(self._kinds)], CUTS[i % len(CUTS)]
                value = draw(kind, self._rng)
                script = with_cut(self._forms[channel](kind, value, cut), cut)
                yield script
                if i % 4 == 0:
                    yield self._whole(channel, kind)

    def harmless(self, count: int) -> Iterator[Script]:
        """Scripts without a value, in each form, and dialogues of agents."""
        for i in range(count):
            cut = CUTS[i % len(CUTS)]
            for channel in self.channels:
                yield with_cut(self._harmless(channel, cut), cut)
            yield with_cut(self._dialogue(cut), cut)
            yield with_cut(self._in_order(cut), cut)

    def broken(self, count: int) -> Iterator[Script]:
        """Streams that the upstream breaks off in the middle."""
        for _ in range(count):
            script = self._made("broken", "content", prose(self._rng, 4), "tokens")
            yield self._replaced(script, ends_after=len(script.pieces) // 2)

    def left(self, count: int) -> Iterator[Script]:
        """Long streams that the client leaves."""
        for _ in range(count):
            yield self._replaced(self._made("left", "content", prose(self._rng, 8), "characters"), pace=0.02)

    def restored(self, count: int) -> Iterator[Script]:
        """Prompts with a value, which the model says again as the prompt had it."""
        for i in range(count):
            kind = self._kinds[i % len(self._kinds)]
            value = draw(kind, self._rng)
            yield Script(
                name=self._names.new(),
                kind="restored",
                channel="content",
                secret=value,
                prompt="Repeat this: " + SENTENCES[kind].format(value),
            )

    def paced(self, count: int, pace: float) -> Iterator[Script]:
        """Harmless streams at the pace of a model."""
        for _ in range(count):
            text = prose(self._rng, 5)
            yield self._replaced(self._made("paced", "content", text, "tokens"), pace=pace)

    def _whole(self, channel: str, kind: str) -> Script:
        value = draw(kind, self._rng)
        script = self._forms[channel](kind, value, "tokens")
        return self._replaced(script, is_streamed=False, channel=f"{channel}, whole")

    def _said(self, kind: str, value: str) -> str:
        before, after = prose(self._rng, 1), prose(self._rng, 1)
        return f"{before} {SENTENCES[kind].format(value)} {after}"

    def _made(self, kind: str, channel: str, text: str, cut: str, secret: str = "") -> Script:
        pieces = tuple(map(Piece, cut_pieces(text, secret, cut, self._rng)))
        return Script(name=self._names.new(), kind=kind, channel=channel, pieces=pieces, secret=secret)

    @staticmethod
    def _replaced(script: Script, **fields: object) -> Script:
        return dataclasses.replace(script, **fields)  # type: ignore[arg-type]

    def _content(self, kind: str, value: str, cut: str) -> Script:
        return self._made("leak", "content", self._said(kind, value), cut, value)

    def _in(self, script: Script, channel: str, name: str) -> Script:
        pieces = tuple(Piece(p.text, channel) for p in script.pieces)  # type: ignore[arg-type]
        return self._replaced(script, channel=name, pieces=pieces)

    def _reasoning(self, kind: str, value: str, cut: str) -> Script:
        thought = self._in(self._content(kind, value, cut), "reasoning", "reasoning")
        after = tuple(map(Piece, cut_pieces(prose(self._rng, 1), "", "tokens", self._rng)))
        return self._replaced(thought, pieces=thought.pieces + after)

    def _arguments(self, kind: str, value: str) -> str:
        return json.dumps({"title": prose(self._rng, 1), "text": SENTENCES[kind].format(value)})

    def _call(self, kind: str, value: str, cut: str) -> Script:
        script = self._made("leak", "call", self._arguments(kind, value), cut, value)
        return self._in(script, "call", "call")

    def _escaped_call(self, kind: str, value: str, cut: str) -> Script:
        escaped = "".join(f"\\u{ord(char):04x}" if self._rng.random() < 0.5 else char for char in value)
        text = self._arguments(kind, value).replace(value, escaped)
        script = self._made("leak", "call", text, cut, escaped)
        return self._replaced(self._in(script, "call", "call, escaped"), secret=value)

    def _logprobs(self, kind: str, value: str, cut: str) -> Script:
        return self._replaced(self._content(kind, value, cut), channel="logprobs", has_logprobs=True)

    def _ids(self, kind: str, value: str, cut: str) -> Script:
        return self._replaced(self._content(kind, value, cut), channel="token ids", has_ids=True)

    def _second_choice(self, kind: str, value: str, cut: str) -> Script:
        script = self._content(kind, value, cut)
        first = [Piece(text) for text in cut_pieces(prose(self._rng, 3), "", "tokens", self._rng)]
        second = [Piece(p.text, "content", 1) for p in script.pieces]
        return self._replaced(script, channel="second choice", n=2, pieces=interleaved([first, second]))

    def _echo(self, kind: str, value: str, cut: str) -> Script:
        """The prompt has the beginning of the value, and the answer its end."""
        at = self._rng.randint(len(value) // 4, len(value) // 2)
        before, after = SENTENCES[kind].split("{}")
        script = self._made("leak", "echo", value[at:] + after, cut, value[at:])
        return self._replaced(
            script, api="completions", is_echoed=True, secret=value, prompt=before + value[:at]
        )

    def _content_of_messages(self, kind: str, value: str, cut: str) -> Script:
        script = self._content(kind, value, cut)
        return self._replaced(script, api="messages", channel="Messages: content")

    def _thinking(self, kind: str, value: str, cut: str) -> Script:
        script = self._reasoning(kind, value, cut)
        return self._replaced(script, api="messages", channel="Messages: thinking")

    def _tool_use(self, kind: str, value: str, cut: str) -> Script:
        return self._replaced(self._call(kind, value, cut), api="messages", channel="Messages: tool use")

    def _harmless(self, channel: str, cut: str) -> Script:
        """A script of the channel with harmless words in place of the value."""
        script = self._forms[channel]("email", "the front desk", cut)
        return self._replaced(script, kind="harmless", secret="")

    def _in_order(self, cut: str) -> Script:
        """Reasoning, content, and a call, as a model writes them."""
        rng = self._rng
        parts = [("reasoning", prose(rng, 2)), ("content", prose(rng, 2))]
        parts.append(("call", json.dumps({"title": "Notes", "text": prose(rng, 1)}, ensure_ascii=False)))
        pieces = [Piece(t, c) for c, text in parts for t in cut_pieces(text, "", cut, rng)]  # type: ignore[arg-type]
        name = self._names.new()
        return Script(name=name, kind="harmless", channel="all in order", pieces=tuple(pieces))

    def _dialogue(self, cut: str) -> Script:
        """An agent's request: turns before it, calls and their results, and tools."""
        call = {
            "id": "call_a",
            "type": "function",
            "function": {"name": CALL_NAME, "arguments": '{"title": "A", "text": "b"}'},
        }
        history = (
            {"role": "system", "content": "You help with notes. Use the tools."},
            {"role": "user", "content": prose(self._rng, 1)},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_a", "content": json.dumps({"saved": True})},
            {"role": "assistant", "content": prose(self._rng, 1)},
        )
        script = self._in(
            self._made("harmless", "call", self._arguments("email", "us"), cut), "call", "dialogue"
        )
        return self._replaced(script, history=history)
