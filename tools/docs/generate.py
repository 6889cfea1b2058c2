"""Writes tables of options, guards' arguments and requests' fields into the pages.

Run `python -m tools.docs.generate`.

A table is between `<!-- generated: NAME -->` and `<!-- end generated -->`. `tests/test_docs.py` fails if
this module would write a page differently.
"""

import re
from collections.abc import Iterable, Iterator
from inspect import get_annotations
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from hooks.builtin.secret_rules.issuers import FAMILIES, WORDED
from hooks.loading.describe import Argument, GuardDescription, common_arguments, guards
from proxy.settings.groups import options_of
from proxy.settings.serve import ServeSettings, flags_of, option_texts
from tools.docs import entities, fields

ROOT = Path(__file__).parents[2]
_REGION = re.compile(r"(<!-- generated: ([^\n]+) -->\n).*?(<!-- end generated -->)", re.DOTALL)
_TITLES = {
    "AdminOptions": "The operator",
    "AddressOptions": "Reverse proxies in front",
    "BodyOptions": "Bounds of a request's body",
    "BrowserOptions": "Browsers",
    "CallerOptions": "Callers",
    "ConnectionOptions": "Connections",
    "DirectorySettings": "Models, policies and keys",
    "EngineConfig": "The in-process engine",
    "ModelSettings": "Which engine runs",
    "PolicySettings": "Hooks",
    "PipelineOptions": "Limits and effects of hooks",
    "MessagesOptions": "Upstreams of the Messages API",
    "OpenAIOptions": "Upstreams of OpenAI's API",
    "PoolOptions": "Several upstreams",
    "ServeSettings": "The service",
    "DecisionOptions": "Decisions of hooks",
    "AuditOptions": "A file of decisions",
    "ReceiptOptions": "Receipts of answers",
    "TelemetryOptions": "Logs and traces",
    "TLSOptions": "TLS",
    "StoreOptions": "The store",
    "StateOptions": "Stored responses and shared state",
    "UpstreamOptions": "An upstream's answers",
    "VLLMOptions": "vLLM",
}
"""Headings for the classes that define options."""
_HEAD = ("option", "value", "default", "meaning")
_TYPES = {
    "str": "text",
    "SecretStr": "secret text",
    "bool": "true or false",
    "Path": "path",
    "IPvAnyNetwork": "address or network",
}
_LIMITS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def main() -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        written = page.read_text(encoding="utf-8")
        if (generated := updated(written)) != written:
            page.write_text(generated, encoding="utf-8")
            print(f"updated {page.relative_to(ROOT)}")


def updated(page: str) -> str:
    """The page, with its tables as the code has them now. Raises `KeyError` for an unknown table."""
    return _REGION.sub(lambda found: f"{found[1]}\n{_content(found[2])}\n\n{found[3]}", page)


def _content(name: str) -> str:
    if name == "options":
        return _of_options()
    if name == "guard-arguments common":
        return _of_arguments(common_arguments())
    if name == "secret-families":
        return _of_families()
    if name == "entities":
        return _table(entities.HEAD, entities.rows())
    if name == "fields":
        return fields.sources()
    if name == "fields upstream":
        return _table(("server or API", "an upstream gets", "only if named"), fields.relayed_rows())
    if name in (names := {f"fields {endpoint}": endpoint for endpoint in fields.ENDPOINTS}):
        return _of_fields(names[name])
    return {f"guard-arguments {guard.name}": _of_guard(guard) for guard in guards()}[name]


def _of_families() -> str:
    """The entities of `secrets` that an issuer's form shows, with the issuers."""
    issuers: dict[str, list[str]] = {}
    for family in FAMILIES:
        issuers.setdefault(family.entity, []).append(family.issuer)
    rows = [(_code(entity), "; ".join(names)) for entity, names in issuers.items()]
    names = (re.sub(r"\(\?!.*?\)|\[ ?_-\]\??|_\?", "", word) for word in WORDED)
    words = ", ".join(_code(name).replace("|", "`, `") for name in names)
    return f"{_table(('entity', 'issuer'), rows)}\n\n`ISSUER_KEY`, after one of these words: {words}."


def _of_guard(guard: GuardDescription) -> str:
    details = re.sub(r"\s*Raises [^\n]*(\n[^\n]+)*", "", guard.details)
    return f"{_of_arguments(guard.arguments)}\n\n{details}"


def _of_arguments(arguments: Iterable[Argument]) -> str:
    return _table(("argument", "type", "default"), map(_argument, arguments))


def _argument(one: Argument) -> tuple[str, ...]:
    default = "needed" if one.is_required else _default(one.default)
    return _code(one.name), _code(one.type.replace(" | ", " or ")), default


def _of_fields(endpoint: str) -> str:
    head = ("field", "of", *map(_code, fields.ENDPOINTS[endpoint].engines))
    rows = ((_code(row.name), row.api, *row.treatments.values()) for row in fields.rows(endpoint))
    return _table(head, rows)


def _of_options() -> str:
    """A table for each class that defines options."""
    groups: dict[type, list[tuple[str, ...]]] = {}
    texts = option_texts()
    for name, (field, settings) in options_of(ServeSettings).items():
        definer = next(cls for cls in reversed(settings.__mro__) if name in get_annotations(cls))
        groups.setdefault(definer, []).append(_option(name, field, texts[name]))
    return "\n\n".join(f"{_head_of(cls)}\n\n{_table(_HEAD, rows)}" for cls, rows in groups.items())


def _head_of(cls: type) -> str:
    """A heading, and the file that defines the options."""
    file = f"{cls.__module__.replace('.', '/')}.py"
    return f"## {_TITLES.get(cls.__name__, cls.__name__)}\n\nDefined in [`{file}`](../{file})."


def _option(name: str, field: FieldInfo, help_text: str) -> tuple[str, ...]:
    return (
        _code(flags_of(name)[-1]),
        _type(field.annotation, field.metadata),
        _default(field.get_default()),
        " ".join(help_text.split()),
    )


def _type(annotation: Any, notes: Iterable[Any] = ()) -> str:
    """The type in words, with the limits that `notes` set."""
    inner = get_args(annotation)
    match get_origin(annotation):
        case None:
            return ", ".join((_plain(annotation), *_limits(notes)))
        case origin if origin is Annotated:
            return _type(inner[0], inner[1:])
        case origin if origin is Literal:
            return ", ".join(map(_code, inner))
        case origin if origin is dict:
            return "mapping"
        case origin if origin in (Union, UnionType):
            return " or ".join(_type(one, notes) for one in inner if one is not type(None))
        case _:
            return f"list of {_type(inner[0])}"


def _plain(cls: type) -> str:
    words = re.sub("(?!^)([A-Z])", r" \1", cls.__name__).lower()
    return _TYPES.get(cls.__name__) or re.sub(" (setting|spec|config)$", "", words)


def _limits(notes: Iterable[Any]) -> Iterator[str]:
    for note in notes:
        if isinstance(note, FieldInfo):
            yield from _limits(note.metadata)
        yield from (
            f"{sign} {getattr(note, limit)}" for limit, sign in _LIMITS.items() if hasattr(note, limit)
        )


def _default(value: Any) -> str:
    if value is None or value is PydanticUndefined:
        return ""
    if isinstance(value, list | tuple | dict):
        return ", ".join(map(_default, value)) or "none"
    if isinstance(value, bool):
        return _code(str(value).lower())
    return _code(str(value).replace(f"{ROOT}/", "") or '""')


def _code(text: str) -> str:
    return f"`{text}`"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(map(_row, (head, ("---",) * len(head), *rows)))


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
