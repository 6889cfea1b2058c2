"""The engines by name. A package adds an engine by an entry point, which names a class. The class gets the
settings' `engine_options` as keyword arguments."""

from engine.protocol.parts import Kind

ENGINES = Kind(
    "engine",
    "weir.engines",
    {
        "local": "engine.local.engine:LocalEngine",
        "vllm": "engine.vllm.engine:VLLMEngine",
        "openai": "engine.upstream.openai.engine:OpenAIEngine",
        "messages": "engine.upstream.messages.engine:MessagesEngine",
        "replay": "engine.upstream.replay:ReplayEngine",
        "echo": "engine.upstream.echo:EchoEngine",
        "none": "engine.upstream.none:NoEngine",
    },
)
