"""The logits processors of a server, and those that a request gets (contract 7.3, 7.4).

Processors run in the order registered, masks before shapers. The order in a request has no effect.

A request names processors in `SamplingParams.logits_processors`. Clients of vLLM and SGLang name them in
`vllm_xargs` or `custom_params` instead: an object whose keys are processors' names and whose values are
objects of parameters, or an object of parameters that exactly one processor has. vLLM's field
`thinking_token_budget` is the parameter of one processor by another name.

vLLM's fields `allowed_token_ids` and `bad_words` need no registered processor: every server has these two.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from engine.protocol import GenerationRequest, LogitsProcessorError, RequestError, SamplingParams
from engine.protocol.options import LogitsProcessorConfig
from engine.protocol.processor_specs import (
    ForcedTokenSequenceSpec,
    LogitsProcessorSpec,
    NamedProcessorSpec,
    PolicyProcessorSpec,
    PythonProcessorSpec,
    Stage,
)
from engine.sampling.logits_processors.api import Context, TokenIds
from engine.sampling.logits_processors.builtin.bad_words import BadWords
from engine.sampling.logits_processors.builtin.forced_sequence import ForcedSequence
from engine.sampling.logits_processors.builtin.token_lists import AllowedTokens
from engine.sampling.logits_processors.load import (
    ParamsError,
    ProcessorLoadError,
    RegisteredProcessor,
    find_processors,
    form_of,
    kind_of,
    register,
)
from engine.sampling.logits_processors.names import OTHER_FIELDS, PARAMETER_FIELDS
from engine.sampling.logits_processors.started import ProcessorEntry, StartedProcessor, log_failure

FIELD = "logits_processors"
LIMITS: dict[str, tuple[type, str]] = {
    "allowed_token_ids": (AllowedTokens, "token_ids"),
    "bad_words": (BadWords, "bad_words"),
}
"""vLLM's fields that say which tokens may come: the processor that honours each, and its parameter."""
AFTER_ALL = 1_000_000
"""The rank of a processor without a place among the registered ones."""


class RequestedProcessor(NamedTuple):
    """A processor that a request asks for, and the fields that ask for it. Errors name the fields."""

    spec: LogitsProcessorSpec
    name_at: str
    params_at: str
    known: str = ""
    """The part of a parameter's place that `params_at` stands for."""


@dataclass(frozen=True, slots=True)
class SequenceProcessor:
    name: str
    rank: int
    start: Callable[[TokenIds], StartedProcessor]
    """Starts it for the sequence that has these tokens. Raises `LogitsProcessorError`."""


