"""The names of the parsers that ship: options list them, and load no parser (`engine.parsers.registry`)."""

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
