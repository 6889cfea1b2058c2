"""One loaded configuration as built parts: the models, the policies, and who gets which.

A request takes the deployment that is current when it arrives, and stays with it to its end. A newer one may
replace it meanwhile, and may share some of its parts. A part is closed with the last deployment that has it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from engine.parsers import Parsers
from engine.processor_specs import LogitsProcessorSpec
from engine.protocol import DeadEngineError, Engine, EngineError, GenerationRequest, RequestError
from hooks.pipeline.pipeline import GuardFactory
from proxy.errors import APIError
from proxy.policies.choice import choose_policy
from proxy.policies.keys import ANONYMOUS, Key
from proxy.policies.limits import NO_LIMITS, Limits
from proxy.policies.model_settings import ModelSettings

logger = logging.getLogger("weir.proxy")

Part = TypeVar("Part", bound="_Part")

ANY = "default"
"""The name in policies, metrics and logs of a model that requests may call by any name."""


@dataclass(eq=False, slots=True)
class _Part:
    """What several deployments may have."""

    num_users: int = field(default=0, init=False, repr=False)
    """The deployments that have it and are not closed."""
    has_started: bool = field(default=False, init=False, repr=False)


@dataclass(eq=False, slots=True)
class ServedModel(_Part):
    """A model that requests can name."""

    engine: Engine
    settings: ModelSettings
    names: tuple[str, ...] = ()
    """What requests may call the model, its own name first. None: whatever the engine takes."""
    policy: str | None = None
    """The policy of its requests whose keys name none."""
    parsers: Parsers = field(init=False)

    def __post_init__(self) -> None:
        self.parsers = Parsers(self.settings.reasoning_parser, self.settings.tool_call_parser)

    @property
    def name(self) -> str:
        return self.names[0] if self.names else ANY

    @property
    def aliases(self) -> tuple[str, ...]:
        return self.names[1:]

    @property
    def listed(self) -> Sequence[str]:
        """The names to list: those that the settings give, or else the engine's."""
        return self.names or self.engine.info.names

    def parsers_for(self, request: GenerationRequest) -> Parsers:
        """The answer's parsers. Raises `RequestError` for tools if nothing could tell calls from content."""
        if request.uses_tools and not (self.engine.info.parses_tool_calls or self.parsers.tool_calls):
            raise RequestError(
                "tools: this server has no parser for its model's tool calls (--tool-call-parser).",
                param="tools",
            )
        return self.parsers if request.is_chat else Parsers()


@dataclass(eq=False, slots=True)
class Policy(_Part):
    """What holds for the requests that get it."""

    name: str
    pipeline: GuardFactory
    limits: Limits = NO_LIMITS
    logits_processors: tuple[LogitsProcessorSpec, ...] = ()
    """Those that run for every request, beside the engine's."""


class Route(NamedTuple):
    """What one request gets."""

    model: ServedModel
    policy: Policy
    key: Key
    name: str
    """What the request calls the model, and what the answer calls it."""


