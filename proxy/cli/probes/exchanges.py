"""Labelled exchanges as a model reads them. `proxy.cli.labelled.exchange` describes the files."""

from dataclasses import dataclass
from pathlib import Path

from engine.protocol import RequestError
from engine.text.tokenizer import LocalTokenizer
from proxy.cli.labelled.datasets import load
from proxy.cli.labelled.exchange import Exchange


@dataclass(frozen=True, slots=True)
class LabelledReply:
    """An exchange as the served model has it in its context."""

    token_ids: tuple[int, ...]
    """The prompt, and the reply after it."""
    num_prompt_tokens: int
    is_unsafe: bool
    """Whether a probe should find the reply."""


def read_replies(path: Path, tokenizer: LocalTokenizer, max_model_len: int) -> list[LabelledReply]:
    """The replies of a file whose labels are known. Raises `OSError` for a file that cannot be read. Raises
    `ValueError`, with the exchange's place, for one that cannot be used or that the model has no room for."""
    found = []
    for exchange in load(path):
        if exchange.is_unsafe is None:
            continue
        try:
            reply = _reply(exchange, exchange.is_unsafe, tokenizer)
        except (ValueError, RequestError) as error:
            raise ValueError(f"{exchange.name}: {error}") from error
        if len(reply.token_ids) > max_model_len:
            num_tokens = len(reply.token_ids)
            raise ValueError(f"{exchange.name}: {num_tokens} tokens; the model takes {max_model_len}")
        found.append(reply)
    if not found:
        raise ValueError(f"{path} has no replies with labels")
    return found


def _reply(exchange: Exchange, is_unsafe: bool, tokenizer: LocalTokenizer) -> LabelledReply:
    deltas = (timed.delta for timed in exchange.stream.deltas)
    text = "".join(delta.text for delta in deltas if delta.channel == "content")
    if not text:
        raise ValueError("the reply is empty")
    prompt = tokenizer.encode_chat(exchange.stream.request)
    return LabelledReply((*prompt, *tokenizer.encode_text(text).ids), len(prompt), is_unsafe)
