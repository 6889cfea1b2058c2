"""Calls as families of models write them, and texts that are nearly calls.

The same texts are given to Weir's parsers here and to vLLM's parsers of the same names in
`tests/engine/vllm/test_parsers.py`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from engine.parsers.formats import FORMATS

Call = tuple[str, Mapping[str, Any]]
"""A tool's name, and its arguments."""

PROPERTIES: dict[str, Any] = {
    "s": {"type": "string"},
    "i": {"type": "integer"},
    "n": {"type": "number"},
    "b": {"type": "boolean"},
    "o": {"type": "object"},
    "l": {"type": "array"},
    "z": {"anyOf": [{"type": "string"}, {"type": "null"}]},
}
TOOLS = tuple(
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": given}}}
    for name, given in (("f", PROPERTIES), ("get_it", PROPERTIES), ("none", {}))
)


def text_of(value: Any) -> str:
    """A value as bare text: a string as it is, all else as JSON."""
    return value if isinstance(value, str) else dumped(value)


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _each(before: str, write: Callable[[str, Mapping[str, Any]], str], between: str, after: str) -> "Writer":
    return lambda calls: before + between.join(write(*call) for call in calls) + after


def _json(name: str, arguments: Mapping[str, Any], key: str = "arguments") -> str:
    return dumped({"name": name, key: arguments})


