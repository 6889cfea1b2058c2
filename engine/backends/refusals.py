"""Refuses requests that an engine without logits of its own cannot honour (contract 7.7)."""

from engine.protocol import GenerationRequest, RequestError


def refuse_logits_processors(request: GenerationRequest) -> None:
    """Raise `RequestError` if the request names a logits processor."""
    if request.sampling.logits_processors:
        raise RequestError(
            "logits_processors: this engine has no logits of its own to process.", param="logits_processors"
        )
