"""The logits processors of a server, and which of them a request has (contract 7.3, 7.4).

They run in the order registered, masks before shapers, whatever the order in which a request names them.

A request names them in `SamplingParams.logits_processors`; or, as vLLM's and SGLang's clients have it, in
`vllm_xargs` or `custom_params`: an object whose keys are processors' names and whose values are objects of
parameters, or an object of parameters that exactly one processor has.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

from engine.config import LogitsProcessorConfig
from engine.core.sequence import Sequence
from engine.logits_processors.api import Context
from engine.logits_processors.builtin.forced_sequence import ForcedSequence
from engine.logits_processors.failures import log_failure
from engine.logits_processors.load import (
    ParamsError,
    ProcessorLoadError,
    Registered,
    find,
    form_of,
    kind_of,
    register,
)
from engine.logits_processors.run import Entry, Started
from engine.processor_specs import (
    ForcedTokenSequenceSpec,
    LogitsProcessorSpec,
    NamedProcessorSpec,
    PythonProcessorSpec,
    Stage,
)
from engine.protocol import GenerationRequest, LogitsProcessorError, RequestError, SamplingParams

FIELD = "logits_processors"
OTHER_FIELDS = ("vllm_xargs", "custom_params")
"""In `GenerationRequest.extra`: how vLLM and SGLang spell it."""
AFTER_ALL = 1_000_000
"""The rank of what has no place among those registered."""


class Asked(NamedTuple):
    """What a request asks for, and in which fields: errors name them."""

    spec: LogitsProcessorSpec
    name_at: str
    params_at: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A processor that a request has."""

    name: str
    rank: int
    make: Callable[[Sequence], Started]

    def start(self, seq: Sequence) -> Started:
        """A fresh one. Raises `LogitsProcessorError`."""
        with _at_fault(self.name):
            return self.make(seq)


