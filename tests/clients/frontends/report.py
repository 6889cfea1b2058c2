"""The tries that the scripts of this folder share. Each script prints what a user of one library sees."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

BASE_URL = sys.argv[1]
"""Weir's address, without `/v1`."""
MODEL = "scripted"


def report(**tries: Callable[[], Any]) -> None:
    """Print the result of each try as a line of JSON, or the error that the library raised."""
    for name, run in tries.items():
        try:
            result = run()
        except Exception as error:  # noqa: BLE001 - the error is the result
            result = {"raised": type(error).__name__, "told": str(error)}
        print(json.dumps({name: result}), flush=True)


def filling_in(fill_in: Callable[[str], Any]) -> Mapping[str, Callable[[], Any]]:
    """The tries of a structured answer: `fill_in` returns the object of an answer."""
    return {
        "structured": lambda: fill_in("Fill in the form."),
        "structured_ended": lambda: fill_in("Fill in the form of bluebird."),
    }


def asking(ask: Callable[[str], Any]) -> Mapping[str, Callable[[], Any]]:
    """The tries that need only a question: `ask` returns what a user sees."""
    return {
        "answer": lambda: ask("What is the answer?"),
        "redacted": lambda: ask("What is the address?"),
        "ended": lambda: ask("Tell me of bluebird."),
        "closed": lambda: ask("Tell me of osprey."),
        "refused": lambda: ask("My password is hunter2."),
        "replied": lambda: ask("My password is hunter3."),
        "failed": lambda: ask("Please fail."),
    }
