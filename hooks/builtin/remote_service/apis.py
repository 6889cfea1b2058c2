"""The APIs that the guard `remote` speaks, by their names, and the arguments of each."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from hooks.builtin.remote_service.api import Api
from hooks.builtin.remote_service.bedrock import Bedrock
from hooks.builtin.remote_service.fms import Fms
from hooks.builtin.remote_service.litellm import LiteLlm
from hooks.builtin.remote_service.moderations import Moderations
from hooks.builtin.remote_service.nemo import Nemo
from hooks.builtin.remote_service.service import DetectorService


def _with_its_new_name(name: Any) -> Any:
    if name == "contents":
        raise ValueError("contents is called fms now")
    return name


ApiName = Annotated[
    Literal["moderations", "fms", "litellm", "bedrock", "nemo"], BeforeValidator(_with_its_new_name)
]
_APIS: dict[str, type[Api[Any]]] = {
    "moderations": Moderations,
    "fms": Fms,
    "litellm": LiteLlm,
    "bedrock": Bedrock,
    "nemo": Nemo,
}


def make_api(name: ApiName, service: DetectorService, arguments: Mapping[str, Any]) -> Api[Any]:
    """`arguments`: those of all APIs; None: not given. Raises `ValueError` for one that the API does not
    have, and for a missing one."""
    given = {argument: value for argument, value in arguments.items() if value is not None}
    for argument in given:
        owners = [owner for owner, api in _APIS.items() if argument in _arguments(api)]
        if name not in owners:
            raise ValueError(f"{argument} is of api: {', '.join(owners)}")
    needed = [argument for argument, is_needed in _arguments(_APIS[name]).items() if is_needed]
    if missing := [argument for argument in needed if argument not in given]:
        raise ValueError(f"{name} needs {', '.join(missing)}")
    return _APIS[name](service=service, **given)


def _arguments(api: type[Api[Any]]) -> dict[str, bool]:
    """The API's arguments, and whether it needs them."""
    own = [one for one in fields(api) if one.name != "service"]
    return {one.name: one.default is MISSING and one.default_factory is MISSING for one in own}