@contextmanager
def _failing_as(name: str) -> Iterator[None]:
    """Around a processor's own code: any exception becomes a `LogitsProcessorError`."""
    try:
        yield
    except (ParamsError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a panic in Rust is not an `Exception`
        log_failure(name, "could not be made", error)
        raise LogitsProcessorError(name) from error


SamplingChange = Callable[[SamplingParams], SamplingParams]
"""All that a processor of the sampling form does to a request."""


class ProcessorRegistry:
    """Built at start. `realize` touches nothing shared."""

    def __init__(
        self,
        context: Context,
        configs: Iterable[LogitsProcessorConfig] = (),
        always: Iterable[LogitsProcessorSpec] = (),
        stage: Stage = Stage.AGGREGATED,
    ) -> None:
        """`always`: processors for every request, in addition to the mandatory ones. Raises
        `ProcessorLoadError`."""
        classes = enumerate(find_processors(configs))
        self._registered = {c.name: register(c, cls, rank, context) for rank, (c, cls) in classes}
        self._stage = stage
        self._forced = _register_own(ForcedTokenSequenceSpec.kind, ForcedSequence, context)
        self._limits = {field: _register_own(field, cls, context) for field, (cls, _) in LIMITS.items()}
        self._named = {
            name: r
            for name, r in self._registered.items()
            if not (r.config.mandatory or r.config.policy_only)
        }
        mandatory = [r.config for r in self._registered.values() if r.config.mandatory]
        specs = [*(NamedProcessorSpec(c.name, c.params) for c in mandatory), *always]
        self._always = self._realize(RequestedProcessor(spec, FIELD, FIELD) for spec in specs)

    def realize(self, request: GenerationRequest) -> tuple[GenerationRequest, list[SequenceProcessor]]:
        """The request with its sampling changed by processors, and its other processors in running order.
        Raises `RequestError`, which names the field, and `LogitsProcessorError`."""
        requested = [*self._from_specs(request.sampling.logits_processors), *self._from_extra(request.extra)]
        self._check_names(requested)
        sampling, processors = request.sampling, self._realize_limits(request.extra)
        for one in [*self._always, *self._realize(requested)]:
            if isinstance(one, SequenceProcessor):
                processors.append(one)
            else:
                sampling = one(sampling)
        return replace(request, sampling=sampling), sorted(processors, key=attrgetter("rank"))

    def check(self, specs: Iterable[NamedProcessorSpec]) -> None:
        """Make sure that every request can get these. Raises `ProcessorLoadError`."""
        for spec in specs:
            if spec.name not in self._registered:
                raise ProcessorLoadError(f"unknown logits processor {spec.name!r}")
            self._registered[spec.name].try_params(spec.params)

    def _realize_limits(self, extra: Mapping[str, Any]) -> list[SequenceProcessor]:
        made: list[SequenceProcessor] = []
        for field, (_, param) in LIMITS.items():
            # vLLM takes no words for no limit, but refuses an empty list of tokens.
            if (given := extra.get(field)) is not None and (given != [] or field != "bad_words"):
                limit = _with_params(self._limits[field], {param: given}, field, f".{param}")
                assert isinstance(limit, SequenceProcessor)
                made.append(limit)
        return made

    def _from_specs(self, specs: Iterable[LogitsProcessorSpec]) -> Iterator[RequestedProcessor]:
        for i, spec in enumerate(specs):
            yield RequestedProcessor(spec, f"{FIELD}[{i}].name", f"{FIELD}[{i}].params")

    def _from_extra(self, extra: Mapping[str, Any]) -> Iterator[RequestedProcessor]:
        for field in OTHER_FIELDS:
            if not (given := extra.get(field)):
                continue
            if not isinstance(given, Mapping):
                raise RequestError(f"{field} must be an object.", param=field)
            if all(name in self._named and isinstance(params, Mapping) for name, params in given.items()):
                for name, params in given.items():
                    at = f"{field}.{name}"
                    yield RequestedProcessor(NamedProcessorSpec(name, params), at, at)
            else:
                spec = NamedProcessorSpec(self._only_taker(given, field), given)
                yield RequestedProcessor(spec, field, field)
        for field, param in PARAMETER_FIELDS.items():
            if (value := extra.get(field)) not in (None, -1):
                params = {param: value}
                spec = NamedProcessorSpec(self._only_taker(params, field), params)
                yield RequestedProcessor(spec, field, field, f".{param}")

    def _only_taker(self, params: Mapping[str, Any], field: str) -> str:
        """The name of the only processor that has parameters of these names. Raises `RequestError`."""
        takers = [name for name, r in self._named.items() if not r.unknown(params)]
        if len(takers) == 1:
            return takers[0]
        if takers:
            reason = f"more than one logits processor takes this: {', '.join(takers)}; use {FIELD}"
        else:
            reason = "no logits processor that a request may name takes this"
        raise RequestError(f"{field}: {reason}.", param=field)

    def _check_names(self, requested: Sequence[RequestedProcessor]) -> None:
        seen: set[str] = set()
        of_policy = {one.spec.name for one in requested if isinstance(one.spec, PolicyProcessorSpec)}
        for spec, at, *_ in requested:
            if not isinstance(spec, NamedProcessorSpec) or isinstance(spec, PolicyProcessorSpec):
                continue
            if spec.name in of_policy:
                raise RequestError(f"{at}: {spec.name!r} runs for every request.", param=at)
            if not self._named:
                raise RequestError(
                    f"{FIELD}: this server has no logits processors that a request may name.", param=FIELD
                )
            if spec.name not in self._named:
                names = ", ".join(self._named)
                raise RequestError(
                    f"{at}: unknown logits processor {spec.name!r}; known ones are {names}.", param=at
                )
            if spec.name in seen:
                raise RequestError(f"{at}: {spec.name!r} is named twice.", param=at)
            seen.add(spec.name)

    def _realize(self, requested: Iterable[RequestedProcessor]) -> list[SequenceProcessor | SamplingChange]:
        return [self._realize_one(one, i) for i, one in enumerate(requested) if one.spec.runs_in(self._stage)]

    def _realize_one(self, requested: RequestedProcessor, place: int) -> SequenceProcessor | SamplingChange:
        rank = AFTER_ALL + 1 + place
        match requested.spec:
            case NamedProcessorSpec(name=name, params=params):
                return _with_params(self._registered[name], params, requested.params_at, requested.known)
            case ForcedTokenSequenceSpec(token_ids=token_ids, eos_token_id=eos):
                params = {"token_ids": token_ids, "eos_token_id": eos}
                return _with_params(self._forced, params, requested.params_at)
            case PythonProcessorSpec(factory=factory):
                start = _failing_as("python")(lambda _: _started(factory(), rank))
                return SequenceProcessor("python", rank, start)
            case spec:
                raise RequestError(f"{FIELD}: this engine does not know {type(spec).__name__}.", param=FIELD)


def _register_own(name: str, cls: type, context: Context) -> RegisteredProcessor:
    """A processor that every server has."""
    registered = register(LogitsProcessorConfig(name, name), cls, AFTER_ALL, context)
    if name not in LIMITS:
        return registered
    return replace(registered, entry=replace(registered.entry, field=name, is_callers=True))


def _with_params(
    registered: RegisteredProcessor, params: Mapping[str, Any], at: str, known: str = ""
) -> SequenceProcessor | SamplingChange:
    """`known`: as in `RequestedProcessor`.

    Raises `RequestError` for parameters that it does not take, `LogitsProcessorError` if it fails."""
    failing = _failing_as(registered.config.name)
    try:
        valid = failing(registered.validate)(params)
    except ParamsError as error:
        place = at + error.at.removeprefix(known)
        raise RequestError(f"{place}: {error}.", param=place) from error
    if registered.sampling is not None:
        return failing(partial(registered.sampling, valid))
    start = failing(partial(registered.start, valid))
    return SequenceProcessor(registered.config.name, registered.entry.rank, start)


def _started(instance: Any, rank: int) -> StartedProcessor:
    """Raises `ProcessorLoadError` if the instance does not have the row form."""
    cls = type(instance)
    if form_of(cls) != "row":
        raise ProcessorLoadError(f"{cls.__name__} does not have the form that is called with one row")
    return StartedProcessor(ProcessorEntry(cls.__name__, kind_of(cls), rank), call=instance)
