"""Secrets of a settings file that only name a variable of the environment, as other servers' files may. Weir
reads no variables in its file: it would use such a name as the key itself.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_origin

from pydantic import BaseModel, SecretStr

from engine.upstream.address import UpstreamConfig
from proxy.settings.did_you_mean import Fault, Place, inner_types

_FORMS = {
    "os.environ/NAME": re.compile(r"\s*os\.environ/"),
    "${NAME}": re.compile(r".*\$\{", re.DOTALL),  # also within a URL
    "$NAME": re.compile(r"\s*\$[A-Za-z_]\w*\s*\Z"),
}
"""The forms in which other servers' files name a variable."""


def named_variables(content: Mapping[str, Any], settings: type[BaseModel]) -> list[Fault]:
    """A fault for each secret in the content of a settings file that has such a form. It quotes the form
    alone: what looks like a variable's name may be a password."""
    return [
        Fault(place, f"no variable is read here, and {form} would be used as it is{_instead(place)}")
        for place, text in _secrets(settings, content, ())
        for form in [_form_of(text)]
        if form
    ]


def _form_of(text: str) -> str | None:
    return next((form for form, pattern in _FORMS.items() if pattern.match(text)), None)


def _instead(place: Place) -> str:
    """The end of the message: how the secret stays out of the file."""
    names = [step for step in place if isinstance(step, str)]
    if names[-1] in ("url", "upstream"):
        return "; write the URL as it is, and name the variable of a key as api_key_env"
    if len(names) > 1:
        return "; name the variable as api_key_env of the upstream"
    return f"; set the variable WEIR_{names[0].upper()}, and leave {names[0]} out of the file"


def _secrets(annotation: Any, value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """The secrets in `value`, and the URLs of upstreams, which may have a password."""
    if get_origin(annotation) is list and not isinstance(value, list):
        # A list may be given as its only item, or as a text with commas.
        value = value.split(",") if isinstance(value, str) else [value]
    if isinstance(value, str) and annotation in (SecretStr, UpstreamConfig):
        yield place, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            is_url = annotation is UpstreamConfig and name == "url"
            for inner in [UpstreamConfig] if is_url else inner_types(annotation, name):
                yield from _secrets(inner, item, (*place, name))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            for inner in inner_types(annotation, i):
                yield from _secrets(inner, item, (*place, i))