def _tags(form: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda arguments: "".join(form % (key, text_of(value)) for key, value in arguments.items())


_QWEN, _MINIMAX = _tags("<parameter=%s>\n%s\n</parameter>\n"), _tags('<parameter name="%s">%s</parameter>\n')
_COMPACT = _tags("<parameter=%s>%s</parameter>")
_GLM = _tags("<arg_key>%s</arg_key>\n<arg_value>%s</arg_value>\n")
_STEP = _tags('<steptml:parameter name="%s">%s</steptml:parameter>')


def _dsml(arguments: Mapping[str, Any]) -> str:
    return "".join(
        f'<｜DSML｜parameter name="{key}" string="{dumped(isinstance(value, str))}">{text_of(value)}'
        "</｜DSML｜parameter>\n"
        for key, value in arguments.items()
    )


def _python(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _gemma(value: Any) -> str:
    match value:
        case str():
            return f'<|"|>{value}<|"|>'
        case dict():
            return "{" + ",".join(f"{key}:{_gemma(one)}" for key, one in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_gemma, value)) + "]"
    return dumped(value)


def _hermes() -> "Writer":
    return _each("", lambda *call: f"<tool_call>\n{_json(*call)}\n</tool_call>", "\n", "")


def _qwen(marker: str) -> "Writer":
    form = f"<{marker}>\n<function=%s>\n%s</function>\n</{marker}>"
    return _each("", lambda name, arguments: form % (name, _QWEN(arguments)), "\n", "")


def _mimo(name: str, arguments: Mapping[str, Any]) -> str:
    return f"<tool_call><function={name}>{_COMPACT(arguments)}</function></tool_call>"


def _glm() -> "Writer":
    return _each("", lambda name, given: f"<tool_call>{name}\n{_GLM(given)}</tool_call>", "\n", "")


Writer = Callable[[Sequence[Call]], str]
"""Writes calls as a family's chat template writes those of earlier turns."""

_V3, _SEP, _V3_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_V3_ALL = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_KIMI = "<|tool_call_begin|>functions.%s:0<|tool_call_argument_begin|>%s<|tool_call_end|>"
_STEP_CALL = (
    '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="%s">%s</steptml:invoke>'
    "<｜tool_call_end｜>"
)

WRITERS: dict[str, Writer] = {
    "deepseek_v3": _each(
        _V3_ALL[0],
        lambda name, given: f"{_V3}function{_SEP}{name}\n```json\n{dumped(given)}\n```{_V3_END}",
        "\n",
        _V3_ALL[1],
    ),
    "deepseek_v31": _each(
        _V3_ALL[0], lambda name, given: f"{_V3}{name}{_SEP}{dumped(given)}{_V3_END}", "", _V3_ALL[1]
    ),
    "deepseek_v32": _each(
        "<｜DSML｜function_calls>\n",
        lambda name, given: f'<｜DSML｜invoke name="{name}">\n{_dsml(given)}</｜DSML｜invoke>\n',
        "",
        "</｜DSML｜function_calls>",
    ),
    "deepseek_v4": _each(
        "<｜DSML｜tool_calls>\n",
        lambda name, given: f'<｜DSML｜invoke name="{name}">\n{_dsml(given)}</｜DSML｜invoke>\n',
        "",
        "</｜DSML｜tool_calls>",
    ),
    "ernie45": _hermes(),
    "gemma4": _each(
        "", lambda name, given: f"<|tool_call>call:{name}{_gemma(dict(given))}<tool_call|>", "", ""
    ),
    "glm45": _glm(),
    "glm47": _glm(),
    "granite": _each("<|tool_call|>[", _json, ", ", "]"),
    "granite4": _hermes(),
    "hermes": _hermes(),
    "hunyuan_a13b": _each("<tool_calls>[", _json, ", ", "]</tool_calls>"),
    "kimi_k2": _each(
        "<|tool_calls_section_begin|>",
        lambda name, given: _KIMI % (name, dumped(given)),
        "",
        "<|tool_calls_section_end|>",
    ),
    "llama3_json": _each("", lambda name, given: _json(name, given, "parameters"), "; ", ""),
    "llama4_json": _each("", lambda name, given: _json(name, given, "parameters"), "; ", ""),
    "llama4_pythonic": _each("[", _python, ", ", "]"),
    "longcat": _each("", lambda *call: f"<longcat_tool_call>{_json(*call)}</longcat_tool_call>", "\n", ""),
    "mimo": _each("", _mimo, "\n", ""),
    "minimax_m2": _each(
        "<minimax:tool_call>\n",
        lambda name, given: f'<invoke name="{name}">\n{_MINIMAX(given)}</invoke>\n',
        "",
        "</minimax:tool_call>",
    ),
    "mistral": _each("[TOOL_CALLS][", _json, ", ", "]"),
    "olmo3": _each("<function_calls>", _python, "\n", "</function_calls>"),
    "phi4_mini_json": _each("functools[", _json, ", ", "]"),
    "pythonic": _each("[", _python, ", ", "]"),
    "qwen3_coder": _qwen("tool_call"),
    "qwen3_xml": _qwen("tool_call"),
    "seed_oss": _qwen("seed:tool_call"),
    "step3": _each(
        "<｜tool_calls_begin｜>",
        lambda name, given: _STEP_CALL % (name, _STEP(given)),
        "\n",
        "<｜tool_calls_end｜>",
    ),
    "step3p5": _qwen("tool_call"),
    "xlam": _each("```json\n[", _json, ", ", "]\n```"),
}

HELD = frozenset(WRITERS) - {
    *("deepseek_v3", "deepseek_v31", "ernie45", "granite", "granite4", "hermes", "hunyuan_a13b", "kimi_k2"),
    *("llama3_json", "llama4_json", "longcat", "mistral", "phi4_mini_json", "xlam"),
}
"""The parsers that read a call when it is whole, because its arguments are not JSON."""
AT_THE_BEGINNING = frozenset({"llama3_json", "llama4_json", "llama4_pythonic", "pythonic"})
"""The parsers of calls without any marker, which nothing may come before."""


class Kind(NamedTuple):
    """A text of one kind."""

    text: str
    calls: Sequence[Call] = ()
    """The calls in it."""
    content: str = ""
    """All other text, without blanks around it."""


def _values() -> Iterator[tuple[str, Mapping[str, Any]]]:
    strings = {
        "a string": "Paris",
        "an empty string": "",
        "a string of lines": "a\nb",
        "quotes": "say \"hi\" and 'ho'",
        "a backslash": "C:\\new\\x",
        "braces": "}{][)(",
        "letters": "Zürich 你好 🎉",
        "a tag": "<b>x</b>",
        "a number as a string": "12",
        "a word as a string": "true",
    }
    for kind, text in strings.items():
        yield kind, {"s": text}
    others: dict[str, dict[str, Any]] = {
        "a whole number": {"i": 7},
        "a negative number": {"i": -7},
        "a long number": {"i": 12345678901234567890123},
        "a number": {"n": 2.5},
        "a word": {"b": True},
        "another word": {"b": False},
        "null": {"z": None},
        "a list": {"l": [1, "a", None]},
        "an empty list": {"l": []},
        "an object": {"o": {"k": "v", "m": 1.5}},
        "an empty object": {"o": {}},
        "objects within": {"o": {"k": {"l": [True, {"x": "y"}]}}},
        "several": {"s": "a", "i": 1, "b": True, "l": ["x"]},
        "a name that the schema lacks": {"other": "x"},
    }
    yield from others.items()


VALUES = tuple(_values())
"""Arguments of each kind, by name."""


def kinds(parser: str) -> dict[str, Kind]:
    """Texts of all kinds for a parser, by name."""
    write = WRITERS[parser]
    call: Call = ("f", {"s": "Paris", "i": 2})
    one, other = write([call]), write([("get_it", {"b": True})])
    half = one.index("Paris") + 3
    made = {
        "no text": Kind(""),
        "words": Kind("Hello there.", content="Hello there."),
        "brackets and tags": Kind("if a < b: [x](y) {z} </", content="if a < b: [x](y) {z} </"),
        "a call": Kind(one, [call]),
        "blanks around": Kind(f"\n{one}\n", [call]),
        "no arguments": Kind(write([("none", {})]), [("none", {})]),
        "two calls": Kind(write([call, ("none", {})]), [call, ("none", {})]),
        "three calls": Kind(write([call, call, ("get_it", {"n": 1})]), [call, call, ("get_it", {"n": 1})]),
        "words after": Kind(f"{one}\nDone.", [call], "Done."),
        "cut in a value": Kind(one[:half], [] if parser in HELD else [("f", {})], one[:half]),
    }
    if parser not in AT_THE_BEGINNING:
        both = [call, ("get_it", {"b": True})]
        made |= {
            "words before": Kind(f"I look it up.\n{one}", [call], "I look it up."),
            "a tag before": Kind(f"a < b\n\n{one}", [call], "a < b"),
            "words between": Kind(f"{one} and {other}", both, "and"),
            "calls apart": Kind(f"{one}\n\n{other}", both),
        }
        opening = one[: one.index("f", one.index("f") + 1) if parser == "phi4_mini_json" else one.index("f")]
        made["words in place of a call"] = Kind(f"{opening}? Or not.", content=f"{opening}? Or not.")
    ends = (*FORMATS[parser].end, "<tool_call|>")
    end = next((end for end in ends if one.endswith(end)), "")
    if end:
        made["no last marker"] = Kind(one.removesuffix(end), [call])
    is_known = parser in ("glm45", "glm47", "minimax_m2")
    stray = write([("unknown", {"s": "x"})])
    made["an unknown tool"] = (
        Kind(stray, content=stray) if is_known else Kind(stray, [("unknown", {"s": "x"})])
    )
    for name, given in VALUES:
        made[f"value: {name}"] = Kind(write([("f", given)]), [("f", given)])
    return made


_TEXTS = st.text("ab 0.,:;=}{][)('\"\\é🎉\n", max_size=8).map(str.strip)
_INNER = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats(-9, 9, width=16) | _TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("kl", min_size=1, max_size=2), inner),
    max_leaves=4,
)
_BY_NAME = {
    "s": _TEXTS,
    "i": st.integers(-(10**20), 10**20),
    "n": st.floats(-1e9, 1e9),
    "b": st.booleans(),
    "o": st.dictionaries(st.text("kl", min_size=1, max_size=2), _INNER, max_size=2),
    "l": st.lists(_INNER, max_size=3),
}
DRAWN_CALLS = st.lists(
    st.tuples(st.sampled_from(["f", "get_it"]), st.fixed_dictionaries({}, optional=_BY_NAME)),
    min_size=1,
    max_size=3,
)
"""Calls whose arguments have the types that the schema says."""
