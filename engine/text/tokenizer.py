"""A model's tokenizer and chat template. It is read-only, and several threads may use it at once.

It calls the fast tokenizer inside transformers' tokenizer, which keeps no state between calls.
"""

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from tokenizers import Tokenizer as FastTokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engine.config import EngineConfig
from engine.prompt_size import check_prompt_length
from engine.protocol import GenerationRequest, RequestError

TEMPLATE_ERRORS = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, RecursionError)
"""Errors that a template raises itself, or that come from a message of an unexpected form."""


class LocalTokenizer:
    """Implements `protocol.Tokenizer` for every tokenizer that has a fast form."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.is_fast:
            kind = type(tokenizer).__name__
            raise ValueError(f"{kind} has no fast form (tokenizer.json), which is needed.")
        self.fast: FastTokenizer = tokenizer.backend_tokenizer
        self.fast.no_truncation()
        self.fast.no_padding()
        self.eos_token_id: int | None = tokenizer.eos_token_id
        added = self.fast.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        """Ids of tokens that stand for no text."""
        self._tokenizer = tokenizer
        self._to_raw = _RawReader(self.fast)
        self._raw: dict[int, bytes] = {}
        self._takes_parts = self._probe_parts()
        self._takes_tools = self._probe_tools()
        self._max_token_bytes = _longest_token(self.fast, self._to_raw)
        self.max_tokens: int | None = None
        """The most tokens that the model takes. The engine sets it; None: `encode` takes any text."""

    @classmethod
    def load(cls, model: str, *, trust_remote_code: bool = False) -> "LocalTokenizer":
        return cls(AutoTokenizer.from_pretrained(model, trust_remote_code=trust_remote_code))

    @property
    def max_prompt_bytes(self) -> int | None:
        """A longer text has more than `max_tokens`."""
        return None if self.max_tokens is None else self.max_tokens * self._max_token_bytes

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
            check_prompt_length(text, self.max_prompt_bytes, param)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError("The text is not valid Unicode.", param=param) from error
        (encoded,) = self.fast.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoded.ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str
        (text,) = self.fast.decode_batch([list(ids)], skip_special_tokens=False)
        return text

    def raw(self, token_id: int) -> bytes:
        """The token's bytes in the vocabulary. Empty if no token has this id."""
        if token_id not in self._raw:
            self._raw[token_id] = self._to_raw(token_id)
        return self._raw[token_id]

    def encode_chat(
        self, request: GenerationRequest, *, add_special_tokens: bool = False, is_truncated: bool = False
    ) -> list[int]:
        """The prompt of a request with messages, with its tools. Other parameters are as in `encode`. Raises
        `RequestError`."""
        template_kwargs = request.extra.get("chat_template_kwargs")
        if not isinstance(template_kwargs, Mapping | None):
            raise RequestError("chat_template_kwargs must be an object.", param="chat_template_kwargs")
        tools = request.tools if request.uses_tools else ()
        text = self._chat_text(request.messages, template_kwargs, tools, **_ending(request))
        return self.encode(
            text, add_special_tokens=add_special_tokens, param="messages", is_truncated=is_truncated
        )

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        template_kwargs: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[int]:
        """The messages as a prompt, which ends where the next assistant message begins. Raises
        `RequestError`."""
        text = self._chat_text(messages, template_kwargs, tools)
        return self.encode(text, add_special_tokens=False, param="messages")

    def _chat_text(
        self,
        messages: Sequence[Mapping[str, Any]],
        template_kwargs: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> str:
        """With `continue_final_message`, the prompt ends within the last message, at the end of its text."""
        if not self._tokenizer.chat_template:
            raise RequestError(
                "This model has no chat template; use the completions endpoint.", param="messages"
            )
        reserved = set(inspect.signature(self._tokenizer.apply_chat_template).parameters)
        if taken := reserved.intersection(template_kwargs or ()):
            raise RequestError(
                f"{', '.join(sorted(taken))} cannot be set by a request.", param="chat_template_kwargs"
            )
        if tools and not self._takes_tools:
            raise RequestError("This model's chat template takes no tools.", param="tools")
        plain = [self._plain(message) for message in messages]
        try:
            return self._render(
                plain,
                tools=list(tools) or None,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                **(template_kwargs or {}),
            )
        except TEMPLATE_ERRORS as error:
            reason = f": {error}" if isinstance(error, jinja2.TemplateError) else "."
            raise RequestError(
                f"The model's chat template refuses these messages{reason}", param="messages"
            ) from error

    def _render(self, messages: list[dict[str, Any]], **kwargs: Any) -> str:
        options = {"add_generation_prompt": True, "tokenize": False, **kwargs}
        text = self._tokenizer.apply_chat_template(messages, **options)
        assert isinstance(text, str)
        return text

    def _plain(self, message: Mapping[str, Any]) -> dict[str, Any]:
        # A list of text parts becomes one text, unless the template takes parts.
        content = message.get("content")
        if message.get("tool_calls"):
            calls = [_with_object_arguments(call) for call in message["tool_calls"]]
            message = {**message, "content": content or "", "tool_calls": calls}
        if not isinstance(content, list | tuple):
            return dict(message)
        texts = [
            part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text"
        ]
        if len(texts) < len(content) or not all(isinstance(text, str) for text in texts):
            kinds = ", ".join(sorted({_kind(part) for part in content} - {"text"})) or "This"
            raise RequestError(
                f"{kinds} content is not supported by this engine. It takes text only.", param="messages"
            )
        parts = [dict(part) for part in content]
        return {**message, "content": parts if self._takes_parts else "\n".join(map(str, texts))}

    def _probe_parts(self) -> bool:
        # A template that does not know parts writes their Python form, without an error.
        probe = "probe"
        try:
            of_text = self._render([{"role": "user", "content": probe}])
            return of_text == self._render([{"role": "user", "content": [{"type": "text", "text": probe}]}])
        except TEMPLATE_ERRORS:
            return False

    def _probe_tools(self) -> bool:
        # A template that does not know tools ignores them.
        message = {"role": "user", "content": "probe"}
        parameters = {"type": "object", "properties": {}}
        function = {"name": "probe", "description": "probe", "parameters": parameters}
        tools = [{"type": "function", "function": function}]
        try:
            return self._render([message]) != self._render([message], tools=tools)
        except TEMPLATE_ERRORS:
            return False


def _kind(part: Any) -> str:
    """The name of a part's type, if it is one that the API knows."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    known = ("text", "image_url", "input_audio", "file", "video_url", "audio_url", "refusal")
    return kind if kind in known else "other"


def _ending(request: GenerationRequest) -> dict[str, bool]:
    """The fields that say how the prompt ends. Raises `RequestError` if they contradict each other."""
    extra = request.extra
    goes_on, adds = extra.get("continue_final_message"), extra.get("add_generation_prompt")
    for name, value in (("continue_final_message", goes_on), ("add_generation_prompt", adds)):
        if value is not None and not isinstance(value, bool):
            raise RequestError(f"{name} must be true or false.", param=name)
    if goes_on and adds:
        raise RequestError(
            "continue_final_message and add_generation_prompt cannot both be true.",
            param="continue_final_message",
        )
    return {
        "add_generation_prompt": not goes_on if adds is None else adds,
        "continue_final_message": bool(goes_on),
    }


def _with_object_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    """The call, its arguments as an object for templates. In the API they are JSON text."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        return dict(call)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise RequestError("A tool call's arguments are not valid JSON.", param="messages") from error
    return {**call, "function": {**function, "arguments": arguments}}


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


_SHRINKS = 4
"""A normalizer can make one byte of this many: a mathematical letter becomes a plain one."""


def _longest_token(fast: FastTokenizer, to_raw: "_RawReader") -> int:
    """The most bytes of a text that one token can stand for."""
    longest = max((len(to_raw(token_id)) for token_id in fast.get_vocab().values()), default=1)
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
        if token is None:
            return b""
        if token_id in self._added:
            return self._added[token_id].encode()
        if self._is_byte_level and all(c in BYTE_OF_CHARACTER for c in token):
            return bytes(BYTE_OF_CHARACTER[c] for c in token)
        if self._has_byte_tokens and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes([int(token[3:5], 16)])
        return token.replace("▁", " ").removeprefix("##").encode()


def _byte_characters() -> dict[str, int]:
    # GPT-2's table: printable bytes stand for themselves, others for the characters from 256 on, in order.
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


BYTE_OF_CHARACTER = _byte_characters()
"""The byte that each character of a byte-level token stands for."""
