"""The agent's conversation, held by each official SDK for Python as its users write it."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import orjson

from tests.clients.agent import MODEL, MODES, PARAMETERS, SAID, SYSTEM, Mode, Turn, result_of
from tests.clients.endpoints import SDKs
from tests.clients.session import turn_of

Agent = Callable[[SDKs], Awaitable[list[Turn]]]


async def _ask(modes: Iterator[Mode], resource: Any, text_event: str, get_final: str, **asked: Any) -> Any:
    """The answer, asked for in the next mode. `text_event`: the helper's event for text. `get_final`: the
    helper's method for the whole answer."""
    mode = next(modes)
    if mode == "whole":
        return await resource.create(**asked)
    async with resource.stream(**asked) as stream:
        if mode == "stream":
            return await getattr(stream, get_final)()
        async for event in stream:
            if event.type == text_event:
                break
    return await _ask(modes, resource, text_event, get_final, **asked)


async def chat(sdks: SDKs) -> list[Turn]:
    resource = sdks.openai.chat.completions
    tools = [
        {"type": "function", "function": {"name": name, "parameters": parameters, "strict": True}}
        for name, parameters in PARAMETERS.items()
    ]
    messages: list[Any] = [{"role": "system", "content": SYSTEM}]
    modes, turns = iter(MODES), []
    asked = {"model": MODEL, "messages": messages, "tools": tools}
    for said in SAID:
        messages.append({"role": "user", "content": said})
        while True:
            answer = await _ask(modes, resource, "content.delta", "get_final_completion", **asked)
            turns.append(turn_of("/chat/completions", answer.to_dict()))
            message = answer.choices[0].message
            messages.append(message)
            for call in message.tool_calls or ():
                content, _ = result_of(call.function.name, orjson.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
            if not message.tool_calls:
                break
    return turns


async def responses(sdks: SDKs) -> list[Turn]:
    resource = sdks.openai.responses
    tools = [
        {"type": "function", "name": name, "parameters": parameters, "strict": True}
        for name, parameters in PARAMETERS.items()
    ]
    items: list[Any] = []
    modes, turns = iter(MODES), []
    asked = {"model": MODEL, "instructions": SYSTEM, "input": items, "tools": tools, "store": False}
    for said in SAID:
        items.append({"role": "user", "content": said})
        while True:
            answer = await _ask(modes, resource, "response.output_text.delta", "get_final_response", **asked)
            turns.append(turn_of("/responses", answer.to_dict()))
            items += answer.output
            calls = [item for item in answer.output if item.type == "function_call"]
            for call in calls:
                content, _ = result_of(call.name, orjson.loads(call.arguments))
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": content})
            if not calls:
                break
    return turns


async def messages(sdks: SDKs) -> list[Turn]:
    resource = sdks.anthropic.messages
    tools = [{"name": name, "input_schema": parameters} for name, parameters in PARAMETERS.items()]
    turns_so_far: list[Any] = []
    modes, turns = iter(MODES), []
    asked = {"model": MODEL, "max_tokens": 256, "system": SYSTEM, "messages": turns_so_far, "tools": tools}
    for said in SAID:
        turns_so_far.append({"role": "user", "content": said})
        while True:
            answer = await _ask(modes, resource, "text", "get_final_message", **asked)
            turns.append(turn_of("/messages", answer.to_dict()))
            turns_so_far.append({"role": "assistant", "content": answer.content})
            results = []
            for call in (block for block in answer.content if block.type == "tool_use"):
                content, is_error = result_of(call.name, call.input)
                result = {"type": "tool_result", "tool_use_id": call.id, "content": content}
                results.append({**result, "is_error": is_error})
            if not results:
                break
            turns_so_far.append({"role": "user", "content": results})
    return turns


AGENTS: dict[str, Agent] = {"chat": chat, "responses": responses, "messages": messages}
