"""Parsers split what a model wrote into channels: content, reasoning, and each tool call (contract 5.4).

    engine's deltas ─► reasoning parser ─► tool-call parser ─► the guard

Values in, values out: they know neither HTTP nor hooks. What an engine already gives on a channel of its own
passes through as it is, and the parser for that channel steps aside.
"""

from engine.parsers.registry import REASONING_PARSERS, TOOL_CALL_PARSERS, Parsers, parsed

__all__ = ["REASONING_PARSERS", "TOOL_CALL_PARSERS", "Parsers", "parsed"]
