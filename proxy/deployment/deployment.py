"""One loaded configuration as built parts: an engine for each model, and hooks for each policy.

A request takes the deployment that is current when it arrives, and stays with it to its end. A newer one may
replace it meanwhile, and may share some of its engines.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from engine.parsers import Parsers
from engine.parsers.suggested import chosen_parser, suggested
from engine.protocol import DeadEngineError, Engine, EngineError, GenerationRequest, ModelInfo, RequestError
from engine.protocol.engine import check_processors
from engine.protocol.flow import FeedingEngine, Flow
from engine.protocol.parts import AUTO_PARSER
from engine.protocol.processor_specs import PolicyProcessorSpec
from engine.streams.feeding import feed
from hooks.pipeline.open_guard import GuardFactory
from proxy.deployment.directory import Directory, PolicyEntry, no_model
from proxy.deployment.engines import make_engine
from proxy.deployment.guard_models import DeployedModels, Model, fault_of
from proxy.deployment.keys import Key
from proxy.settings.limits import NO_LIMITS, Subject
from proxy.settings.model import ModelSettings
from proxy.settings.policy import PolicySettings

logger = logging.getLogger("weir.proxy")

_KEYS_KEPT = 4096
"""Keys whose models and routes are remembered: those that asked last."""


@dataclass(eq=False, slots=True)
class ServedModel:
    """A model with its engine."""

    settings: ModelSettings
    engine: Engine
    can_withhold: bool = True
    """Whether the engine was built for requests that hooks may see."""
    name: str = field(init=False)
    parsers: Parsers | None = field(init=False)
    """None: no parser is configured."""
    engine_feed: Callable[[GenerationRequest, Flow], Awaitable[None]] = field(init=False)
    """Feeds a request's deltas, as `engine.streams.feeding.feed` does."""

    def __post_init__(self) -> None:
        self.name = self.settings.name
        engine = self.engine
        self.engine_feed = engine.feed if isinstance(engine, FeedingEngine) else partial(feed, engine)
        self._choose_parsers("")

    def choose_parser(self) -> None:
        """Choose the parser of tool calls that `auto` stands for, by the chat template of the started engine,
        and log it."""
        if self.settings.local.tool_call_parser != AUTO_PARSER:
            return
        self._choose_parsers(self._template)
        if (found := suggested(self._template)) is None:
            reason = (
                "no parser of tool calls: its chat template shows none"
                if self._template
                else ("no parser of tool calls: its chat template is not known here")
            )
            logger.warning("%s has %s (tool_call_parser: auto)", self.name, reason)
            return
        markers = " and ".join(found.markers)
        logger.info(
            "%s has the parser of tool calls '%s': its chat template has %s", self.name, found.parser, markers
        )

    def _choose_parsers(self, template: str) -> None:
        local = self.settings.local
        parsers = Parsers(local.reasoning_parser, chosen_parser(local.tool_call_parser, template))
        self.parsers = None if parsers == Parsers() else parsers

    @property
    def _template(self) -> str:
        tokenizer = self.engine.tokenizer
        return tokenizer.chat_template if tokenizer is not None else ""

    @property
    def info(self) -> ModelInfo:
        return self.engine.info

    @property
    def names(self) -> tuple[str, ...]:
        return self.settings.names

    @property
    def listed(self) -> Sequence[str]:
        """The names to list: those that the settings give, or else the engine's."""
        return self.settings.given_names or self.engine.info.names

    def parsers_for(self, request: GenerationRequest) -> Parsers | None:
        """The answer's parsers, if it needs any. Raises `RequestError` for tools if nothing could tell calls
        from content."""
        finds_calls = self.engine.info.parses_tool_calls or (self.parsers and self.parsers.tool_calls)
        if not finds_calls and request.uses_tools:
            found = suggested(self._template)
            hint = f" The model's chat template suggests '{found.parser}'." if found else ""
            raise RequestError(
                f"tools: this server has no parser for its model's tool calls (--tool-call-parser).{hint}",
                param="tools",
            )
        return self.parsers if request.is_chat else None


@dataclass(eq=False, slots=True, weakref_slot=True)
class Policy:
    """A policy with its hooks."""

    entry: PolicyEntry
    pipeline: GuardFactory
    name: str = field(init=False)
    settings: PolicySettings = field(init=False)
    logits_processors: tuple[PolicyProcessorSpec, ...] = field(init=False)
    """Those that run for every request, beside the engine's."""
    rules_processors: bool = field(init=False)
    """Whether the policy adds logits processors to a request, or forbids some."""

    def __post_init__(self) -> None:
        self.name = self.entry.name
        self.settings = self.entry.settings
        configured = self.settings.logits_processors
        self.logits_processors = tuple(PolicyProcessorSpec(one.name, one.params) for one in configured)
        self.rules_processors = bool(configured) or self.settings.allowed_logits_processors is not None


