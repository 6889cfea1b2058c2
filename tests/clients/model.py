"""The model of the agent's conversation: the demo model, forced to say the replies, and an upstream."""

import fcntl
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

import orjson

from engine.protocol.demo import MODEL_DIR
from engine.sampling.logits_processors import Context, TokenIds
from tests.clients.agent import LONG, JSONObject, reply_to
from tests.engine.upstream.messages import asked as events

if TYPE_CHECKING:
    from torch import Tensor

TEMPLATE = """\
{%- if tools %}<|im_start|>system
Tools:{% for tool in tools %} {{ tool.function.name }}{% endfor %}<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content or "" }}
{%- for call in message.tool_calls or () -%}
<tool_call>{{ {"name": call.function.name, "arguments": call.function.arguments} | tojson }}</tool_call>
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""
"""A chat template with tools. The demo model's own one has none."""


def model_with_tools(folder: Path) -> str:
    """Make `folder` the demo model, with a chat template that takes tools."""
    for path in MODEL_DIR.iterdir():
        (folder / path.name).symlink_to(path)
    template = folder / "chat_template.jinja"
    template.unlink()
    template.write_text(TEMPLATE)
    return str(folder)


STOPS_AFTER = 24
"""Tokens of the long answer."""


class Gate:
    """Stops the model within its long answer, until the client has left. Then nothing depends on how fast the
    model is. It is a lock of a file, because a model can run in another process."""

    def __init__(self) -> None:
        self._file = NamedTemporaryFile()  # noqa: SIM115
        self.path = self._file.name
        self.is_closed = False

    def close(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.is_closed = True

    def open(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self.is_closed = False


def wait_for(gate: str) -> None:
    """Returns once the gate with this path is open."""
    with open(gate, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)


GATE = Gate()


class ScriptedModel:
    """Forces the tokens of the reply that belongs to the prompt."""

    kind = "mask"

    @classmethod
    def prepare(cls, context: Context, gate: str) -> str:
        """`gate`: where the model waits within its long answer."""
        return gate

    def __init__(self, context: Context, shared: str) -> None:
        self._context, self._gate = context, shared
        self._reply: list[int] | None = None
        self._is_long = False

    def __call__(self, input_ids: TokenIds, logits: "Tensor") -> None:
        num_prompt = input_ids.num_prompt_tokens
        if self._reply is None:
            self._reply = self._tokens(self._context.tokenizer.decode(input_ids[:num_prompt]))
        at = len(input_ids) - num_prompt
        if self._is_long and at == STOPS_AFTER:
            wait_for(self._gate)
        kept = self._reply[at]
        value = logits[kept].clone()
        logits.fill_(float("-inf"))
        logits[kept] = value

    def _tokens(self, prompt: str) -> list[int]:
        turn = reply_to(prompt)
        self._is_long = turn.text == LONG
        ids = self._context.tokenizer.encode(turn.raw, add_special_tokens=False)
        return [*ids, self._context.eos_token_ids[0]]


def chat_frames(body: JSONObject) -> Iterator[Any]:
    """The stream of an upstream that runs the model behind parsers of its own (`FakeUpstream.script`)."""
    turn = reply_to(_text(body["messages"]))
    yield _chunk({"role": "assistant", "content": ""})
    for piece in _pieces(turn.reasoning):
        yield _chunk({"reasoning_content": piece})
    yield from _held([_chunk({"content": piece}) for piece in _pieces(turn.text)], turn.text)
    for index, (name, arguments) in enumerate(turn.calls):
        call = {"index": index, "id": f"theirs-{index}", "type": "function"}
        yield _chunk({"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]})
        for piece in _pieces(orjson.dumps(arguments).decode()):
            yield _chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": turn.reason}]}
    yield {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16}}
    yield b"data: [DONE]\n\n"


def _chunk(delta: JSONObject) -> JSONObject:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def messages_frames(body: JSONObject) -> Iterator[Any]:
    """The same by an upstream that speaks the Messages API."""
    turn = reply_to(_text(body["messages"]))
    blocks = [("thinking", turn.reasoning, {}), ("text", turn.text, {})]
    blocks += [("tool_use", orjson.dumps(given).decode(), {"name": name}) for name, given in turn.calls]
    yield events.begin()
    for index, (kind, text, fields) in enumerate(block for block in blocks if block[1]):
        yield events.start(index, kind, **fields)
        yield from _held([events.piece(index, kind, piece) for piece in _pieces(text)], text)
        yield events.stop(index)
    yield events.end("tool_use" if turn.calls else "end_turn")
    yield events.STOP


def _held(frames: list[Any], text: str) -> list[Any]:
    """The frames of a text. Of the long answer, a client that is about to leave gets the beginning alone."""
    return [*frames[:3], "hang"] if text == LONG and GATE.is_closed else frames


def _pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _text(messages: Any) -> str:
    """All texts of messages, in order."""
    if isinstance(messages, str):
        return messages
    if isinstance(messages, list):
        return "\n".join(map(_text, messages))
    return _text(messages.get("content") or messages.get("text") or "")
