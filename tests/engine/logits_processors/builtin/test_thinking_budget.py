"""Thinking."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.logits_processors import Context, TokenIds
from engine.logits_processors.builtin.thinking_budget import PRESETS
from engine.logits_processors.load import (
    ProcessorLoadError,
)
from tests.engine.conftest import VOCAB_SIZE
from tests.engine.logits_processors.builtin.rows import END, START, THINKING, ids_of, registered_as


@pytest.fixture(scope="module")
def newline(context: Context) -> int:
    (found,) = ids_of(context, "\n")
    return found


def drawn(processor: Any, prompt: list[int], wants: list[int]) -> list[int]:
    """An output, of which the model wants these tokens one after the other, whatever it got before."""
    ids = list(prompt)
    for wanted in wants:
        logits = torch.zeros(VOCAB_SIZE)
        logits[wanted] = 9.0
        processor(TokenIds(ids, len(prompt)), logits)
        ids.append(int(logits.argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("prompt", [[5, START], [START, 8, END, 7, START]])
@pytest.mark.parametrize("budget", [0, 1, 3])
def test_thinking_ends_with_a_new_line_and_the_end_once(
    budget: int, prompt: list[int], built: Callable[..., Any], newline: int
) -> None:
    processor = built("thinking_budget", {"thinking_budget": budget}, **THINKING)
    output = drawn(processor, prompt, [30] * 9)
    assert output == [*[30] * budget, newline, END, *[30] * (7 - budget)]


def test_a_new_line_that_is_there_is_not_forced_again(built: Callable[..., Any], newline: int) -> None:
    processor = built("thinking_budget", {"thinking_budget": 2}, **THINKING)
    assert drawn(processor, [START], [30, newline, 31, 32]) == [30, newline, END, 32]
    processor = built("thinking_budget", {"thinking_budget": 0}, **THINKING)
    assert drawn(processor, [START, newline], [31, 32]) == [END, 32]


def test_what_the_prompt_has_thought_counts_and_its_earlier_turns_do_not(
    built: Callable[..., Any], newline: int
) -> None:
    prompt = [START, 8, 8, 8, 8, 8, END, 7, START, 30, 30]
    processor = built("thinking_budget", {"thinking_budget": 3}, **THINKING)
    assert drawn(processor, prompt, [30] * 4) == [30, newline, END, 30]
    processor = built("thinking_budget", {"thinking_budget": 3}, **THINKING)
    assert drawn(processor, prompt[:8], [30] * 9) == [30] * 9, "no block is open"


def test_thinking_that_ends_in_time_is_left_alone(built: Callable[..., Any]) -> None:
    processor = built("thinking_budget", {"thinking_budget": 3}, **THINKING)
    wants = [30, 31, END, 40, 41, 42, 43, 44]
    assert drawn(processor, [START], wants) == wants


def test_thinking_again_gets_no_new_budget(built: Callable[..., Any], newline: int) -> None:
    processor = built("thinking_budget", {"thinking_budget": 2}, **THINKING)
    output = drawn(processor, [START], [30, 30, 30, 30, START, 31, 31, 40, START, 31, 31, 41])
    assert output == [30, 30, newline, END, START, newline, END, 40, START, newline, END, 41]
    processor = built("thinking_budget", {"thinking_budget": 3}, **THINKING)
    output = drawn(processor, [5], [START, 30, END, 40, START, 31, START, 31, 31, 40])
    assert output == [START, 30, END, 40, START, 31, START, newline, END, 40], "what was left of it"


@pytest.mark.parametrize("model", PRESETS)
def test_a_preset_s_markers_are_looked_up_in_the_model_s_own_tokenizer(model: str, context: Context) -> None:
    ids = {text: 200 + i for i, text in enumerate((*PRESETS[model], "\n"))}

    class WithMarkers:
        """Knows the model's markers by ids of its own, and encodes a new line as SentencePiece does."""

        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            return [ids[text]] if text != "\n" else [6, 7]

        def raw(self, token_id: int) -> bytes:
            return next((text.encode() for text, i in ids.items() if i == token_id), b"?")

    known = Context(WithMarkers(), VOCAB_SIZE, (1,), context.device)  # type: ignore[arg-type]
    assert registered_as("thinking_budget", known, model=model).shared == (200, 201, 202)
    with pytest.raises(ProcessorLoadError, match="no token for"):
        registered_as("thinking_budget", context, model=model)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"model": "qwen9"}, "there is no preset 'qwen9'; there are deepseek-r1, glm-4"),
        ({"start": "<|im_start|>", "end": "</end>"}, "no token for '</end>'"),
        ({"start": ""}, "no token for '<think>'"),
    ],
)
def test_a_model_that_cannot_have_a_thinking_budget_is_refused_at_start(
    args: dict[str, Any], reason: str, context: Context
) -> None:
    with pytest.raises(ProcessorLoadError, match=reason):
        registered_as("thinking_budget", context, **args)
