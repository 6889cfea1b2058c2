"""An upstream's refusal in Weir's own words, for callers who may read only text that hooks have seen.

An upstream may quote the prompt, or the model's output, in its message. So a refusal has a general message,
except for two that clients act on: an unknown model, and a prompt that does not fit. Weir's message takes
only whole numbers of tokens from the upstream's.
"""

import re
from collections.abc import Collection

from engine.protocol import RequestError
from engine.protocol.prompt_size import CONTEXT_LENGTH, CONTEXT_LENGTH_EXCEEDED, too_long

REFUSED = "The upstream engine refused the request."
_FIELD_NAME = re.compile(r"\w+")
_UNKNOWN_MODEL = re.compile(
    r"model\b.{0,200}\b(?:does not exist|not found|not served)|\Amodel: ", re.I | re.S
)
"""Matches the message of a status 404 for a model."""
_INVALID_MODEL = re.compile(r"\b(?:invalid|unknown) model\b|not a valid model\b|\bmodel_not_found\b", re.I)
"""Matches the message of a status 400 for a model: LiteLLM, OpenRouter and Mistral send no 404."""
_TOO_LONG = re.compile(
    r"maximum (?:context|model) length|context length is only|context[ _](?:length|window|size)"
    r"|prompt is too long|exceed context limit|exceeds? the (?:configured )?limit of [\d,]+ tokens"
    r"|longer than the model's context|cannot be greater than max_model_len",
    re.I,
)
"""The words of vLLM, SGLang, llama.cpp, OpenAI, and the Messages API."""
_LIMIT = re.compile(
    r"(?:context length(?: is(?: only)?)?|model length(?: of)?|max_model_len|limit of|context size(?: of)?"
    r"|maximum:?|context limit: \d[\d,+ ]{0,31}>|\d tokens >) ?[(=]?(?P<limit>\d[\d,]{0,11})",
    re.I,
)


def in_own_words(
    status: int, message: str, param: str | None, code: str | None, *, model: str, fields: Collection[str]
) -> RequestError:
    """`message`, `param` and `code`: the upstream's. `model`: the name that the caller gave. `fields`: the
    fields that were sent; no other is named."""
    if _is_unknown_model(status, message, param, code):
        message = f"The model '{model}' is not served here."
        return RequestError(message, param="model", code="model_not_found", status=404)
    field = _FIELD_NAME.match(param or "")
    known = field[0] if field and field[0] in fields else None
    if code == CONTEXT_LENGTH_EXCEEDED or (status in (400, 413) and _TOO_LONG.search(message)):
        details = "the request is longer. Please reduce the length of the prompt or of the answer."
        return too_long(_limit_in(message), details, known, status)
    return RequestError(REFUSED, param=known, status=status)


def _is_unknown_model(status: int, message: str, param: str | None, code: str | None) -> bool:
    if status == 404:
        return code == "model_not_found" or param == "model" or _UNKNOWN_MODEL.search(message) is not None
    return status == 400 and (code == "model_not_found" or _INVALID_MODEL.search(message) is not None)


def as_too_long(message: str) -> str:
    """An upstream's message about a prompt that does not fit, after the words by which clients know it."""
    if CONTEXT_LENGTH.lower() in message.lower():
        return message
    return str(too_long(_limit_in(message), f"the request is longer, as the upstream engine says: {message}"))


def _limit_in(message: str) -> int | None:
    found = _LIMIT.search(message)
    return int(found["limit"].replace(",", "")) if found else None