class Route(NamedTuple):
    """The model and the policy of one request, and its key."""

    model: ServedModel
    policy: Policy
    key: Key
    name: str
    """The model's name in the request, and in the answer."""
    limited: tuple[Subject, ...]
    """Who has limits: the key, the key and the tenant under the policy, and the policy."""
    per_user: Subject | None = None
    """The limits of each of the key's users. None: they have none."""


class Deployment:
    """One loaded configuration."""

    def __init__(
        self,
        directory: Directory,
        engines: Mapping[str, Engine],
        pipelines: Mapping[str, GuardFactory],
        *,
        can_withhold: bool = True,
        number: int = 1,
        engine_process: Path | None = None,
    ) -> None:
        """`engines` by model, `pipelines` by policy. `number`: how often the configuration was loaded.
        `engine_process`: see `make_engine`."""
        self.directory = directory
        self.models = {
            name: ServedModel(model, engines[name], can_withhold) for name, model in directory.models.items()
        }
        self.engine_process = engine_process
        make_guard = partial(make_engine, engine_process=engine_process)
        self.guard_models = DeployedModels(directory, engines, make_generator=make_guard)
        """Implements `GuardModels`; it starts all models."""
        self.policies = {name: Policy(entry, pipelines[name]) for name, entry in directory.policies.items()}
        self.number = number
        self.keys: Mapping[str, Key] = directory.keys
        """The configured keys, by digest."""
        self.models_of = lru_cache(_KEYS_KEPT)(self._find_usable)
        """The models that a key may use, in the order configured."""
        self._routes = lru_cache(_KEYS_KEPT)(self._find_route)
        self._num_running = 0
        self._idle = asyncio.Event()
        self._idle.set()

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
        model, policy = settings.named(names), PolicyEntry("default", PolicySettings())
        directory = Directory([model], [policy], keys, default_policy=policy.name)
        return cls(directory, {model.name: engine}, {policy.name: pipeline})

    @property
    def default_name(self) -> str:
        """A name that requests may use. Empty: the engine names none."""
        return next((name for model in self.models.values() for name in model.listed), "")

    @property
    def names_in_words(self) -> str:
        """The models as a greeting names them: `a`, `a and b`, or `a and 2 more`. Aliases are left out."""
        own = [model.settings.given_names[:1] or model.listed for model in self.models.values()]
        first, *others = [name for names in own for name in names] or [""]
        match others:
            case []:
                return first
            case [second]:
                return f"{first} and {second}"
        return f"{first} and {len(others)} more"

    def _find_usable(self, key: Key) -> tuple[ServedModel, ...]:
        return tuple(self.models[model.name] for model in self.directory.models_of(key))

    def route(self, key: Key, asked: str | None) -> Route:
        """The route of a request with this key for this model (None: the key's first). Raises as
        `Directory.choose` does."""
        if asked is not None and self.directory.has_names:
            return self._routes(key, asked)
        if not self.models_of(key):
            raise no_model(asked or "", [])
        route = self._routes(key, None)
        return route._replace(name=next(iter(route.model.listed), "") if asked is None else asked)

    def _find_route(self, key: Key, asked: str | None) -> Route:
        choice = self.directory.choose(key, asked)
        model, policy = self.models[choice.model.name], self.policies[choice.policy.name]
        rules, own = policy.settings, key.name or key.digest
        # The quotes keep names with colons apart: 'p:q' and 'r', and 'p' and 'q:r'.
        subjects = (
            Subject("key", own, key.limits),
            Subject("policy_key", f"{policy.name!r}:{own}", rules.limits_per_key),
            Subject("policy_tenant", f"{policy.name!r}:{key.tenant}", rules.limits_per_tenant),
            Subject("policy", policy.name, rules.limits),
        )
        limited = tuple(one for one in subjects if one.limits != NO_LIMITS)
        per_user = Subject("key_user", own, key.limits_per_user)
        return Route(
            model, policy, key, asked or "", limited, None if per_user.limits == NO_LIMITS else per_user
        )

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
        """The models that cannot be served now, by name, and why."""
        faults = {name: fault_of(model.engine) for name, model in self.models.items()}
        return {name: error for name, error in faults.items() if error is not None}

    def guards(self) -> dict[str, EngineError | None]:
        """The models that only hooks use, by name, and why they cannot be used now."""
        return {name: fault_of(model) for name, model in self.guard_models.guards}

    def problems(self) -> dict[str, dict[str, str]]:
        """The faults of upstreams, by the model's name and the upstream's."""
        found = {}
        for name, model in self.guard_models.all:
            replicas = model.stats().replicas
            wrong = {one: stats.problem for one, stats in replicas.items() if stats.problem is not None}
            if wrong:
                found[name] = wrong
        return found

    def check_alive(self) -> None:
        """Raise `DeadEngineError` if an engine can never serve again: a new process is needed."""
        for _, model in self.guard_models.all:
            if isinstance(error := fault_of(model), DeadEngineError):
                raise error

    def check_health(self) -> None:
        """Raise `EngineError` if no model can be served now, or one never can again."""
        self.check_alive()
        unhealthy = self.unhealthy()
        if len(unhealthy) == len(self.models):
            raise next(iter(unhealthy.values()))

    @property
    def is_ready(self) -> bool:
        """Whether the hooks of all policies can run now."""
        return all(policy.pipeline.is_ready for policy in self.policies.values())

    async def start_hooks(self, older: "Deployment | None" = None) -> None:
        """Give every hook its models, and put it to its self-test. `older`: the current deployment, which
        this one is to replace. Raises `HookLoadError` or `HookError` (contract 1.4, 1.9)."""
        with self.guard_models.replacing(older.guard_models if older is not None else None):
            for policy in self.policies.values():
                await policy.pipeline.start(self.guard_models)
        for name in self.directory.guard_models.keys() - dict(self.guard_models.guards).keys():
            logger.warning("no hook in this process uses the model %s (only_guards)", name)

    async def start_engines(self, older: Iterable["Deployment"] = ()) -> None:
        """`older`: deployments that have started, whose engines run already. Raises the error of the first
        engine that cannot start."""
        await self.guard_models.start(model for _, model in self.own_models(older))
        for model in self.models.values():
            model.choose_parser()
        await self.check_processors(self.directory.pairs())
        self._check_probes(self.directory.pairs())
        self._warn_of_rewinds()

    async def check_processors(self, pairs: Iterable[tuple[Key, ModelSettings]]) -> None:
        """Make sure that the logits processors of these keys' policies can run with these models. Raises
        `ValueError`."""
        for name, policy in self._chosen(pairs):
            if specs := self.policies[policy].logits_processors:
                try:
                    await check_processors(self.models[name].engine, specs)
                except ValueError as error:
                    raise ValueError(f"policies.{policy}: with the model {name!r}: {error}") from error

    def _check_probes(self, pairs: Iterable[tuple[Key, ModelSettings]]) -> None:
        """Make sure that the models have the probes that hooks read (contract 1.10). Raises `ValueError`."""
        for name, policy in self._chosen(pairs):
            for hook, needs in self.policies[policy].pipeline.needed_probes.items():
                try:
                    needs.choose(self.models[name].engine.info.probes)
                except ValueError as error:
                    raise ValueError(f"hook {hook!r} with the model {name!r}: {error}") from error

    def _chosen(self, pairs: Iterable[tuple[Key, ModelSettings]]) -> Iterable[tuple[str, str]]:
        """The models with the policies that they are served under, by name."""
        chosen = [(model.name, self.directory.policy_for(key, model)) for key, model in pairs]
        return dict.fromkeys((name, choice.name) for name, choice in chosen if choice)

    def _warn_of_rewinds(self) -> None:
        rewinders = {name for policy in self.policies.values() for name in policy.pipeline.rewinders}
        models = [name for name, model in self.models.items() if not model.engine.info.can_rewind]
        if rewinders and models:
            names, hooks = ", ".join(models), ", ".join(sorted(rewinders))
            message = "the engine of %s cannot go back: there these hooks' rewinds will terminate: %s"
            logger.warning(message, names, hooks)

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

    async def close_engines(self, kept: Iterable["Deployment"] = ()) -> None:
        """Abort the requests of the models that none of `kept` has, and free what these hold."""
        await asyncio.gather(*(model.aclose() for _, model in self.own_models(kept)))

    async def close_hooks(self) -> None:
        await asyncio.gather(*(policy.pipeline.aclose() for policy in self.policies.values()))

    async def aclose(self, kept: Iterable["Deployment"] = ()) -> None:
        """Close the hooks, and the engines that none of `kept` has."""
        await self.close_engines(kept)
        await self.close_hooks()

    def own_models(self, kept: Iterable["Deployment"]) -> list[tuple[str, Model]]:
        """The models that none of `kept` has, by name."""
        shared = {id(model) for one in kept for _, model in one.guard_models.all}
        return [(name, model) for name, model in self.guard_models.all if id(model) not in shared]
