"""Parts that are named, such as engines, parsers and guards: those that ship, and those of packages.

A table gives the import path of each part that ships. A package adds parts by entry points in the group of
their kind. Nothing is imported before a part is used.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pkgutil import resolve_name
from typing import Any, NamedTuple


class PartError(ValueError):
    """A part cannot be used. The message names the part and its package."""


class MissingPart(PartError):
    """There is no code for the part."""


class MissingLibrary(ImportError, PartError):
    """A part that ships needs a library that is not installed. `name`: the library's module."""


class Kind(NamedTuple):
    noun: str
    group: str
    """The group of entry points: https://packaging.python.org/en/latest/specifications/entry-points/"""
    shipped: Mapping[str, str]
    """Import paths by name."""

    def names(self) -> list[str]:
        """The parts that ship, then those of installed packages."""
        return [*self.shipped, *sorted(_installed(self.group).keys() - self.shipped.keys())]

    def find(self, name: str) -> str | None:
        """The import path of a part. None: there is none of this name. Raises `PartError` for a name that
        two packages give to parts, or a package and Weir."""
        packages = _installed(self.group).get(name, ())
        owners = ["weir-proxy"] * (name in self.shipped) + [_package(one) for one in packages]
        if len(owners) > 1:
            raise PartError(f"{self.noun} {name!r} is in several packages: {', '.join(owners)}")
        return packages[0].value if packages else self.shipped.get(name)

    def load(self, name: str) -> Any:
        """Import a part. Raises `KeyError` for an unknown name, and `PartError`."""
        path = self.find(name)
        if path is None:
            raise KeyError(name)
        if name in self.shipped:
            return load(path, f"{self.noun} {name!r}")
        package = _package(_installed(self.group)[name][0])
        try:
            return load(path, f"{self.noun} {name!r} of {package}")
        except MissingLibrary as error:  # the package knows how to install it
            raise PartError(str(error)) from error.__cause__


ENGINES = Kind(
    "engine",
    "weir.engines",
    {
        "local": "engine.local.engine:LocalEngine",
        "vllm": "engine.vllm.engine:VLLMEngine",
        "openai": "engine.upstream.openai.engine:OpenAIEngine",
        "messages": "engine.upstream.messages.engine:MessagesEngine",
        "replay": "engine.upstream.replay:ReplayEngine",
        "echo": "engine.upstream.echo:EchoEngine",
        "none": "engine.upstream.none:NoEngine",
    },
)
"""A package adds an engine by an entry point, which names a class. The class gets the settings'
`engine_options` as keyword arguments."""

REASONING_PARSERS = (
    *("deepseek_r1", "deepseek_v3", "ernie45", "gemma4", "glm45", "glm47", "granite", "holo2"),
    *("hunyuan_a13b", "kimi_k2", "mimo", "minimax_m2", "mistral", "nemotron_v3", "olmo3", "openai_gptoss"),
    *("qwen3", "seed_oss", "step3", "step3p5"),
)
TOOL_CALL_PARSERS = (
    *("deepseek_v3", "deepseek_v31", "deepseek_v32", "deepseek_v4", "ernie45", "gemma4", "glm45", "glm47"),
    *("granite", "granite4", "hermes", "hunyuan_a13b", "kimi_k2", "llama3_json", "llama4_json"),
    *("llama4_pythonic", "longcat", "mimo", "minimax_m2", "mistral", "olmo3", "openai", "phi4_mini_json"),
    *("pythonic", "qwen3_coder", "qwen3_xml", "seed_oss", "step3", "step3p5", "xlam"),
)

AUTO_PARSER = "auto"
"""The name that stands for the parser of tool calls that the model's chat template suggests."""

PARSERS = Kind(
    "parser",
    "weir.parsers",
    {
        **dict.fromkeys(REASONING_PARSERS, "engine.parsers.reasoning:REASONING_MARKERS"),
        **dict.fromkeys(TOOL_CALL_PARSERS, "engine.parsers.registry:TOOL_CALL_FAMILIES"),
    },
)
"""A package adds a parser by an entry point, which names a `Markers`, a `Format` or a `ToolCalls` of
`engine.parsers`."""


def known_parsers(option: str) -> tuple[str, ...]:
    """The names that `reasoning_parser` or `tool_call_parser` may have."""
    shipped = REASONING_PARSERS if option == "reasoning_parser" else TOOL_CALL_PARSERS
    return (*shipped, *(name for name in PARSERS.names() if name not in PARSERS.shipped))


def load(path: str, what: str) -> Any:
    """Import `module:name` of a part that ships. Raises `MissingPart` if there is no such module,
    `MissingLibrary` if it imports one that is not installed, and `PartError` if it cannot be imported. All
    begin with `what`."""
    module = path.partition(":")[0]
    try:
        return resolve_name(path)
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            raise MissingPart(f"{what} is not installed: there is no module {error.name}") from error
        raise MissingLibrary(f"{what} cannot be imported from {path}: {error}", name=error.name) from error
    except Exception as error:
        raise PartError(f"{what} cannot be imported from {path}: {type(error).__name__}: {error}") from error


def how_to_install(extra: str) -> str:
    """How to install what only an extra of the distribution brings. The distribution is on no package index,
    so pip finds it in a checkout alone."""
    return f"install the extra '{extra}' of weir-proxy (in a checkout: pip install '.[{extra}]')"


@cache
def _installed(group: str) -> Mapping[str, list[EntryPoint]]:
    found: dict[str, list[EntryPoint]] = {}
    for one in _by_group().get(group, ()):
        found.setdefault(one.name, []).append(one)
    return found


@cache
def _by_group() -> Mapping[str, EntryPoints]:
    """The entry points of all kinds of parts. They are read at once, because a reading opens a file of each
    installed package."""
    found = entry_points()
    return {group: found.select(group=group) for group in found.groups if group.startswith("weir.")}


def _package(entry_point: EntryPoint) -> str:
    return entry_point.dist.name if entry_point.dist else entry_point.value