class Deployment:
    """One loaded configuration."""

    def __init__(
        self,
        models: Iterable[ServedModel],
        policies: Iterable[Policy],
        *,
        keys: Iterable[Key] = (),
        default_policy: str | None = None,
        number: int = 1,
    ) -> None:
        """`keys`: of clients; none: anybody may ask. `default_policy`: of a request whose key and model name
        none. `number`: how often the configuration was loaded."""
        self.models = {model.name: model for model in models}
        self.policies = {policy.name: policy for policy in policies}
        self.keys: Mapping[str, Key] = {key.digest: key for key in keys}
        """By digest."""
        self.default_policy = default_policy
        self.number = number
        self._by_any_name = {name: model for model in self.models.values() for name in model.names}
        self._num_running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._held: set[_Part] = {*self.models.values(), *self.policies.values()}
        for part in self._held:
            part.num_users += 1

    @classmethod
    def of_one(
        cls,
        engine: Engine,
        pipeline: GuardFactory,
        settings: ModelSettings,
        names: Sequence[str] = (),
        *,
        keys: Iterable[Key] = (),
    ) -> "Deployment":
        """One model, with these names (none: any), under one policy."""
        model = ServedModel(engine, settings, tuple(names))
        return cls([model], [Policy("default", pipeline)], keys=keys, default_policy="default")

    @property
    def default_name(self) -> str:
        """A name that requests may use. Empty: the engine names none."""
        return next((name for model in self.models.values() for name in model.listed), "")

    def find_key(self, digest: str) -> Key | None:
        """The key with this digest, or `ANONYMOUS` if anybody may ask."""
        return self.keys.get(digest) if self.keys else ANONYMOUS

    def models_of(self, key: Key) -> list[ServedModel]:
        """The models that the key may use, in the order configured."""
        return [model for model in self.models.values() if key.may_use(model.name)]

    def route(self, key: Key, asked: str | None) -> Route:
        """What a request gets that asks with this key for this model (None: the key's first).

        Raises `RequestError` 404 for a model that is not served, or not to this key, and `APIError` 403 if no
        policy is for the two.
        """
        model, name = self._model(key, asked)
        choice = choose_policy(key, model.name, model.policy, self.default_policy)
        policy = None if choice is None else self.policies.get(choice.policy)
        if policy is None:  # a start-up error for a configured key, but keys may be made later
            raise APIError(403, "No policy is configured for this key and model.", "permission_error")
        return Route(model, policy, key, name)

    def _model(self, key: Key, asked: str | None) -> tuple[ServedModel, str]:
        if asked is None:
            model = next(iter(self.models_of(key)), None)
            if model is not None:
                return model, next(iter(model.listed), "")
        else:
            model = self._by_any_name.get(asked) or self._open_model
            if model is not None and key.may_use(model.name):
                return model, asked
        raise no_model(asked or "")

    @property
    def _open_model(self) -> ServedModel | None:
        """The model that requests may call by any name: only ever one that is alone."""
        return None if self._by_any_name else next(iter(self.models.values()), None)

    def check_room(self, key: Key, caller: str) -> None:
        """Raise `QueueFullError` if no model that the key may use takes a request of this caller now."""
        refusals = []
        for model in self.models_of(key):
            try:
                model.engine.check_room(caller)
            except EngineError as error:
                refusals.append(error)
            else:
                return
        if refusals:
            raise refusals[0]

    def unhealthy(self) -> dict[str, EngineError]:
        """The models that cannot serve now, by name, and why."""
        found = {}
        for name, model in self.models.items():
            try:
                model.engine.check_health()
            except EngineError as error:
                found[name] = error
        return found

    def problems(self) -> dict[str, dict[str, str]]:
        """What is wrong with upstreams, by the model's name and the upstream's."""
        found = {}
        for name, model in self.models.items():
            replicas = model.engine.stats().replicas
            wrong = {one: stats.problem for one, stats in replicas.items() if stats.problem is not None}
            if wrong:
                found[name] = wrong
        return found

    def check_health(self) -> None:
        """Raise `EngineError` if no model can be served now, and `DeadEngineError` if one never can again."""
        unhealthy = self.unhealthy()
        for error in unhealthy.values():
            if isinstance(error, DeadEngineError) or len(unhealthy) == len(self.models):
                raise error

    @property
    def is_ready(self) -> bool:
        """Whether the hooks of all policies can run now."""
        return all(policy.pipeline.is_ready for policy in self.policies.values())

    async def start_hooks(self) -> None:
        """Put every hook to its self-test. Raises `HookLoadError` or `HookError` (contract 1.4)."""
        for policy in self.policies.values():
            await _start(policy, policy.pipeline.start)

    async def start_engines(self) -> None:
        """Raises the error of the first engine that cannot start."""
        for model in self.models.values():
            await _start(model, model.engine.start)
        self._warn_of_rewinds()

    def _warn_of_rewinds(self) -> None:
        rewinders = {name for policy in self.policies.values() for name in policy.pipeline.rewinders}
        models = [name for name, model in self.models.items() if not model.engine.info.can_rewind]
        if rewinders and models:
            names, hooks = ", ".join(models), ", ".join(sorted(rewinders))
            told = "the engine of %s cannot go back: there these hooks' rewinds will terminate: %s"
            logger.warning(told, names, hooks)

    @contextmanager
    def running(self) -> Iterator["Deployment"]:
        """Counts a request as running."""
        self._num_running += 1
        self._idle.clear()
        try:
            yield self
        finally:
            self._num_running -= 1
            if not self._num_running:
                self._idle.set()

    async def wait_until_idle(self) -> None:
        """Returns once no request runs."""
        await self._idle.wait()

    async def retired(self) -> None:
        """Wait for the last request, and close the parts that no other deployment has."""
        await self.wait_until_idle()
        await self.aclose()

    async def close_engines(self) -> None:
        """Abort the requests of the engines that no other deployment has, and free what these hold."""
        await asyncio.gather(*(model.engine.aclose() for model in self._let_go(self.models.values())))

    async def close_hooks(self) -> None:
        """Close the hooks that no other deployment has."""
        await asyncio.gather(*(policy.pipeline.aclose() for policy in self._let_go(self.policies.values())))

    async def aclose(self) -> None:
        """Close the parts that no other deployment has. Closing twice is fine."""
        await self.close_engines()
        await self.close_hooks()

    def _let_go(self, parts: Iterable[Part]) -> list[Part]:
        """The parts that nobody has any more."""
        held = [part for part in parts if part in self._held]
        for part in held:
            self._held.discard(part)
            part.num_users -= 1
        return [part for part in held if not part.num_users]


async def _start(part: _Part, start: Callable[[], Awaitable[None]]) -> None:
    """Start a part that no earlier deployment has started."""
    if not part.has_started:
        await start()
        part.has_started = True


def no_model(name: str) -> RequestError:
    told = f"The model '{name}' is not served here."
    return RequestError(told, param="model", code="model_not_found", status=404)
