"""The APIs of upstream servers, by the name of the engine that speaks each."""

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import BaseModel

from engine.upstream.messages.options import MessagesOptions
from engine.upstream.openai.options import OpenAIOptions


class Dialect(NamedTuple):
    engine: str
    """The import path of the `UpstreamEngine`. It takes its own options by the dialect's name."""
    options: type[BaseModel]


DIALECTS: Mapping[str, Dialect] = {
    "openai": Dialect("engine.upstream.openai.engine:OpenAIEngine", OpenAIOptions),
    "messages": Dialect("engine.upstream.messages.engine:MessagesEngine", MessagesOptions),
}
