"""The signatures that an upstream gave to the reasoning of its earlier answers.

Some upstreams refuse a conversation with tools unless the reasoning of the last answer comes back with its
signature. A signature is text that no hook can read, so clients get none. The engine remembers it, and adds
it to reasoning that a client sends back unchanged. Other reasoning has no signature, and the upstream does
not get it.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

MAX_SIGNATURE = 256 * 1024
"""Characters of a signature that is remembered."""
_MAX_CHARS = 16 * 1024 * 1024
"""Characters of all signatures that are remembered."""


class Signatures:
    """The signatures of one upstream, by the hash of the text that each signs. The oldest are forgotten."""

    def __init__(self, max_chars: int = _MAX_CHARS) -> None:
        self._max_chars = max_chars
        self._num_chars = 0
        self._signatures: OrderedDict[bytes, str] = OrderedDict()

    def add(self, digest: bytes, signature: str) -> None:
        """`digest`: the SHA-256 of the reasoning, in UTF-8."""
        self._num_chars += len(signature) - len(self._signatures.pop(digest, ""))
        self._signatures[digest] = signature
        while self._num_chars > self._max_chars:
            _, oldest = self._signatures.popitem(last=False)
            self._num_chars -= len(oldest)

    def blocks(self, reasoning: Any) -> list[dict[str, Any]]:
        """The thinking block of an assistant's turn. None for reasoning that this upstream did not sign."""
        if not isinstance(reasoning, str) or not reasoning or not (signature := self._of(reasoning)):
            return []
        return [{"type": "thinking", "thinking": reasoning, "signature": signature}]

    def signed(self, turns: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Turns with blocks of their caller's, who has the signatures of another server, or none: Weir gives
        its clients none. Thinking that nobody signed is left out."""
        signed = [{**turn, "content": self._signed_content(turn["content"])} for turn in turns]
        return [turn for turn in signed if turn["content"]]

    def _signed_content(self, content: Any) -> Any:
        if not isinstance(content, list):
            return content
        blocks = (
            {**block, "signature": block.get("signature") or self._of(block["thinking"])}
            if block["type"] == "thinking"
            else block
            for block in content
        )
        return [block for block in blocks if block.get("signature") != ""]

    def _of(self, reasoning: str) -> str:
        """The signature of the text. Empty if this upstream did not sign it."""
        digest = hashlib.sha256(reasoning.encode(errors="surrogatepass")).digest()
        return self._signatures.get(digest, "")
