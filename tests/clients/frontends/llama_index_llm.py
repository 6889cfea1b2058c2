"""LlamaIndex: `llama_index_llm.py ADDRESS`."""

from typing import Any

from llama_index.core.program import FunctionCallingProgram
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel
from report import BASE_URL, MODEL, asking, filling_in, report


class Report(BaseModel):
    """A report on the weather."""

    city: str
    degrees: int


llm = OpenAILike(
    model=MODEL,
    api_base=f"{BASE_URL}/v1",
    api_key="-",
    is_chat_model=True,
    is_function_calling_model=True,
    max_retries=0,
)


def ask(question: str) -> Any:
    last = None
    pieces = []
    for last in llm.stream_complete(question):
        pieces.append(last.delta)
    return {"text": "".join(pieces), "finish": last.raw.choices[0].finish_reason if last else None}


def use_tool() -> Any:
    calls: list[Any] = []

    def get_weather(city: str) -> str:
        """The weather in a city."""
        calls.append({"city": city})
        return f"21 degrees in {city}"

    tool = FunctionTool.from_defaults(get_weather)
    return {"text": str(llm.predict_and_call([tool], "How is the weather?")), "calls": calls}


def fill_in(question: str) -> Any:
    program = FunctionCallingProgram.from_defaults(Report, question, llm=llm)
    return program().model_dump()


report(**asking(ask), tools=use_tool, **filling_in(fill_in))
