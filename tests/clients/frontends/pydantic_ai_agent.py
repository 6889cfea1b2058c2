"""Pydantic AI: `pydantic_ai_agent.py ADDRESS chat|responses|anthropic`."""

import asyncio
import sys
from typing import Any

from anthropic import AsyncAnthropic
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from report import BASE_URL, MODEL, asking, filling_in, report

run = asyncio.Runner().run


class Report(BaseModel):
    city: str
    degrees: int


def agent(**options: Any) -> Agent[None, Any]:
    if sys.argv[2] == "anthropic":
        client = AsyncAnthropic(base_url=BASE_URL, api_key="-", max_retries=0)
        return Agent(AnthropicModel(MODEL, provider=AnthropicProvider(anthropic_client=client)), **options)
    kind = OpenAIChatModel if sys.argv[2] == "chat" else OpenAIResponsesModel
    return Agent(kind(MODEL, provider=OpenAIProvider(base_url=f"{BASE_URL}/v1", api_key="-")), **options)


async def stream(question: str) -> Any:
    async with agent().run_stream(question) as streamed:
        pieces = [piece async for piece in streamed.stream_text(delta=True)]
        return {"text": "".join(pieces), "finish": streamed.response.finish_reason}


def use_tool() -> Any:
    calls: list[Any] = []

    def get_weather(city: str) -> str:
        """The weather in a city."""
        calls.append({"city": city})
        return f"21 degrees in {city}"

    ended = run(agent(tools=[get_weather]).run("How is the weather?"))
    return {"text": ended.output, "calls": calls}


def fill_in(question: str) -> Any:
    return run(agent(output_type=Report).run(question)).output.model_dump()


report(**asking(lambda question: run(stream(question))), tools=use_tool, **filling_in(fill_in))
