"""The parser of tool calls that a model's chat template suggests, by the markers that the template has."""

from collections.abc import Mapping
from typing import NamedTuple

from engine.protocol.parts import AUTO_PARSER

MARKERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "deepseek_v3": (("<｜tool▁calls▁begin｜>", "```json"),),
    "deepseek_v31": (("<｜tool▁calls▁begin｜>",),),
    "deepseek_v32": (("｜DSML｜", "function_calls>"),),
    "deepseek_v4": (("｜DSML｜", "tool_calls>"),),
    "ernie45": (("<tool_call>", "<response>"),),
    "gemma4": (("<|tool_call>",),),
    "glm45": (("<tool_call>", "<arg_key>"),),
    "granite": (("<|tool_call|>",),),
    "granite4": (("<tool_call>", "<|start_of_role|>"),),
    "hermes": (("<tool_call>",),),
    "hunyuan_a13b": (("<tool_calls>",),),
    "kimi_k2": (("<|tool_calls_section_begin|>",),),
    "llama3_json": (("<|python_tag|>",), ('"parameters": dictionary',)),
    "llama4_pythonic": (("<|python_start|>",), ("[func_name1(", "<|header_start|>")),
    "longcat": (("<longcat_tool_call>",),),
    "minimax_m2": (("<minimax:tool_call>",),),
    "mistral": (("[TOOL_CALLS]",),),
    "olmo3": (("<function_calls>",),),
    "openai": (("<|channel|>", "<|constrain|>"),),
    "phi4_mini_json": (("functools[",),),
    "pythonic": (("[func_name1(",),),
    "qwen3_coder": (("<tool_call>", "<function="),),
    "seed_oss": (("<seed:tool_call>",),),
    "step3": (("steptml:invoke",),),
    "xlam": (('{"name": "tool_call_name"',),),
}
"""By parser: texts that its families' chat templates have together. Several: one group of texts is enough.
Parsers of the same format are named once."""


class Suggestion(NamedTuple):
    parser: str
    markers: tuple[str, ...]
    """The texts of the template that show it."""


def suggested(template: str) -> Suggestion | None:
    """The parser whose markers the template has. Of several parsers, it is the one with the most markers."""
    found = [
        Suggestion(parser, markers)
        for parser, groups in MARKERS.items()
        for markers in groups
        if all(marker in template for marker in markers)
    ]
    return max(found, key=lambda one: len(one.markers), default=None)


def chosen_parser(name: str | None, template: str) -> str | None:
    """The parser of tool calls of this name. `auto` is the one that the template suggests, or none."""
    if name != AUTO_PARSER:
        return name
    found = suggested(template)
    return found.parser if found else None
