"""What an engine without logits of its own cannot do (contract 7.7)."""

from engine.protocol import GenerationRequest, RequestError


def refuse_logits_processors(request: GenerationRequest) -> None:
    """Raise `RequestError` for a request that has any."""
    if request.sampling.logits_processors:
        raise RequestError(
            "logits_processors: this engine has no logits of its own to process.", param="logits_processors"
        )
