"""The rooms of each package, the order of their floors, and the imports between them, read off the files.

A room is a folder right under a package. A room imports from rooms of lower floors only. Imports for types
and imports inside functions count too.

    python -m tools.rooms      # the rooms from the ground up, each with the rooms that it imports from
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]

FLOORS: Mapping[str, tuple[str, ...]] = {
    "engine": (
        "protocol",
        "sources",
        "turns",
        "streams",
        "text",
        "parsers",
        "device",
        "sampling",
        "scheduling",
        "models",
        "execution",
        "core",
        "local",
        "upstream",
        "vllm",
    ),
    "hooks": (
        "prompts",
        "api",
        "__init__",
        "loading",
        "decisions",
        "pipeline",
        "workers",
        "json",
        "detect",
        "builtin",
        "testing",
    ),
    "proxy": (
        "__init__",
        "settings",
        "storage",
        "wire",
        "network",
        "telemetry",
        "deployment",
        "service",
        "http",
        "workers",
        "cli",
    ),
    "weir": (
        "running",
        "feeding",
        "streams",
        "answer",
        "guards",
        "__init__",
        "transport",
        "openai",
        "anthropic",
        "litellm",
        "langchain",
        "pydantic_ai",
        "adapters",
    ),
}
"""By package: its rooms, the lowest floor first."""

LOOSE = {package: {"__init__"} for package in FLOORS} | {"proxy": {"__init__", "__main__"}}
"""The modules right under a package. They are in no room. One that a room imports has a floor too."""


@cache
def modules() -> Mapping[str, Path]:
    """The project's modules by their dotted names."""
    files = [file for package in FLOORS for file in (ROOT / package).rglob("*.py")]
    return {".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): f for f in files}


def imports_of(file: Path) -> Iterator[str]:
    """The names of the project's modules that the file imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name in modules():
                    yield name
                elif node.module in modules():
                    yield node.module


def room_of(module: str) -> tuple[str, str]:
    """The package and the room. A loose module's room is its name; the package's own is `__init__`."""
    package, _, rest = module.partition(".")
    return package, rest.partition(".")[0] or "__init__"


def arrows(package: str) -> dict[tuple[str, str], list[str]]:
    """The imports between two rooms of the package, as `module -> module`."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for module, file in modules().items():
        here = room_of(module)
        for name in imports_of(file) if here[0] == package else ():
            there = room_of(name)
            if there[0] == package and there != here:
                found[here[1], there[1]].append(f"{module} -> {name}")
    return found


def upward(package: str) -> list[str]:
    """The imports from a room to a higher one, and those of a module that is in no room of `FLOORS`."""
    floors = FLOORS[package]
    found = []
    for (here, there), imports in arrows(package).items():
        is_down = here in LOOSE[package] or (there in floors and floors.index(there) < floors.index(here))
        if not is_down:
            found += imports
    return sorted(found)


def main() -> None:
    for package, floors in FLOORS.items():
        rooms = [room for room in floors if room not in LOOSE[package]]
        between = {(here, there) for here, there in arrows(package) if here in rooms and there in rooms}
        print(f"{package}: {len(rooms)} rooms, {len(between)} arrows")
        for room in rooms:
            below = [there for there in rooms if (room, there) in between]
            print(f"  {room:<12}{'-> ' if below else ''}{', '.join(below)}".rstrip())


if __name__ == "__main__":
    main()
