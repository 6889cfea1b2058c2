"""A configuration's arguments have the types that the hook's `__init__` declares (contract 1.1, 1.4)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypedDict, Unpack

import pytest
from pydantic import BaseModel, Field

from hooks import checked
from hooks.loading.arguments import ArgumentError, check_arguments

if TYPE_CHECKING:
    from decimal import Decimal


class Colour(Enum):
    RED = "red"


class Limits(BaseModel):
    most: int


@dataclass
class Span:
    start: int


class Judge(Protocol):
    def isdigit(self) -> bool: ...


class More(TypedDict, total=False):
    action: Literal["stop", "go"]
    share: Annotated[float, Field(ge=0, le=1)]


class Guard:
    def __init__(
        self,
        words: Sequence[str] = (),
        *,
        many: Mapping[str, int] | Sequence[int] = (),
        path: Path = Path(),
        pair: tuple[str, int] = ("", 0),
        names: frozenset[str] = frozenset(),
        colour: Colour = Colour.RED,
        limits: Limits | None = None,
        span: Span | None = None,
        judge: Callable[[str], bool] = bool,
        stream: Iterable[str] = (),
        is_on: bool = True,
        like: Judge | None = None,
        anything: Any = None,
        bare=None,
        **more: Unpack[More],
    ) -> None:
        self.words = words


class Open:
    def __init__(self, words: Sequence[str] = (), **more: int) -> None:
        pass


class Typed:
    def __init__(self, amount: "Decimal") -> None:
        pass


@pytest.fixture(autouse=True)
def mode() -> str:
    """No stream is run."""
    return "in-process"


def problem(init: Callable[..., Any], **arguments: Any) -> str | None:
    try:
        check_arguments(init, arguments)
    except ArgumentError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"words": ["a"]},
        {"words": ("a",)},
        {"many": {"a": 1}},
        {"many": [1]},
        # as a configuration says them
        {"path": "a/b", "pair": ["a", 1], "names": ["a"], "colour": "red"},
        {"limits": {"most": 1}, "span": {"start": 1}},
        # and as Python does
        {"path": Path("a"), "pair": ("a", 1), "names": frozenset("a"), "colour": Colour.RED},
        {"limits": Limits(most=1), "span": Span(1), "judge": str.isdigit, "stream": iter("abc")},
        {"share": 1, "action": "go"},
        {"anything": object(), "bare": "no", "like": "1"},
    ],
    ids=",".join,
)
def test_what_is_as_annotated_passes(arguments: dict[str, Any]) -> None:
    assert problem(Guard.__init__, **arguments) is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"is_on": "no"}, "is_on: Input should be a valid boolean"),
        ({"is_on": 1}, "is_on: Input should be a valid boolean"),
        ({"words": "abc"}, "words: Input should be a valid array"),
        ({"words": ["a", 5]}, "words[1]: Input should be a valid string"),
        ({"words": None}, "words: Input should be a valid array"),
        ({"many": {"a": "1"}}, "many.a: Input should be a valid integer"),
        ({"many": ["1"]}, "many[0]: Input should be a valid integer"),
        ({"many": 5}, "many: Input should be an object or Input should be a valid array"),
        ({"colour": "blue"}, "colour: Input should be 'red'"),
        ({"limits": {"most": "1"}}, "limits.most: Input should be a valid integer"),
        ({"limits": {}}, "limits: Field required: 'most'"),
        ({"pair": ["a"]}, "pair: Field required: 1"),
        ({"pair": ["a", 1, 2]}, "pair: Tuple should have at most 2 items"),
        ({"span": 5}, "span: Input should be an object"),
        ({"judge": "str"}, "judge: Input should be callable"),
        ({"action": "halt"}, "action: Input should be 'stop' or 'go'"),
        ({"share": 1.5}, "share: Input should be less than or equal to 1"),
        ({"sahre": 1}, "unexpected keyword argument 'sahre'; did you mean 'share'?"),
        ({"self": 1}, "unexpected keyword argument 'self'; there are words, many, path"),
        ({"is_on": 2, "words": [3], "x_y_z": 4}, "is_on: .*; words.0.: .*; unexpected .* 'x_y_z'"),
    ],
    ids=",".join,
)
def test_what_is_not_is_named(arguments: dict[str, Any], says: str) -> None:  # contract 1.8
    found = problem(Guard.__init__, **arguments)
    assert found is not None
    assert re.match(says if ".*" in says else re.escape(says), found)


def test_where_any_name_goes_its_type_counts() -> None:
    assert problem(Open.__init__, any_name=5) is None
    assert problem(Open.__init__, any_name="5") == "any_name: Input should be a valid integer"


def test_an_annotation_that_cannot_be_looked_up_lets_pass_and_names_still_count() -> None:
    assert problem(Typed.__init__, amount="1.5") is None
    assert problem(Typed.__init__, amuont=1) == "unexpected keyword argument 'amuont'; did you mean 'amount'?"


def test_nothing_is_changed_or_used_up() -> None:
    class Checked(Guard):
        @checked
        def __init__(self, words: Sequence[str] = (), stream: Iterable[str] = ()) -> None:
            super().__init__(words)
            self.stream = stream

    words, stream = ["a"], iter("ab")
    guard = Checked(words, stream=stream)
    assert guard.words is words
    assert [*guard.stream] == ["a", "b"]
    with pytest.raises(ArgumentError, match="words: Input should be a valid array"):
        Checked("ab")
