"""The tokenizer of an engine, as the service and guard models see it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from engine.protocol.request import GenerationRequest


class TextTokens(NamedTuple):
    """The tokens of a text in which no token is special."""

    ids: list[int]
    ends: list[int]
    """For each token, the characters of the text that are whole at its end. Never decreases."""
    words: list[int]
    """For each token, the number of its word: the part of the text that the tokenizer reads by itself."""


class Tokenizer(Protocol):
    """The part of a tokenizer that the service and guard models use."""

    @property
    def chat_template(self) -> str:
        """The text of the model's chat template. Empty if it has none."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...
    def encode_chat(self, request: GenerationRequest, *, add_special_tokens: bool = False) -> list[int]:
        """The ids of the prompt that the request's messages and tools make."""

    def encode_text(self, text: str) -> TextTokens:
        """The tokens of an untrusted text: the name of a special token in it is plain text. Raises
        `ValueError` if the tokenizer reads such a name as the special token."""

    def chat_text(self, request: GenerationRequest) -> str:
        """The prompt that the request's messages and tools make, as text. Raises `RequestError`."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, with special tokens."""

    def raw(self, token_id: int) -> bytes:
        """The token's bytes in the vocabulary (`Token.raw`)."""

    def string(self, token_id: int) -> str:
        """The token's entry in the vocabulary, such as `Ġsky`. Empty if no token has this id."""
