"""Guardrail hooks: the names that a guard's author needs.

    from hooks import Chunk, Verdict, emit, terminate

    class NoDigits:
        def __call__(self, chunk: Chunk) -> Verdict:
            return terminate("digits") if any(map(str.isdigit, chunk.pending)) else emit(chunk.pending)

The names of TensorRT-LLM's post-processor hook are exported as well, so that a hook written for it runs
here when only its import line changes. Every `hooks/` folder on `sys.path` is part of this package: a
deployment's own `hooks/acme.py` is importable as `hooks.acme`.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)

from engine.protocol import Channel, GenerationRequest, Usage
from hooks.api import (
    Chunk,
    Hook,
    PostProcessorHook,
    PostProcessorHookChunk,
    PostProcessorHookVerdict,
    PromptTooLongError,
    Restored,
    Span,
    Verdict,
    ask,
    emit,
    hold,
    redact,
    rewind,
    suppress,
    suspect,
    terminate,
    trace_headers,
)
from hooks.api.decision import Decision
from hooks.api.probe_needs import ProbeNeeds
from hooks.loading.checked import checked
from hooks.prompts.media import PromptMedium, prompt_media
from hooks.prompts.sources import Source, Voice, voice_of, voice_of_field, voice_of_part
from hooks.prompts.texts import PromptText, Refusal, prompt_texts, refuse, with_prompt_texts

__all__ = [
    "Channel",
    "Chunk",
    "Decision",
    "GenerationRequest",
    "Hook",
    "PostProcessorHook",
    "PostProcessorHookChunk",
    "PostProcessorHookVerdict",
    "ProbeNeeds",
    "PromptMedium",
    "PromptText",
    "PromptTooLongError",
    "Refusal",
    "Restored",
    "Source",
    "Span",
    "Usage",
    "Verdict",
    "Voice",
    "ask",
    "checked",
    "emit",
    "hold",
    "prompt_media",
    "prompt_texts",
    "redact",
    "refuse",
    "rewind",
    "suppress",
    "suspect",
    "terminate",
    "trace_headers",
    "voice_of",
    "voice_of_field",
    "voice_of_part",
    "with_prompt_texts",
]
