"""The rules of a policy and a key for each request, beside the hooks."""

from dataclasses import replace

from engine.protocol import GenerationRequest, RequestError
from engine.protocol.fields.names import LENGTH_LIMITS
from engine.protocol.processor_specs import NamedProcessorSpec
from engine.sampling.logits_processors.names import OTHER_FIELDS, PARAMETER_FIELDS
from proxy.deployment.deployment import Route


def under_policy(route: Route, request: GenerationRequest) -> GenerationRequest:
    """The request within the limits of its key and its policy, with the policy's logits processors. Raises
    `RequestError` for a request that asks for what it may not have."""
    allowed = route.policy.settings.allowed_logits_processors
    if allowed is not None:
        _check_processors(request, allowed)
    added = route.policy.logits_processors
    if not route.limited and not added:
        return request
    limits = (subject.limits.max_tokens for subject in route.limited)
    limit = min((one for one in limits if one is not None), default=None)
    sampling = request.sampling
    if limit is not None:
        wanted = limit if sampling.max_tokens is None else sampling.max_tokens
        # An endpoint's default gives way to the limit.
        name = next((name for name in LENGTH_LIMITS if name in request.given), None)
        if wanted > limit and name is not None:
            raise RequestError(f"{name} must be at most {limit} here.", param=name)
        sampling = replace(sampling, max_tokens=min(wanted, limit))
    return replace(
        request, sampling=replace(sampling, logits_processors=(*sampling.logits_processors, *added))
    )


def _check_processors(request: GenerationRequest, allowed: list[str]) -> None:
    for i, spec in enumerate(request.sampling.logits_processors):
        if not isinstance(spec, NamedProcessorSpec) or spec.name not in allowed:
            told = "this logits processor is not one that a request may name"
            raise RequestError(f"logits_processors[{i}].name: {told}.", param=f"logits_processors[{i}].name")
    # These fields may choose a processor by its parameters alone.
    for field in (*OTHER_FIELDS, *PARAMETER_FIELDS):
        if request.extra.get(field):
            raise RequestError(f"{field}: name logits processors in logits_processors.", param=field)
