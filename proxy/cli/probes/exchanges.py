"""Labelled exchanges as a model reads them. `proxy.cli.labelled.exchange` describes the files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.protocol import RequestError
from engine.text.tokenizer import LocalTokenizer
from proxy.cli.labelled.datasets import load
from proxy.cli.labelled.exchange import Exchange

Half = Literal["reply", "prompt"]
"""The half of an exchange that a probe reads."""


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A reply or a prompt as the served model has it in its context."""

    token_ids: tuple[int, ...]
    """The prompt, and the reply after it if that is read."""
    first: int
    """The first token that a probe reads. It reads all of a prompt, the chat template's tokens included."""
    is_unsafe: bool
    """Whether a probe should find the text."""


def read_texts(path: Path, half: Half, tokenizer: LocalTokenizer, max_model_len: int) -> list[LabelledText]:
    """The replies or prompts of a file whose labels are known. Raises `OSError` for a file that cannot be
    read. Raises `ValueError`, with the exchange's place, for one that cannot be used or that the model has no
    room for."""
    found = []
    for exchange in load(path):
        is_unsafe = exchange.is_unsafe if half == "reply" else exchange.is_prompt_unsafe
        if is_unsafe is None:
            continue
        try:
            prompt = tuple(tokenizer.encode_chat(exchange.stream.request))
            reply = _reply(exchange, tokenizer) if half == "reply" else ()
        except (ValueError, RequestError) as error:
            raise ValueError(f"{exchange.name}: {error}") from error
        token_ids = prompt + reply
        if len(token_ids) > max_model_len:
            raise ValueError(f"{exchange.name}: {len(token_ids)} tokens; the model takes {max_model_len}")
        found.append(LabelledText(token_ids, len(prompt) if reply else 0, is_unsafe))
    if not found:
        raise ValueError(f"{path} has no {half} with a label")
    return found


def _reply(exchange: Exchange, tokenizer: LocalTokenizer) -> tuple[int, ...]:
    deltas = (timed.delta for timed in exchange.stream.deltas)
    text = "".join(delta.text for delta in deltas if delta.channel == "content")
    if not text:
        raise ValueError("the reply is empty")
    return tuple(tokenizer.encode_text(text).ids)
