"""The signatures that an upstream gave to the reasoning of its earlier answers.

Some upstreams refuse a conversation with tools unless the reasoning of the last answer comes back with its
signature. A signature is text that no hook can read, so clients get none. The engine remembers it, and adds
it to reasoning that a client sends back unchanged. Other reasoning has no signature, and the upstream does
not get it.

Reasoning that an upstream hides has no text: a block of a signature alone (`display: omitted`), or of
encrypted data. A client cannot send it back, so the engine puts it back in front of the call that it led to.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from engine.protocol.call_ids import key_in

Block = dict[str, Any]
MAX_SIGNATURE = 256 * 1024
"""Characters of a signature that is remembered."""
_MAX_CHARS = 16 * 1024 * 1024
"""Characters of all signatures that are remembered."""
_THINKING = ("thinking", "redacted_thinking")


class Signatures:
    """The signatures of one upstream: by the hash of the text that each signs, and by the caller and the call
    for reasoning without text. The oldest are forgotten."""

    def __init__(self, max_chars: int = _MAX_CHARS) -> None:
        self._max_chars = max_chars
        self._num_chars = 0
        self._kept: OrderedDict[bytes, Sequence[Block]] = OrderedDict()

    def add(self, digest: bytes, signature: str) -> None:
        """`digest`: the SHA-256 of the reasoning, in UTF-8."""
        self._keep(digest, [{"signature": signature}])

    def add_hidden(self, caller: str, call_key: str, blocks: Sequence[Block]) -> None:
        """`blocks`: reasoning without text, right before the call (`engine.protocol.call_ids`)."""
        self._keep(_place(caller, call_key), blocks)

    def _keep(self, key: bytes, blocks: Sequence[Block]) -> None:
        self._num_chars += _size(blocks) - _size(self._kept.pop(key, ()))
        self._kept[key] = blocks
        while self._num_chars > self._max_chars:
            _, oldest = self._kept.popitem(last=False)
            self._num_chars -= _size(oldest)

    def blocks(self, reasoning: Any) -> list[Block]:
        """The thinking block of an assistant's turn. None for reasoning that this upstream did not sign."""
        if not isinstance(reasoning, str) or not reasoning or not (signature := self._of(reasoning)):
            return []
        return [{"type": "thinking", "thinking": reasoning, "signature": signature}]

    def hidden(self, caller: str, call_id: Any) -> list[Block]:
        """The reasoning without text that led to the caller's call. `call_id`: the client's id of it."""
        if not isinstance(call_id, str):
            return []
        return [dict(block) for block in self._kept.get(_place(caller, key_in(call_id)), ())]

    def signed(self, turns: Iterable[Mapping[str, Any]], caller: str) -> list[dict[str, Any]]:
        """Turns with blocks of their caller's, who has the signatures of another server, or none: Weir gives
        its clients none. Thinking that nobody signed is left out."""
        signed = [{**turn, "content": self._signed_content(turn["content"], caller)} for turn in turns]
        return [turn for turn in signed if turn["content"]]

    def _signed_content(self, content: Any, caller: str) -> Any:
        if not isinstance(content, list):
            return content
        blocks: list[Block] = []
        for block in self._signed_blocks(content):
            follows_thinking = bool(blocks) and blocks[-1]["type"] in _THINKING
            if block["type"] == "tool_use" and not follows_thinking:
                blocks += self.hidden(caller, block["id"])
            blocks.append(block)
        return blocks

    def _signed_blocks(self, content: Iterable[Block]) -> Iterator[Block]:
        for block in content:
            if block["type"] == "thinking":
                signature = block.get("signature") or self._of(block["thinking"])
                if signature:
                    yield {**block, "signature": signature}
            else:
                yield block

    def _of(self, reasoning: str) -> str:
        """The signature of the text. Empty if this upstream did not sign it."""
        digest = hashlib.sha256(reasoning.encode(errors="surrogatepass")).digest()
        signature: str = self._kept.get(digest, ({"signature": ""},))[0]["signature"]
        return signature


def _place(caller: str, call_key: str) -> bytes:
    return hashlib.sha256(f"{caller} {call_key}".encode(errors="surrogatepass")).digest()


def _size(blocks: Iterable[Block]) -> int:
    return sum(len(block.get("signature") or block.get("data") or "") for block in blocks)
