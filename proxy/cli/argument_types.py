"""Types of command-line arguments for `argparse`. Each reads a text, or raises an error that names the right
form."""

import argparse
import json
import math
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")


def json_object(text: str) -> dict[str, Any]:
    return _checked(text, json.loads, lambda value: isinstance(value, dict), "a JSON object")


def some_text(text: str) -> str:
    return _checked(text, str, bool, "a text")


def server_url(text: str) -> str:
    """A server may be named by its address alone."""
    return _checked(text if "://" in text else f"http://{text}", str, _is_http, "an http or https URL")


def _is_http(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0


def number(text: str) -> float:
    return _checked(text, float, lambda value: 0 < value < math.inf, "a number above 0")


def number_or_zero(text: str) -> float:
    return _checked(text, float, lambda value: 0 <= value < math.inf, "a number from 0 on")


def places(text: str) -> list[int]:
    return _checked(text, _whole_numbers, lambda numbers: min(numbers) > 0, "numbers from 1 on, as 18,32")


def _whole_numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _checked(text: str, kind: Callable[[str], T], is_good: Callable[[T], bool], wanted: str) -> T:
    try:
        if is_good(value := kind(text)):
            return value
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
