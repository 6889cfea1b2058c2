"""An answer that is an object of a class, whatever the model: `make serve`, then run this."""

import sys
from typing import Literal

from openai import OpenAI
from pydantic import BaseModel, Field


class Order(BaseModel):
    number: int = Field(ge=10000, le=99999)
    status: Literal["packed", "sent", "delivered"]
    days: list[Literal["monday", "tuesday", "friday"]] = Field(max_length=2)


url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"
client = OpenAI(base_url=url, api_key="not needed")
model = client.models.list().data[0].id

completion = client.chat.completions.parse(
    model=model, messages=[{"role": "user", "content": "Where is my order 48213?"}], response_format=Order
)
print(completion.choices[0].message.parsed)

answer = client.completions.create(
    model=model,
    prompt="Is the shop open on Sunday?",
    extra_body={"guided_choice": ["Yes.", "No.", "I do not know."]},
)
print(answer.choices[0].text)
