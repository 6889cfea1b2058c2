"""instructor, by tools and by a JSON schema: `instructor_client.py ADDRESS`. It only fills in objects."""

from typing import Any

import instructor
from openai import OpenAI
from pydantic import BaseModel
from report import BASE_URL, MODEL, filling_in, report


class Report(BaseModel):
    city: str
    degrees: int


def fill_in(question: str, mode: instructor.Mode = instructor.Mode.TOOLS) -> Any:
    openai = OpenAI(base_url=f"{BASE_URL}/v1", api_key="-", max_retries=0)
    client = instructor.from_openai(openai, mode=mode)
    messages = [{"role": "user", "content": question}]
    return client.create(model=MODEL, messages=messages, response_model=Report, max_retries=1).model_dump()


report(
    **filling_in(fill_in),
    json_schema=lambda: fill_in("Fill in the form.", instructor.Mode.JSON_SCHEMA),
    json_schema_ended=lambda: fill_in("Fill in the form of bluebird.", instructor.Mode.JSON_SCHEMA),
    refused=lambda: fill_in("Fill in the form: my password is hunter2."),
)
