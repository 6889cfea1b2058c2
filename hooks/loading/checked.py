"""A decorator that checks a guard's arguments. The checking code loads with the first guard."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def checked(init: Callable[P, R]) -> Callable[P, R]:
    """Make an `__init__` raise `ValueError` for arguments that its annotations do not allow: `str`,
    `Sequence[str]`, `Literal["a", "b"]` or, with pydantic, `Annotated[int, Field(ge=1)]`.

    The arguments of every hook that a configuration names are checked so. This is for one whose arguments
    another hook hands on.
    """
    _, *names = inspect.signature(init).parameters

    @wraps(init)
    def check_first(*args: P.args, **kwargs: P.kwargs) -> R:
        from hooks.loading.arguments import check_arguments

        check_arguments(init, {**dict(zip(names, args[1:], strict=False)), **kwargs})
        return init(*args, **kwargs)

    return check_first
