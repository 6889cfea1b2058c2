"""The APIs of upstream servers: the engine that speaks each, and the options that it alone has."""

from collections.abc import Mapping

from pydantic import BaseModel

from engine.upstream.messages.options import MessagesOptions
from engine.upstream.openai.options import OpenAIOptions

DIALECTS: Mapping[str, type[BaseModel]] = {"openai": OpenAIOptions, "messages": MessagesOptions}
"""The engine takes its options by the dialect's name."""
