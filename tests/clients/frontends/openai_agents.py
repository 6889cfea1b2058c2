"""The OpenAI Agents SDK: `openai_agents.py ADDRESS chat|responses`."""

import asyncio
import sys
from typing import Any

from agents import (
    Agent,
    AsyncOpenAI,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel
from report import BASE_URL, MODEL, asking, filling_in, report

run = asyncio.Runner().run


class Report(BaseModel):
    city: str
    degrees: int


set_tracing_disabled(True)
kinds: dict[str, Any] = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


def agent(**options: Any) -> Agent:
    client = AsyncOpenAI(base_url=f"{BASE_URL}/v1", api_key="-", max_retries=0)
    return Agent(name="Tried", model=kinds[sys.argv[2]](model=MODEL, openai_client=client), **options)


async def stream(question: str) -> Any:
    streamed = Runner.run_streamed(agent(), question)
    pieces = [
        event.data.delta
        async for event in streamed.stream_events()
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent)
    ]
    assert streamed.final_output == "".join(pieces)
    return {"text": streamed.final_output}


def use_tool() -> Any:
    calls: list[Any] = []

    @function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        calls.append({"city": city})
        return f"21 degrees in {city}"

    ended = run(Runner.run(agent(tools=[get_weather]), "How is the weather?"))
    return {"text": ended.final_output, "calls": calls}


def fill_in(question: str) -> Any:
    ended = run(Runner.run(agent(output_type=Report), question))
    return ended.final_output.model_dump()


report(**asking(lambda question: run(stream(question))), tools=use_tool, **filling_in(fill_in))
