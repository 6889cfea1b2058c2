"""Checks a configuration without serving it: finds all that is wrong, not only what is found first."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine.protocol.parts import how_to_install
from engine.streams.recording import Recording
from engine.upstream.address import UpstreamConfig
from proxy.deployment.checks.directory import directory_faults
from proxy.deployment.checks.hooks import hook_faults
from proxy.deployment.checks.probes import probe_faults
from proxy.deployment.checks.processors import processor_faults
from proxy.deployment.engine_choice import engine_of
from proxy.deployment.engines import check_model, make_engine
from proxy.deployment.keys import digest_of
from proxy.deployment.read import directory_of
from proxy.network.tls import make_context
from proxy.settings.did_you_mean import Fault, Place, message_of
from proxy.settings.groups import visible
from proxy.settings.model import NAMING, UPSTREAM_ENGINES, ModelSettings
from proxy.settings.secrets import named_variables
from proxy.settings.serve import ServeSettings, environment

_LIBRARIES = {"local": ("torch", "engine"), "vllm": ("vllm", "vllm")}
"""By engine: a library that it needs, and the extra of weir-proxy that brings it."""
_DATABASES = {
    "redis": ("redis", "redis"),
    "rediss": ("redis", "redis"),
    "postgresql": ("asyncpg", "postgres"),
}
"""The same by the scheme of a URL."""


def check(content: Mapping[str, Any]) -> list[Fault]:
    """All that is wrong with the content of a settings file. Imports, builds and closes each hook, as a
    server would, and starts it if the rest of the file is right. Loads no weights, makes no engine that runs,
    and asks no other machine."""
    variables = named_variables(content, ServeSettings)
    settings, others = _read(dict(content))
    found = variables + [fault for fault in others if fault.place not in {one.place for one in variables}]
    if settings is not None:
        found += [fault for faults in _CHECKS for fault in faults(settings)]
    directory = None if settings is None or found else directory_of(settings)
    found += hook_faults(content, directory)
    return list(dict.fromkeys(found))


def _read(content: dict[str, Any]) -> tuple[ServeSettings | None, list[Fault]]:
    """The settings, and what is wrong with single ones. Those are left out, so that the rest can be checked;
    None: the rest makes no settings either."""
    found: list[Fault] = []
    for _ in range(5):  # a group as a whole is checked only once its own options are right
        try:
            return ServeSettings(**(environment() | content)), found
        except ValidationError as error:
            problems = error.errors(include_url=False)
        problems = [problem for problem in problems if not _is_default(content, visible(problem["loc"]))]
        places = []
        for problem in problems:
            place, text = visible(problem["loc"]), message_of(problem, ServeSettings)
            known = _known(content, place)
            option, _, rest = text.partition(": ")
            if not known and option in content:  # of the settings as a whole
                known, text = (option,), rest
            found.append(Fault(place if problem["type"] == "missing" else known, text))
            places.append(known)
        for place in reversed(places):  # so that positions in lists stay right
            content = _without(content, place)
    return None, found


def _is_default(content: Mapping[str, Any], place: Place) -> bool:
    """Whether the value is not the group's own, but a default. It is wrong where the default stands, too."""
    is_of_group = len(place) > 2 and place[0] in ("models", "policies")
    return is_of_group and len(_known(content, place[:3])) == 2 and place[2] in content


def _known(content: Any, place: Place) -> Place:
    """The part of a way that the content has. pydantic also names the members of a union by their types."""
    for i, step in enumerate(place):
        has_name = isinstance(content, Mapping) and step in content
        if not has_name and not (isinstance(content, list) and isinstance(step, int)):
            return place[:i]
        item: Any = content
        content = item[step]
    return place


