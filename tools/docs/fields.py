"""Every field that clients send, by endpoint, and what becomes of it with each engine: `docs/fields.md`.

The fields are those of the SDKs' request types, vLLM's (`tools.docs.vllm_fields`), and Weir's own.
"""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, NamedTuple, get_args, get_type_hints

from anthropic.types.beta.message_create_params import MessageCreateParamsBase
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatParams
from openai.types.completion_create_params import CompletionCreateParamsBase as CompletionParams
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from typing_extensions import is_typeddict

from engine.protocol import parts
from engine.protocol.fields.support import FieldSupport, Treatment
from engine.protocol.fields.table import FIELDS, Relay
from proxy.wire.messages.fields import MessagesRequest
from proxy.wire.openai.chat import ChatRequest
from proxy.wire.openai.completions import CompletionRequest
from proxy.wire.openai.endpoint_fields import EndpointFields, names_of, options_of
from proxy.wire.openai.responses import ResponsesRequest
from tools.docs.vllm_fields import VERSION, VLLM_FIELDS

ENGINES: dict[str, FieldSupport] = {
    name: parts.ENGINES.load(name).fields for name in parts.ENGINES.shipped if name != "none"
}
"""The engines of `--engine` that generate."""


class Endpoint(NamedTuple):
    fields: type[EndpointFields]
    sdk_type: type
    api: str
    refused_by: tuple[str, ...] = ()
    """Engines that refuse every request of the endpoint."""

    @property
    def engines(self) -> list[str]:
        return [name for name in ENGINES if name not in self.refused_by]


ENDPOINTS = {
    "chat": Endpoint(ChatRequest, ChatParams, "OpenAI"),
    "completions": Endpoint(CompletionRequest, CompletionParams, "OpenAI", ("messages",)),
    "responses": Endpoint(ResponsesRequest, ResponseCreateParamsBase, "OpenAI"),
    "messages": Endpoint(MessagesRequest, MessageCreateParamsBase, "Messages"),
}
_HEADERS = {"betas", "user_profile_id", "workspace_id"}
"""Parameters that the SDK sends as headers."""


class FieldRow(NamedTuple):
    name: str
    api: str
    """The API or the server that has the field."""
    treatments: dict[str, Treatment]
    """By engine."""


def sources() -> str:
    """The versions that the fields are read from."""
    sdks = " and ".join(f"`{name}` {version(name)}" for name in ("openai", "anthropic"))
    return f"The fields are those of the Python packages {sdks}, of vLLM {VERSION}, and of Weir itself."


def rows(endpoint: str) -> Iterator[FieldRow]:
    """The endpoint's fields, in alphabetical order."""
    fields, _, api, _ = ENDPOINTS[endpoint]
    of_sdk, of_vllm = sdk_names(endpoint), VLLM_FIELDS[endpoint]
    for name in sorted(of_sdk | of_vllm | names_of(fields)):
        owner = api if name in of_sdk else "vLLM" if name in of_vllm else "Weir"
        engines = ENDPOINTS[endpoint].engines
        treatments = {engine: fields.treatment(name, ENGINES[engine]) for engine in engines}
        yield FieldRow(name, owner, treatments)


def relayed_rows() -> Iterator[tuple[str, str, str]]:
    """By server or API: the fields that an upstream gets, and those that the operator may let it have."""
    for dialect in dict.fromkeys(field.dialect for field in FIELDS.values()):
        by_default, by_name = (_named(dialect, relay) for relay in (Relay.BY_DEFAULT, Relay.BY_NAME))
        if by_default or by_name:
            yield dialect, by_default, by_name


def _named(dialect: str, relay: Relay) -> str:
    found = [one.name for one in FIELDS.values() if (one.dialect, one.relay) == (dialect, relay)]
    return ", ".join(f"`{name}`" for name in sorted(found) if "." not in name)


def sdk_names(endpoint: str) -> set[str]:
    """The names of the SDK's fields. An object of settings has dotted names, as in `names_of`."""
    fields, sdk_type, *_ = ENDPOINTS[endpoint]
    names = set[str]()
    for name, hint in get_type_hints(sdk_type).items():
        parts = [part for one in _typed_dicts(hint) for part in get_type_hints(one)]
        is_object = options_of(fields, name) is not None
        names |= {f"{name}.{part}" for part in parts} if is_object else {name}
    return names - _HEADERS


def _typed_dicts(hint: Any) -> Iterator[type]:
    """The objects of a type, or of the members of a union."""
    if is_typeddict(hint):
        yield hint
    for one in get_args(hint):
        yield from _typed_dicts(one)
