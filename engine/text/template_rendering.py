"""Renders chat templates as transformers does (`transformers.utils.chat_template_utils`), without its import.

A template comes with a model, from strangers. It runs in Jinja's sandbox, and sees values of JSON's types
alone.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2.ext
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

RESERVED = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "kwargs",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "sanitize_control_tokens",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)
"""Names of arguments that transformers' `apply_chat_template` takes itself, so that no template gets them
from a caller."""
REASONING = ("reasoning_content", "thinking", "reasoning")
"""The names of a message's reasoning. Templates read the first, and some the second."""
_END_MARK = "CONTINUE_FINAL_MESSAGE_TAG "


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    /,
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = False,
    continue_final_message: bool = False,
    **variables: Any,
) -> str:
    """The chat as text. With `continue_final_message` it ends with the last message's text. Raises
    `jinja2.TemplateError` and what the template's own operations raise, and `ValueError` for a last message
    that cannot be continued."""
    compiled = _compiled(template)
    chat = [_message(message) for message in messages]
    end = _mark_end(chat[-1], template) if continue_final_message else None
    text = compiled.render(
        messages=chat,
        tools=_plain(tools),
        documents=None,
        add_generation_prompt=add_generation_prompt,
        **{name: _plain(value) for name, value in variables.items()},
    )
    return text if end is None else _cut(text, end)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Without the fields that are null, which some templates write, and with its reasoning under the names
    that templates read."""
    plain: dict[str, Any] = _plain({key: value for key, value in message.items() if value is not None})
    reasoning = next((plain[name] for name in REASONING if plain.get(name) is not None), None)
    if reasoning is not None:
        plain = {"thinking": reasoning, **plain, "reasoning_content": reasoning}
    return plain


def _plain(value: Any) -> Any:
    """The value in JSON's own types. Others may have methods that the sandbox does not know for dangerous."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    return f"<{type(value).__name__}>"


def _mark_end(message: dict[str, Any], template: str) -> str:
    """Mark where the message's text ends, and return the text. Raises `ValueError` if it has none."""
    content = message.get("content")
    if content is None or "content" not in template:
        raise ValueError("the last message has no content that the template writes")
    if not isinstance(content, list | tuple):
        message["content"] = content + _END_MARK
        return str(content)
    for part in reversed(content):
        if "text" in part:
            text: str = part["text"]
            part["text"] = text + _END_MARK
            return text
    raise ValueError("the last message has no text")


def _cut(text: str, end: str) -> str:
    """The text up to the mark. A template that strips contents has taken the mark's last space, and then the
    spaces before the mark go too."""
    mark = _END_MARK.strip()
    if end.strip() not in text or mark not in text:
        raise ValueError("the template does not write the last message as it is")
    at = text.rindex(mark)
    return text[:at] if text.startswith(_END_MARK, at) else text[:at].rstrip()


@lru_cache
def _compiled(template: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return environment.from_string(template)


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks the model's own texts for training. Here its body is written as it is, in a
    scope of its own."""

    tags = {"generation"}  # noqa: RUF012 (Jinja declares it so)

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_written"), [], [], body).set_lineno(line)

    def _written(self, caller: Any) -> str:
        text: str = caller()
        return text


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike Jinja's own filter, it escapes no HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


class _Dict:
    """`dict` without the attributes of a class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """A namespace whose names do not reach the insides of Python."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        values = dict(*rest, **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace takes no name that begins with an underscore: {name!r}")