def _without(content: Any, place: Place) -> Any:
    """The content without the value there. Models and keys stay: other settings name the models, and
    keys name other settings."""
    match place, content:
        case ("models", str(name)), Mapping():
            kept = {one: value for one, value in _group(content, place).items() if one in NAMING}
            return {**content, "models": {**content["models"], name: {**kept, "engine": "echo"}}}
        case ("keys", str(name), *rest), Mapping() if rest in ([], ["hash"]):
            key = {**_group(content, place[:2]), "hash": f"sha256:{digest_of(name.encode())}"}
            return {**content, "keys": {**content["keys"], name: key}}
        case ("keys", str(name), "previous", _), Mapping():  # it has nothing that may be left out
            return _without(content, ("keys", name, "previous"))
        case (step,), Mapping():
            return {name: value for name, value in content.items() if name != step}
        case (step,), list():
            return [value for i, value in enumerate(content) if i != step]
        case (step, *rest), Mapping():
            return {**content, step: _without(content[step], tuple(rest))}
        case (step, *rest), list():
            return [_without(value, tuple(rest)) if i == step else value for i, value in enumerate(content)]
    return content


def _group(content: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    """One model's or one key's settings."""
    option, name = place
    group = content[str(option)][name]
    return group if isinstance(group, Mapping) else {}


def _model_faults(settings: ServeSettings) -> Iterator[Fault]:
    if not settings.models:
        yield from _of_model((), settings.base_model)
    for name, model in settings.models.items():
        yield from _of_model(("models", name), model)


def _of_model(place: Place, model: ModelSettings) -> Iterator[Fault]:
    engine = engine_of(model)
    library, extra = _LIBRARIES.get(engine, ("", ""))
    if library and find_spec(library) is None:
        text = f"the engine {engine!r} needs {library}: {how_to_install(extra)}"
        yield Fault((*place, "engine"), text)
    if engine == "local":
        try:
            check_model("model", model.local.model)
        except ValueError as error:
            yield Fault((*place, "model"), str(error).removeprefix("model: "))
        else:
            yield from probe_faults(place, model)
    if model.engine in UPSTREAM_ENGINES:
        yield from _of_upstreams((*place, "upstream"), model)
    if model.engine == "replay" and model.recordings is not None:
        for text in _of_recordings(model.recordings):
            yield Fault((*place, "recordings"), text)


def _of_upstreams(place: Place, model: ModelSettings) -> Iterator[Fault]:
    """Each upstream by itself, or else all together."""

    def wrong(upstreams: list[UpstreamConfig]) -> Iterator[str]:
        try:
            local = model.local.model_copy(update={"tokenizer": None})
            make_engine(model.model_copy(update={"upstream": upstreams, "local": local, "record": None}))
        except ValueError as error:
            yield str(error)

    found = [Fault((*place, i), text) for i, one in enumerate(model.upstream) for text in wrong([one])]
    yield from found or (Fault(place, text) for text in wrong(model.upstream))


def _of_recordings(folder: Path) -> Iterator[str]:
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        yield f"{folder} holds no recording (*.jsonl)"
    for file in files:
        try:
            Recording.load(file)
        except (OSError, ValueError) as error:
            yield f"{file.name} is no recording ({type(error).__name__})"


def _missing_databases(settings: ServeSettings) -> Iterator[Fault]:
    for option, url in (("state", settings.state), ("store", settings.store)):
        scheme = "" if url is None else url.get_secret_value().partition("://")[0]
        library, extra = _DATABASES.get(scheme, ("", ""))
        if library and find_spec(library) is None:
            yield Fault((option,), f"{scheme} needs {library}: {how_to_install(extra)}")


def _missing_folders(settings: ServeSettings) -> Iterator[Fault]:
    for option, url in (("state", settings.state), ("store", settings.store)):
        scheme, _, file = ("" if url is None else url.get_secret_value()).partition(":///")
        if scheme == "sqlite" and not (folder := Path(file).parent).is_dir():
            yield Fault((option,), f"there is no folder {folder}")


def _of_certificates(settings: ServeSettings) -> Iterator[Fault]:
    try:
        make_context(settings)
    except ValueError as error:
        option, _, text = str(error).partition(": ")
        yield Fault((option,), text)


_CHECKS = (
    directory_faults,
    _model_faults,
    processor_faults,
    _missing_databases,
    _missing_folders,
    _of_certificates,
)
"""All checks between settings that are each right. A server begins with the first; faults of the others fail
where the server builds it."""
