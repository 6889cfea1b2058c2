"""Token ids and texts: by the server's own tokenizer, or else by an upstream's.

The server's own tokenizer only says what the ids of a caller's own text are, and what the text of ids is. An
upstream's answer could be any text, and hooks would have to see it (contract 5.3). So with hooks, such an
answer has numbers alone.
"""

from functools import partial
from typing import TypeVar

import orjson
from pydantic import BaseModel

from engine.protocol import EngineError, GenerationRequest, RequestError, Tokenizer
from engine.protocol.fields.asked import SAMPLING_FIELDS, asked_fields, check_fields
from engine.protocol.fields.support import FieldSupport, Treatment
from engine.protocol.prompt_size import prompt_size
from proxy.http.admission import Exchange
from proxy.wire.errors import APIError
from proxy.wire.openai.answer import JSONObject
from proxy.wire.openai.tokens import Detokenized, DetokenizeRequest, TokenizeRequest, Tokens

_TEMPLATE_FIELDS = ("add_generation_prompt", "continue_final_message", "chat_template_kwargs", "tools")
_OF_TOKENIZERS = FieldSupport(
    honoured=frozenset({"add_special_tokens"}),
    honoured_in_chats=frozenset(_TEMPLATE_FIELDS),
    ignored=SAMPLING_FIELDS,
    rest=Treatment.REFUSED,
)

Answer = TypeVar("Answer", bound=BaseModel)


async def tokenized(exchange: Exchange[TokenizeRequest]) -> JSONObject:
    """The answer to `/tokenize`."""
    tokenizer, request, fields = exchange.tokenizer, exchange.request, exchange.fields
    if tokenizer is None:
        found = await _by_upstream(exchange)
    else:
        check_fields(request, _OF_TOKENIZERS)
        encode = partial(_encoded, tokenizer, request, fields)
        threads = exchange.service.prompt_threads
        found = await threads.run(encode, size=prompt_size(request), caller=request.caller)
    longest = exchange.info.max_model_len or found.max_model_len
    answer: JSONObject = {"count": len(found.tokens), "max_model_len": longest, "tokens": found.tokens}
    return {**answer, "token_strs": found.token_strs} if fields.return_token_strs else answer


async def detokenized(exchange: Exchange[DetokenizeRequest]) -> JSONObject:
    """The answer to `/detokenize`."""
    tokenizer, tokens = exchange.tokenizer, exchange.fields.tokens
    if tokenizer is None:
        return {"prompt": await _text_by_upstream(exchange)}
    vocab_size = exchange.info.vocab_size
    if vocab_size is not None and max(tokens, default=0) >= vocab_size:
        raise APIError(400, f"tokens: ids must be below {vocab_size}.", param="tokens")
    decode, threads = partial(_decoded, tokenizer, tokens), exchange.service.prompt_threads
    return {"prompt": await threads.run(decode, size=len(tokens), caller=exchange.request.caller)}


def ignored_fields(exchange: Exchange[TokenizeRequest]) -> list[str]:
    """The names of the fields of `/tokenize` that have no effect."""
    request = exchange.request
    if exchange.tokenizer is None:
        return [name for name in asked_fields(request) if name not in exchange.support.relayed]
    treatment = _OF_TOKENIZERS.treatment
    return [one for one in asked_fields(request) if treatment(one, request.endpoint) is Treatment.IGNORED]


def _encoded(tokenizer: Tokenizer, request: GenerationRequest, fields: TokenizeRequest) -> Tokens:
    adds = fields.add_special_tokens
    if fields.prompt is None:
        ids = tokenizer.encode_chat(request, add_special_tokens=bool(adds))
    else:
        ids = tokenizer.encode(fields.prompt, add_special_tokens=adds is not False)
    return Tokens(tokens=ids, token_strs=[*map(tokenizer.string, ids)] if fields.return_token_strs else None)


def _decoded(tokenizer: Tokenizer, ids: list[int]) -> str:
    try:
        return tokenizer.decode(ids)
    except OverflowError as error:
        raise RequestError("tokens: there are no such token ids.", param="tokens") from error


async def _by_upstream(exchange: Exchange[TokenizeRequest]) -> Tokens:
    if exchange.fields.return_token_strs and exchange.has_hooks():
        reason = "an upstream's texts are withheld where hooks cannot see them"
        raise RequestError(f"return_token_strs: {reason}.", param="return_token_strs")
    _, answer = await exchange.ask_upstream("/tokenize", exchange.fields.body)
    return _read(Tokens, answer)


async def _text_by_upstream(exchange: Exchange[DetokenizeRequest]) -> str:
    if exchange.has_hooks():
        reason = "an upstream's texts are withheld where hooks cannot see them (--tokenizer)"
        raise APIError(501, f"This server has no tokenizer of its own: {reason}.", "server_error")
    _, answer = await exchange.ask_upstream("/detokenize", lambda _: {"tokens": exchange.fields.tokens})
    return _read(Detokenized, answer).prompt


def _read(kind: type[Answer], answer: bytes) -> Answer:
    try:
        return kind.model_validate(orjson.loads(answer))  # orjson writes no longer numbers than it reads
    except ValueError as error:
        raise EngineError("The upstream sent an invalid response.", status=502) from error
