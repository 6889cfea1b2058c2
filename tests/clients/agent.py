"""A conversation of an agent with tools, and the model's part in it.

The model says the reply that belongs to the last message. So every engine that plays this model gives every
client the same answers, in whichever API the client asks.
"""

from dataclasses import dataclass
from typing import Any, Literal

import orjson

JSONObject = dict[str, Any]

MODEL = "agent"
SYSTEM = "You are Wren, the assistant of a shop."
SAID = ("Where are my orders 48213 and 99001?", "Your call was malformed. Send a mail.", "And in one word?")
"""What the user says. Each time, the agent asks the model until it calls no tool."""

Mode = Literal["stream", "whole", "leave"]
MODES: tuple[Mode, ...] = ("stream", "whole", "stream", "leave", "stream", "whole")
"""How the agent asks, request by request. `leave`: it reads the beginning, leaves, and asks again."""

PARAMETERS = {
    "look_up": {
        "type": "object",
        "properties": {"order": {"type": "string"}},
        "required": ["order"],
        "additionalProperties": False,
    },
    "mail": {
        "type": "object",
        "properties": {"to": {"type": "string"}, "text": {"type": "string"}},
        "required": ["to", "text"],
        "additionalProperties": False,
    },
}
"""The tools' parameters, by their names."""


def result_of(name: str, arguments: JSONObject) -> tuple[str, bool]:
    """The result of a call, and whether the tool failed."""
    if name == "mail":
        return "Sent.", False
    if arguments["order"] != "48213":
        return f"There is no order {arguments['order']}.", True
    return "On its way.", False


@dataclass(frozen=True)
class Turn:
    """The model's answer to one request, in no API's words."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, JSONObject], ...] = ()
    """Each call's name, and its arguments as an object."""
    reason: Literal["stop", "tool_calls"] = "stop"
    """Why the answer ended."""

    @property
    def raw(self) -> str:
        """The model's own words."""
        calls = [orjson.dumps({"name": name, "arguments": given}).decode() for name, given in self.calls]
        thought = f"<think>{self.reasoning}</think>" if self.reasoning else ""
        return thought + self.text + "".join(f"<tool_call>{call}</tool_call>" for call in calls)


LONG = "I have sent the mail to the team of the shop, and they will look for your order. " * 3

REPLIES = {
    "48213 and 99001": Turn(
        "I look both up.",
        "Two orders, two calls.",
        (("look_up", {"order": "48213"}), ("look_up", {"order": "99001"})),
        "tool_calls",
    ),
    # The arguments are no object, so it is no call.
    "no order 99001": Turn('I try again. <tool_call>{"name": "mail", "arguments": "99001"}</tool_call>'),
    "malformed": Turn(
        calls=(("mail", {"to": "ops@millrace.initech.com", "text": "No order 99001?"}),), reason="tool_calls"
    ),
    "Sent.": Turn(LONG, "The mail is sent."),
    "one word": Turn("Soon.", "One word."),
}
"""The model's answers, by a part of the message that they belong to."""

TURNS = tuple(REPLIES.values())
"""The answers, in the order of the conversation."""


def reply_to(prompt: str) -> Turn:
    """The answer that belongs to the end of the prompt."""
    return REPLIES[max(REPLIES, key=prompt.rfind)]
