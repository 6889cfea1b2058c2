"""A model's tokenizer. It is read-only, and several threads may use it at once.

It calls the fast tokenizer, which keeps no state between calls.
"""

from collections.abc import Sequence

from tokenizers import Tokenizer as FastTokenizer

from engine.protocol import GenerationRequest, Prompt, RequestError, TextTokens
from engine.protocol.options import EngineConfig
from engine.protocol.prompt_size import check_num_bytes
from engine.protocol.system_messages import SystemMessages
from engine.sources.files import tokenizer_of
from engine.sources.model_tokenizer import ModelTokenizer
from engine.text.chat_template import ChatTemplate
from engine.text.detokenizer import WholeTexts
from engine.text.infill import Infill
from engine.text.plain_text import PlainText


class LocalTokenizer:
    """Implements `protocol.Tokenizer` for every tokenizer that has a fast form."""

    def __init__(self, tokenizer: ModelTokenizer, *, system_messages: SystemMessages = "auto") -> None:
        self.fast = tokenizer.fast
        self.eos_token_id = tokenizer.eos_token_id
        added = self.fast.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        """Ids of tokens that stand for no text."""
        self._chat = ChatTemplate(tokenizer, system_messages)
        self._plain: PlainText | None = None
        self.infill = Infill.of(self.fast)
        """None: the model cannot be asked for a text between two texts."""
        self._to_raw = _RawReader(self.fast)
        self._raw: dict[int, bytes] = {}
        self.whole_texts = WholeTexts(self.fast)
        self._max_token_bytes = _longest_token(self.fast, self._to_raw)
        self.max_tokens: int | None = None
        """The most tokens that the model takes. The engine sets it; None: `encode` takes any text."""

    @classmethod
    def load(
        cls, model: str, *, trust_remote_code: bool = False, system_messages: SystemMessages = "auto"
    ) -> "LocalTokenizer":
        made = tokenizer_of(model, trust_remote_code=trust_remote_code)
        return cls(made, system_messages=system_messages)

    @classmethod
    def of(cls, config: EngineConfig, name: str | None = None) -> "LocalTokenizer":
        """The tokenizer of a model of this process. `name`: None: the one that the configuration names."""
        return cls.load(
            name or config.tokenizer_name,
            trust_remote_code=config.trust_remote_code,
            system_messages=config.system_messages,
        )

    @property
    def max_prompt_bytes(self) -> int | None:
        """A longer text has more than `max_tokens`."""
        return None if self.max_tokens is None else self.max_tokens * self._max_token_bytes

    @property
    def chat_template(self) -> str:
        return self._chat.text

    @property
    def template_hints(self) -> frozenset[str]:
        """The fields of requests that the chat template reads, though most templates do not."""
        return self._chat.hints

    def encode(
        self, text: str, *, add_special_tokens: bool = True, param: str = "prompt", is_truncated: bool = False
    ) -> list[int]:
        """The text's ids. Other threads run meanwhile: a batch, unlike `fast.encode`, releases the
        interpreter's lock.

        `is_truncated`: the caller wants the last `max_tokens` at most, so the beginning of a longer text is
        not read. Raises `RequestError`, which names the field `param`, for a lone surrogate, which is not a
        character, and for a text longer than `max_prompt_bytes` that is not truncated.
        """
        if is_truncated:
            text = text[-(self.max_prompt_bytes or len(text)) :]
        else:
            check_num_bytes(text, self.max_prompt_bytes, self.max_tokens, param)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError("The text is not valid Unicode.", param=param) from error
        (encoded,) = self.fast.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoded.ids
        return ids

    def encode_infill(self, prefix: Prompt, suffix: str, *, add_special_tokens: bool = True) -> list[int]:
        """The prompt that asks for the text between `prefix` and `suffix`. Raises `RequestError`, which names
        the field `suffix` if the model cannot be asked for one."""
        if self.infill is None:
            raise RequestError(
                "suffix: this model has no tokens for a text between two texts (fill in the middle).",
                param="suffix",
            )
        first = self.encode("") if add_special_tokens else []
        before = self.encode(prefix, add_special_tokens=False) if isinstance(prefix, str) else [*prefix]
        return first + self.infill.prompt(before, self._encode_after(suffix))

    def _encode_after(self, suffix: str) -> list[int]:
        """The ids of a text that other text comes before. Some tokenizers begin each text with a space."""
        ids = self.encode(suffix, add_special_tokens=False, param="suffix")
        if not ids or suffix.startswith(" ") or not self.raw(ids[0]).startswith(b" "):
            return ids
        mark = self.encode(_MARK, add_special_tokens=False)
        marked = self.encode(_MARK + suffix, add_special_tokens=False, param="suffix")
        return marked[len(mark) :] if marked[: len(mark)] == mark else ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str
        (text,) = self.fast.decode_batch([list(ids)], skip_special_tokens=False)
        return text

    def raw(self, token_id: int) -> bytes:
        """The token's bytes in the vocabulary. Empty if no token has this id."""
        if token_id not in self._raw:
            self._raw[token_id] = self._to_raw(token_id)
        return self._raw[token_id]

    def string(self, token_id: int) -> str:
        return self.fast.id_to_token(token_id) or ""

    def encode_chat(
        self, request: GenerationRequest, *, add_special_tokens: bool = False, is_truncated: bool = False
    ) -> list[int]:
        """The prompt of a request with messages, with its tools. Other parameters are as in `encode`. Raises
        `RequestError`."""
        return self.encode(
            self.chat_text(request),
            add_special_tokens=add_special_tokens,
            param="messages",
            is_truncated=is_truncated,
        )

    def chat_text(self, request: GenerationRequest) -> str:
        """The prompt of a request with messages, with its tools, as text. Raises `RequestError`."""
        return self._chat.prompt_of(request)

    def encode_text(self, text: str) -> TextTokens:
        """The tokens of a text in which the name of a special token is plain text. Raises `ValueError` if a
        special token comes of it all the same."""
        if self._plain is None:  # a second tokenizer, which only guard models need
            self._plain = PlainText(self.fast)
        return self._plain.tokens(text)


