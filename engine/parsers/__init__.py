"""Parsers split a model's output into channels: content, reasoning, and each tool call (contract 5.4).

    engine's deltas ─► reasoning parser ─► tool-call parser ─► the guard

Parsers work on values, and know neither HTTP nor hooks. If an engine already fills a channel, its deltas pass
unchanged, and the parser for this channel steps aside.

`reasoning`, `formats` and `harmony` know the formats of models: `reasoning` and `formats` are tables, and
`call_format` reads the calls. Parsers are written with `scan`, read from a `tape`, and an `OutputParser` runs
them. `registry` knows them by name, and `suggested` finds the one that a chat template shows. A package may
add parsers of its own: a `Markers` for reasoning, a `Format` or a `ToolCalls` for tool calls
(`engine.protocol.parts.PARSERS`).
"""

from engine.parsers.call_format import Format
from engine.parsers.reasoning import Markers
from engine.parsers.registry import Parsers, Parsing, ToolCalls
from engine.protocol.parts import REASONING_PARSERS, TOOL_CALL_PARSERS

__all__ = ["REASONING_PARSERS", "TOOL_CALL_PARSERS", "Format", "Markers", "Parsers", "Parsing", "ToolCalls"]