@contextmanager
def _at_fault(name: str) -> Iterator[None]:
    """Around what is a processor's own: whatever that raises becomes a `LogitsProcessorError`."""
    try:
        yield
    except (ParamsError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a panic in Rust is no `Exception`
        log_failure(name, "could not be made", error)
        raise LogitsProcessorError(name) from error


Expressed = Callable[[SamplingParams], SamplingParams]
"""What a processor is to a request, if it is no more than that."""


class ProcessorRegistry:
    """Built at start. `realize` touches nothing shared."""

    def __init__(
        self,
        context: Context,
        configs: Iterable[LogitsProcessorConfig] = (),
        always: Iterable[LogitsProcessorSpec] = (),
        stage: Stage = Stage.AGGREGATED,
    ) -> None:
        """`always`: for every request, beside the mandatory ones. Raises `ProcessorLoadError`."""
        found = enumerate(find(configs))
        self._registered = {c.name: register(c, cls, rank, context) for rank, (c, cls) in found}
        self._stage = stage
        forced = LogitsProcessorConfig(ForcedTokenSequenceSpec.kind, ForcedTokenSequenceSpec.kind)
        self._forced = register(forced, ForcedSequence, AFTER_ALL, context)
        self._named = {name: r for name, r in self._registered.items() if not r.config.mandatory}
        mandatory = [r.config for r in self._registered.values() if r.config.mandatory]
        specs = [*(NamedProcessorSpec(c.name, c.params) for c in mandatory), *always]
        self._always = self._realize(Asked(spec, FIELD, FIELD) for spec in specs)

    def realize(self, request: GenerationRequest) -> tuple[GenerationRequest, list[Wanted]]:
        """The request as the rest of the engine is to see it, and its processors in the order in which they
        run. Raises `RequestError`, naming the field, and `LogitsProcessorError`."""
        asked = [*self._from_specs(request.sampling.logits_processors), *self._from_extra(request.extra)]
        self._check_names(asked)
        sampling, found = request.sampling, list[Wanted]()
        for one in [*self._always, *self._realize(asked)]:
            if isinstance(one, Wanted):
                found.append(one)
            else:
                sampling = one(sampling)
        return replace(request, sampling=sampling), sorted(found, key=attrgetter("rank"))

    def _from_specs(self, specs: Iterable[LogitsProcessorSpec]) -> Iterator[Asked]:
        for i, spec in enumerate(specs):
            yield Asked(spec, f"{FIELD}[{i}].name", f"{FIELD}[{i}].params")

    def _from_extra(self, extra: Mapping[str, Any]) -> Iterator[Asked]:
        for field in OTHER_FIELDS:
            given = extra.get(field)
            if not given:
                continue
            if not isinstance(given, Mapping):
                raise RequestError(f"{field} must be an object.", param=field)
            if all(name in self._named and isinstance(params, Mapping) for name, params in given.items()):
                for name, params in given.items():
                    yield Asked(NamedProcessorSpec(name, params), f"{field}.{name}", f"{field}.{name}")
            else:
                yield Asked(NamedProcessorSpec(self._who_takes(given, field), given), field, field)

    def _who_takes(self, params: Mapping[str, Any], field: str) -> str:
        """The one processor that has parameters of these names."""
        takers = [name for name, r in self._named.items() if not r.unknown(params)]
        if len(takers) == 1:
            return takers[0]
        if takers:
            reason = f"more than one logits processor takes this: {', '.join(takers)}; use {FIELD}"
        else:
            reason = "no logits processor that a request may name takes this"
        raise RequestError(f"{field}: {reason}.", param=field)

    def _check_names(self, asked: Iterable[Asked]) -> None:
        seen: set[str] = set()
        for spec, at, _ in asked:
            if not isinstance(spec, NamedProcessorSpec):
                continue
            if not self._named:
                raise RequestError(f"{FIELD}: this server has none that a request may name.", param=FIELD)
            if spec.name not in self._named:
                names = ", ".join(self._named)
                raise RequestError(f"{at}: there is none called {spec.name!r}, but {names}.", param=at)
            if spec.name in seen:
                raise RequestError(f"{at}: {spec.name!r} is named twice.", param=at)
            seen.add(spec.name)

    def _realize(self, asked: Iterable[Asked]) -> list[Wanted | Expressed]:
        return [self._realize_one(one, i) for i, one in enumerate(asked) if one.spec.runs_in(self._stage)]

    def _realize_one(self, asked: Asked, place: int) -> Wanted | Expressed:
        rank = AFTER_ALL + 1 + place
        match asked.spec:
            case NamedProcessorSpec(name=name, params=params):
                return _of(self._registered[name], params, asked.params_at)
            case ForcedTokenSequenceSpec(token_ids=token_ids, eos_token_id=eos):
                return _of(self._forced, {"token_ids": token_ids, "eos_token_id": eos}, asked.params_at)
            case PythonProcessorSpec(factory=factory):
                return Wanted("python", rank, lambda _: _started(factory(), rank))
            case spec:
                raise RequestError(f"{FIELD}: {type(spec).__name__} is not known here.", param=FIELD)


def _of(registered: Registered, params: Mapping[str, Any], at: str) -> Wanted | Expressed:
    """Raises `RequestError` for parameters that it does not take, `LogitsProcessorError` if it fails."""
    try:
        with _at_fault(registered.name):
            valid = registered.validate(params)
    except ParamsError as error:
        raise RequestError(f"{at}{error.at}: {error}.", param=f"{at}{error.at}") from error
    if (expressed := registered.sampling) is not None:

        def express(sampling: SamplingParams) -> SamplingParams:
            with _at_fault(registered.name):
                return expressed(valid, sampling)

        return express
    return Wanted(registered.name, registered.entry.rank, lambda seq: registered.start(seq, valid))


def _started(instance: Any, rank: int) -> Started:
    """Raises `ProcessorLoadError` for what is no processor of the row form."""
    cls = type(instance)
    if form_of(cls) != "row":
        raise ProcessorLoadError(f"{cls.__name__} has not the form that is called with one row")
    return Started(Entry(cls.__name__, kind_of(cls), rank), call=instance)