def check_draft_tokenizer(tokenizer: LocalTokenizer, config: EngineConfig) -> None:
    """Raise `ValueError` if the draft model's tokens have other ids than the model's."""
    if config.speculative_model is None:
        return
    own = LocalTokenizer.load(config.speculative_model, trust_remote_code=config.trust_remote_code)
    if own.fast.get_vocab() != tokenizer.fast.get_vocab():
        raise ValueError(
            f"speculative_model: the tokenizer of {config.speculative_model} has another vocabulary than the"
            f" tokenizer of {config.model}. The draft model must guess tokens of the same vocabulary."
        )


_MARK = "\u263a"
"""A character that tokenizers do not join with the text after it."""
_SHRINKS = 4
"""A normalizer can make one byte of this many: a mathematical letter becomes a plain one."""


def _longest_token(fast: FastTokenizer, to_raw: "_RawReader") -> int:
    """The most bytes of a text that one token can stand for."""
    longest = max((len(to_raw.of(token, i)) for token, i in fast.get_vocab().items()), default=1)
    return max(1, longest) * (1 if fast.normalizer is None else _SHRINKS)


class _RawReader:
    """Reads a token's bytes: from byte-level BPE, or from SentencePiece's metaspace and byte tokens."""

    def __init__(self, fast: FastTokenizer) -> None:
        decoder = fast.decoder.__getstate__() if fast.decoder is not None else b""
        self._fast = fast
        self._is_byte_level = b'"ByteLevel"' in decoder
        self._has_byte_tokens = b'"ByteFallback"' in decoder
        self._added = {i: token.content for i, token in fast.get_added_tokens_decoder().items()}

    def __call__(self, token_id: int) -> bytes:
        token = self._fast.id_to_token(token_id)
        return b"" if token is None else self.of(token, token_id)

    def of(self, token: str, token_id: int) -> bytes:
        """The bytes of the token that the vocabulary has under this id."""
        if token_id in self._added:
            return self._added[token_id].encode()
        if self._is_byte_level and BYTE_OF_CHARACTER.keys() >= set(token):
            return bytes(map(BYTE_OF_CHARACTER.__getitem__, token))
        if self._has_byte_tokens and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes([int(token[3:5], 16)])
        return token.replace("▁", " ").removeprefix("##").encode()


def _byte_characters() -> dict[str, int]:
    # GPT-2's table: a printable byte stands for itself. The rest, in order, get the characters from 256 on.
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    unprintable = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(unprintable)}


BYTE_OF_CHARACTER = _byte_characters()
"""The byte that each character of a byte-level token stands for."""
