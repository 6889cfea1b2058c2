"""LangChain's models, and an agent of LangGraph: `langchain_agent.py ADDRESS openai|responses|anthropic`."""

import sys
from typing import Any

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from report import BASE_URL, MODEL, asking, filling_in, report


class Report(BaseModel):
    city: str
    degrees: int


models: dict[str, Any] = {
    "openai": lambda: ChatOpenAI(base_url=f"{BASE_URL}/v1", api_key="-", model=MODEL, max_retries=0),
    "responses": lambda: ChatOpenAI(
        base_url=f"{BASE_URL}/v1", api_key="-", model=MODEL, max_retries=0, use_responses_api=True
    ),
    "anthropic": lambda: ChatAnthropic(base_url=BASE_URL, api_key="-", model_name=MODEL, max_retries=0),
}
model = models[sys.argv[2]]()


def ask(question: str) -> Any:
    whole = None
    for chunk in model.stream(question):
        whole = chunk if whole is None else whole + chunk
    metadata = whole.response_metadata
    finish = (
        metadata.get("finish_reason") or metadata.get("stop_reason") or metadata.get("incomplete_details")
    )
    return {"text": whole.text, "finish": finish}


def use_tool() -> Any:
    calls: list[Any] = []

    def get_weather(city: str) -> str:
        """The weather in a city."""
        calls.append({"city": city})
        return f"21 degrees in {city}"

    ended = create_agent(model, [get_weather]).invoke({"messages": [("user", "How is the weather?")]})
    return {"text": ended["messages"][-1].text, "calls": calls}


def fill_in(question: str) -> Any:
    return model.with_structured_output(Report).invoke(question).model_dump()


report(**asking(ask), tools=use_tool, **filling_in(fill_in))
