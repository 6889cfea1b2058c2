"""Requests that only upstreams can answer: embeddings, and the ranks and scores of texts.

Their texts are prompts. Hooks read and change them as those of a generation. The answer has numbers, and
perhaps the request's own texts.
"""

import binascii
import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Container, Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from engine.protocol import GenerationRequest, Prompt, RequestError
from engine.protocol.fields.names import is_known, is_neutral
from engine.protocol.fields.support import FieldSupport
from proxy.wire.body import RequestBody
from proxy.wire.openai.answer import JSONObject
from proxy.wire.openai.endpoint_fields import RequestObject, check_code, check_guards
from proxy.wire.openai.fields import TokenId

RelayedEndpoint = Literal["embeddings", "rerank", "score"]


class TextObject(RequestObject):
    """Other fields are refused: hooks would not be shown them, and the upstream would (contract 8.1)."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    text: str


Text = str | TextObject
Texts = Text | Annotated[list[Text], Field(min_length=1, fail_fast=True)]


class RelayedRequest(RequestBody, RequestObject):
    """The fields that all have. Hooks read every other field. The upstream gets what its engine relays."""

    endpoint: ClassVar[RelayedEndpoint]
    text_fields: ClassVar[tuple[str, ...]]
    """The fields that hold texts."""

    model: str | None = Field(None, description="Default: the served model")
    user: str | None = None

    def to_request(self, request_id: str, model: str, *, caller: str) -> GenerationRequest:
        """Raises `RequestError` if there is no text, and for code (contract 7.3)."""
        check_code(self._others())
        check_guards(self._others())
        prompts = tuple(text for value in self._texts().values() for text in _prompts(value))
        if not prompts:
            raise RequestError("There is no text.", param=self.text_fields[0])
        return GenerationRequest(
            request_id=request_id,
            model=model,
            endpoint=self.endpoint,
            prompts=prompts,
            user=self.user,
            caller=caller,
            extra=self._others(),
        )

    def ignored(self, support: FieldSupport) -> list[str]:
        """The names of the fields that ask for something and that the upstream does not get."""
        return [
            name
            for name, value in self._others().items()
            if name not in support.relayed and not (is_known(name) and is_neutral(name, value))
        ]

    def body(self, admitted: GenerationRequest) -> JSONObject:
        """The upstream's body: the fields, with the texts as hooks let them go on."""
        prompts = iter(admitted.prompts)
        texts = {name: _refilled(value, prompts) for name, value in self._texts().items()}
        user = {} if admitted.user is None else {"user": admitted.user}
        return {**admitted.extra, **texts, **user}

    def _texts(self) -> JSONObject:
        fields = self.model_dump(exclude_unset=True)
        return {name: fields[name] for name in self.text_fields if fields.get(name) is not None}

    def _others(self) -> JSONObject:
        known = {*self.text_fields, "model", "user"}
        fields = self.model_dump(exclude_unset=True)
        return {name: value for name, value in fields.items() if name not in known and value is not None}


class EmbeddingsRequest(RelayedRequest):
    """Texts, or lists of token ids, to make vectors of."""

    endpoint = "embeddings"
    text_fields = ("input",)

    input: (
        str
        | Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]
        | Annotated[list[str], Field(min_length=1, fail_fast=True)]
        | Annotated[list[Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]], Field(min_length=1)]
    )


class RerankRequest(RelayedRequest):
    """Documents to put in the order of how well they answer a query."""

    endpoint = "rerank"
    text_fields = ("query", "documents")

    query: Text
    documents: Annotated[list[Text], Field(min_length=1, fail_fast=True)]


class ScoreRequest(RelayedRequest):
    """Pairs of texts to score, by the names that vLLM gives them."""

    endpoint = "score"
    text_fields = ("text_1", "text_2", "queries", "documents", "items")

    text_1: Texts | None = None
    text_2: Texts | None = None
    queries: Texts | None = None
    documents: Texts | None = None
    items: Texts | None = None


def _prompts(value: Any) -> Iterator[Prompt]:
    """The texts of a field, in order. Token ids are one prompt."""
    if isinstance(value, list) and not (value and isinstance(value[0], int)):
        for one in value:
            yield from _prompts(one)
    elif isinstance(value, dict):
        yield value["text"]
    else:
        yield tuple(value) if isinstance(value, list) else value


def _refilled(value: Any, prompts: Iterator[Prompt]) -> Any:
    """The field with the next of `prompts` in the places of its texts."""
    if isinstance(value, list) and not (value and isinstance(value[0], int)):
        return [_refilled(one, prompts) for one in value]
    prompt = next(prompts)
    return {**value, "text": prompt} if isinstance(value, dict) else prompt


_FIELDS = frozenset(
    {"object", "data", "results", "index", "embedding", "created", "score", "relevance_score", "document"}
    | {"text", "usage", "prompt_tokens", "completion_tokens", "total_tokens"}
)
_KINDS = frozenset({"list", "embedding", "score"})
"""Values of `object`."""
_FLOAT = 4
"""Bytes of a float32."""


def without_unseen(answer: JSONObject, admitted: GenerationRequest) -> JSONObject:
    """The answer without text that no hook was shown (contract 5.3): its known fields, with numbers, vectors
    and the request's own texts."""
    own = {prompt for prompt in admitted.prompts if isinstance(prompt, str)}
    kept: JSONObject = _seen(answer, _KINDS | own, _encoded_vectors(answer, admitted))
    return {**kept, "model": admitted.model}


def _seen(value: Any, texts: Container[str], vectors: Container[str]) -> Any:
    if isinstance(value, list):
        return [_seen(one, texts, vectors) for one in value]
    if not isinstance(value, dict):
        return value if not isinstance(value, str) or value in texts else None
    return {
        name: one
        if name == "embedding" and isinstance(one, str) and one in vectors
        else _seen(one, texts, vectors)
        for name, one in value.items()
        if name in _FIELDS
    }


def _encoded_vectors(answer: JSONObject, admitted: GenerationRequest) -> frozenset[str]:
    """The answer's vectors in base64, if the request asks for such. Empty if a text among them is not a
    vector, or if their dimensions differ from each other or from the number that the request asks for."""
    data, asked = answer.get("data"), admitted.extra
    if admitted.endpoint != "embeddings" or asked.get("encoding_format") != "base64":
        return frozenset()
    entries = data if isinstance(data, list) else []
    found = [entry.get("embedding") for entry in entries if isinstance(entry, dict)]
    texts = frozenset(text for text in found if isinstance(text, str))
    lengths = {_num_dimensions(text) for text in texts}
    length = lengths.pop() if len(lengths) == 1 else None
    return texts if length is not None and asked.get("dimensions") in (None, length) else frozenset()


def _num_dimensions(text: str) -> int | None:
    """The dimensions of a vector of float32 in base64. None for any other text."""
    try:
        raw = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    num, rest = divmod(len(raw), _FLOAT)
    if rest or not num or b64encode(raw).decode() != text:
        return None
    return num if all(map(math.isfinite, struct.unpack(f"<{num}f", raw))) else None
