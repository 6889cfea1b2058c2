"""The names of parsers: options list them, and load no parser (`engine.parsers.registry`)."""

from engine.protocol.parts import Kind

REASONING_PARSERS = (
    "deepseek_r1",
    "glm45",
    "granite",
    "minimax_m2",
    "mistral",
    "olmo3",
    "openai_gptoss",
    "qwen3",
    "seed_oss",
    "step3",
)
TOOL_CALL_PARSERS = ("hermes", "llama3_json", "mistral", "openai")

PARSERS = Kind(
    "parser",
    "weir.parsers",
    {
        **dict.fromkeys(REASONING_PARSERS, "engine.parsers.reasoning:REASONING_MARKERS"),
        **dict.fromkeys(TOOL_CALL_PARSERS, "engine.parsers.registry:TOOL_CALL_FAMILIES"),
    },
)
"""A package adds a parser by an entry point, which names a `Markers` or a `ToolCalls` of `engine.parsers`."""


def known_parsers(option: str) -> tuple[str, ...]:
    """The names that `reasoning_parser` or `tool_call_parser` may have."""
    shipped = REASONING_PARSERS if option == "reasoning_parser" else TOOL_CALL_PARSERS
    return (*shipped, *(name for name in PARSERS.names() if name not in PARSERS.shipped))
