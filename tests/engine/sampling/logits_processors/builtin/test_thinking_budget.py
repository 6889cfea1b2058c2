"""Thinking ends when its budget is spent."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.sampling.logits_processors import Context, TokenIds
from engine.sampling.logits_processors.builtin.thinking_budget import PRESETS
from engine.sampling.logits_processors.load import ProcessorLoadError
from tests.engine.conftest import VOCAB_SIZE
from tests.engine.sampling.logits_processors.builtin.rows import END, START, THINKING, ids_of, registered_as


@pytest.fixture(scope="module")
def newline(context: Context) -> int:
    (found,) = ids_of(context, "\n")
    return found


def drawn(processor: Any, prompt: list[int], wants: list[int]) -> list[int]:
    """The output of a model that prefers these tokens one after the other, whatever came before."""
    ids = list(prompt)
    for wanted in wants:
        logits = torch.zeros(VOCAB_SIZE)
        logits[wanted] = 9.0
        processor(TokenIds(ids, len(prompt)), logits)
        ids.append(int(logits.argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("prompt", [[5, START], [START, 8, END, 7, START]])
@pytest.mark.parametrize("budget", [0, 1, 3])
def test_thinking_beyond_the_budget_ends_with_a_line_break_and_the_end_marker(
    budget: int, prompt: list[int], built: Callable[..., Any], newline: int
) -> None:
    processor = built("thinking_budget", {"thinking_budget": budget}, **THINKING)
    output = drawn(processor, prompt, [30] * 9)
    assert output == [*[30] * budget, newline, END, *[30] * (7 - budget)]


def test_a_line_break_that_is_there_is_not_forced_again(built: Callable[..., Any], newline: int) -> None:
    processor = built("thinking_budget", {"thinking_budget": 2}, **THINKING)
    assert drawn(processor, [START], [30, newline, 31, 32]) == [30, newline, END, 32]
    processor = built("thinking_budget", {"thinking_budget": 0}, **THINKING)
    assert drawn(processor, [START, newline], [31, 32]) == [END, 32]


def test_thinking_in_the_prompt_counts_except_for_earlier_turns(
    built: Callable[..., Any], newline: int
) -> None:
    prompt = [START, 8, 8, 8, 8, 8, END, 7, START, 30, 30]
    processor = built("thinking_budget", {"thinking_budget": 3}, **THINKING)
    assert drawn(processor, prompt, [30] * 4) == [30, newline, END, 30]
    processor = built("thinking_budget", {"thinking_budget": 3}, **THINKING)
    assert drawn(processor, prompt[:8], [30] * 9) == [30] * 9, "no block of thinking is open"


def test_thinking_within_the_budget_is_not_changed(built: Callable[..., Any]) -> None:
    processor = built("thinking_budget", {"thinking_budget": 3}, **THINKING)
    wants = [30, 31, END, 40, 41, 42, 43, 44]
    assert drawn(processor, [START], wants) == wants


def test_a_second_block_of_thinking_gets_only_the_rest_of_the_budget(
    built: Callable[..., Any], newline: int
) -> None:
    processor = built("thinking_budget", {"thinking_budget": 2}, **THINKING)
    output = drawn(processor, [START], [30, 30, 30, 30, START, 31, 31, 40, START, 31, 31, 41])
    assert output == [30, 30, newline, END, START, newline, END, 40, START, newline, END, 41]
    processor = built("thinking_budget", {"thinking_budget": 3}, **THINKING)
    output = drawn(processor, [5], [START, 30, END, 40, START, 31, START, 31, 31, 40])
    assert output == [START, 30, END, 40, START, 31, START, newline, END, 40], (
        "only the rest of the budget was left"
    )


@pytest.mark.parametrize("model", PRESETS)
def test_the_markers_of_a_preset_are_looked_up_in_the_model_s_tokenizer(model: str, context: Context) -> None:
    ids = {text: 200 + i for i, text in enumerate((*PRESETS[model], "\n"))}

    class WithMarkers:
        """Has ids of its own for the markers, and encodes a line break like SentencePiece."""

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
        ({"model": "qwen9"}, "unknown preset 'qwen9'; known presets are deepseek-r1, glm-4"),
        ({"start": "<|im_start|>", "end": "</end>"}, "no token for '</end>'"),
        ({"start": ""}, "no token for '<think>'"),
    ],
)
def test_a_model_without_the_markers_is_refused_at_start(
    args: dict[str, Any], reason: str, context: Context
) -> None:
    with pytest.raises(ProcessorLoadError, match=reason):
        registered_as("thinking_budget", context, **args)
