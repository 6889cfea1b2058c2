"""Guard models for tests: chat templates as the families' published prompts show them, tokenizers with the
families' special tokens, and engines that play a guard model."""

import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from engine.core.input_processor import FIELDS
from engine.protocol import Delta, Engine, GenerationRequest, Token, TopLogprob
from engine.protocol.fields.support import FieldSupport
from engine.sources.model_tokenizer import ModelTokenizer
from engine.text.tokenizer import LocalTokenizer
from tests.helpers import ScriptedEngine

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
"""The pattern by which Llama 3 and Qwen3 cut a text."""
SPECIAL = (
    *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<|header_start|>", "<|header_end|>", "<|eot|>"),
    *("<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "[/INST]", "<bos>", "<start_of_turn>"),
    *("<end_of_turn>", "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"),
    *("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>"),
)
_OPENING = (
    "Task: Check if there is unsafe content in '{{ judged }}' messages in conversations {{ according }} our "
    "safety policy with the below categories.\n\n<BEGIN UNSAFE CONTENT CATEGORIES>\nS1: Violent Crimes.\n"
    "S2: Non-Violent Crimes.\nS10: Hate.\n<END UNSAFE CONTENT CATEGORIES>\n\n<BEGIN CONVERSATION>\n\n"
)
_CLOSING = (
    "<END CONVERSATION>\n\nProvide your safety assessment for ONLY THE LAST {{ judged }} message in the "
    "above conversation:\n - First line must read 'safe' or 'unsafe'.\n - If unsafe, a second line must "
    "include a comma-separated list of violated categories. "
)
_ALTERNATING = """\
{%- for message in messages -%}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('roles must alternate') }}\
{%- endif -%}
{%- endfor -%}
{%- set judged = 'User' if messages | length % 2 == 1 else 'Agent' -%}
"""


def _llama_guard(content: str, *, version: int = 3, ends: str = "") -> str:
    begin, open_, close, end = (
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
        if version == 3
        else ("<|begin_of_text|>", "<|header_start|>", "<|header_end|>", "<|eot|>")
    )
    according = "according" if version == 3 else "according to"
    return (
        _ALTERNATING
        + f"{{%- set according = '{according}' -%}}{{{{- '{begin}{open_}user{close}' -}}}}\n"
        + "{{- '\n\n' -}}"
        + _OPENING
        + "{% for message in messages %}{{ 'User' if message.role == 'user' else 'Agent' }}: "
        + content
        + "{{ '\\n\\n' }}{% endfor %}"
        + _CLOSING
        + f"{end}{open_}assistant{close}{ends}"
    )


_TEXT = "{{ message.content | trim }}"
_PARTS = "{% for part in message.content if part.type == 'text' %}{{ part.text | trim }}{% endfor %}"
_CHATML = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{%- endif -%}
"""
_QWEN = (
    "{%- set judged = 'USER' if messages[-1].role == 'user' else 'ASSISTANT' -%}<|im_start|>user\n"
    "# Task:\n1. Say how safe the last {{ judged }} message is.\n\n<BEGIN SAFETY POLICY>\n"
    "<BEGIN UNSAFE CONTENT CATEGORIES>\nViolent.\nPII.\n<END UNSAFE CONTENT CATEGORIES>\n"
    "{% if judged == 'ASSISTANT' %}<BEGIN REFUSAL POLICY>\nA refusal declines.\n<END REFUSAL POLICY>\n"
    "{% endif %}<END SAFETY POLICY>\n\n<BEGIN CONVERSATION>\n\n{% for message in messages -%}"
    "{{ message.role | upper }}: {{ message.content }}\n\n{% endfor -%}<END CONVERSATION>\n\n"
    "Answer in lines: Safety, Categories.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>{{ '\\n\\n' }}"
)
_GRANITE_30 = (
    "{%- set judged = messages[-1].role -%}<|start_of_role|>user<|end_of_role|>You are a safety agent. "
    "<start_of_turn>\n{% for message in messages -%}{{ message.role | capitalize }} Message: "
    "{{ message.content }}\n{% endfor %}<end_of_turn>\n\n<start_of_risk_definition>\n"
    "* {{ guardian_config.risk_name }}\n<end_of_risk_definition>\n\nIs the {{ judged }} message harmful? "
    "Your answer must be either 'Yes' or 'No'.<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"
)
_GRANITE_33 = (
    "<|start_of_role|>system<|end_of_role|>You are a judge agent.<|end_of_text|>\n"
    "{% for message in messages -%}<|start_of_role|>{{ message.role }}<|end_of_role|>{{ message.content }}"
    "<|end_of_text|>\n{% endfor -%}<|start_of_role|>judge_protocol<|end_of_role|>### Criteria: "
    "{{ guardian_config.criteria_id }}\n### Scoring Schema: yes or no.<|end_of_text|>\n"
    "<|start_of_role|>judge{{ '{think}' if think else '{no_think}' }}<|end_of_role|>"
)
_SHIELD = (
    "<bos>You are a policy expert.\n\n{% for message in messages -%}<start_of_turn>\n"
    "{{ 'Human Question' if message.role == 'user' else 'Chatbot Response' }}: {{ message.content | trim }}\n"
    "<end_of_turn>\n\n{% endfor -%}Our safety principle is defined in the below:\n\n* {{ guideline }}\n\n"
    "Does it violate the above principle? Your answer must start with 'Yes' or 'No'.\n\n"
)
_USER_ONLY = (
    "{%- for message in messages -%}{%- if message.role == 'system' -%}{{ raise_exception('no system') }}"
    "{%- endif -%}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor -%}"
    "<|im_start|>assistant\n"
)
_HARMONY = (
    "{%- for message in messages -%}<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>"
    "{%- endfor -%}<|start|>assistant"
)
TEMPLATES: Mapping[str, str | None] = {
    "llama-guard-3": _llama_guard(_TEXT),
    "llama-guard-3-parts": _llama_guard(_PARTS),
    "llama-guard-3-ends": _llama_guard(_TEXT, ends="\n\n"),
    "llama-guard-4": _llama_guard(_PARTS, version=4, ends="{{ '\n\n' }}"),
    "qwen3guard-gen": _QWEN,
    "granite-guardian-3.1": _GRANITE_30,
    "granite-guardian-3.3": _GRANITE_33,
    "shieldgemma": _SHIELD,
    "shieldgemma-bare": None,
    "wildguard": None,
    "nemoguard": _USER_ONLY,
    "chatml": _CHATML,
    "user-only": _USER_ONLY,
    "gpt-oss-safeguard": _HARMONY,
    "judge-turn": _CHATML.replace("<|im_start|>assistant\n{% if", "<|im_start|>judge\n{% if"),
}


@cache
def _fast(vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_WORDS), "isolated"), level]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    verdicts = "safe unsafe Safe Unsafe Controversial yes no Yes No N/A deny allow Deny Allow"
    known = [one for one in TEMPLATES.values() if one] + [f"\n{verdicts} {verdicts}." * 9]
    known.append('{"User Safety": "safe", "Response Safety": "unsafe"}. A sentence.\n\n' * 9)
    tokenizer.train_from_iterator(known, trainer)
    return tokenizer


@cache
def tokenizer_of(name: str, vocab_size: int = 1500) -> LocalTokenizer:
    fast = PreTrainedTokenizerFast(tokenizer_object=_fast(vocab_size), chat_template=TEMPLATES[name])
    return LocalTokenizer(ModelTokenizer.of(fast))


Probabilities = Callable[[str], Mapping[str, float]]
"""Takes a prompt, and returns the probabilities of tokens by their texts."""


class GuardEngine(ScriptedEngine):
    """A guard model that takes token ids. `answer`: the probabilities of the next words; `text`: what it
    writes after a prompt."""

    fields = FIELDS

    def __init__(
        self, tokenizer: LocalTokenizer, answer: Probabilities, text: Callable[[str], str] = lambda prompt: ""
    ) -> None:
        super().__init__(self._play)
        self.tokenizer: Any = tokenizer
        self.answer = answer
        self.text = text
        self.prompts: list[str] = []

    def _play(self, request: GenerationRequest) -> list[Delta]:
        (ids,) = request.prompts
        assert not isinstance(ids, str)
        prompt = self.tokenizer.decode(ids)
        self.prompts.append(prompt)
        asked = request.sampling.logprob_token_ids
        if not asked:
            return [*self._written(self.text(prompt)), Delta(finish_reason="stop")]
        told = self.answer(prompt)
        masses = {
            i: sum(p for text, p in told.items() if text.startswith(self.tokenizer.raw(i).decode()))
            for i in asked
        }
        top = tuple(TopLogprob(i, b"", math.log(mass) if mass else -99.0) for i, mass in masses.items())
        token = Token(0, "", b"", -1.0, top)
        return [Delta(tokens=(token,), finish_reason="length")]

    def _written(self, text: str) -> list[Delta]:
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        raw = [(i, self.tokenizer.raw(i)) for i in ids]
        texts = ["" if i in self.tokenizer.special_ids else one.decode() for i, one in raw]
        return [
            Delta(text=text, tokens=(Token(i, text, one),)) for text, (i, one) in zip(texts, raw, strict=True)
        ]


class ChatEngine(ScriptedEngine):
    """An upstream: it takes chats and tells the likeliest tokens. `answer`: its tokens for the chat's texts,
    each a text with its probability and the alternatives'."""

    fields = FieldSupport()

    def __init__(self, answer: Callable[[str], list[tuple[str, Mapping[str, float]]]]) -> None:
        super().__init__(self._play)
        self.answer = answer

    def _play(self, request: GenerationRequest) -> list[Delta]:
        assert request.endpoint == "chat"
        deltas = [Delta(text="Hm.", channel="reasoning")]
        for text, told in self.answer(json.dumps(request.messages)):
            top = tuple(TopLogprob(None, name.encode(), math.log(p)) for name, p in told.items())
            deltas.append(Delta(text=text, tokens=(Token(None, text, text.encode(), -0.1, top),)))
        return [*deltas, Delta(finish_reason="stop")]


class Models:
    """Gives hooks one engine, whatever they name."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    async def generator(self, name: str) -> Engine:
        engine: Engine = self.engine
        return engine

    async def classifier(self, name: str) -> Any:
        raise ValueError("it generates")
