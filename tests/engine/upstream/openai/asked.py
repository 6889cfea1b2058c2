"""Requests for tests of the upstream engine."""

from typing import Any

from engine.protocol import GenerationRequest

HI = ({"role": "user", "content": "Hi"},)


def chat(**fields: Any) -> GenerationRequest:
    return GenerationRequest(**{"request_id": "r", "model": "m", "endpoint": "chat", "messages": HI} | fields)


def completion(*prompts: Any, **fields: Any) -> GenerationRequest:
    asked = {"request_id": "r", "model": "m", "endpoint": "completions", "prompts": prompts}
    return GenerationRequest(**asked | fields)
