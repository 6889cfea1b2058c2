"""Real models give the numbers and the words that transformers gives on the same weights."""

from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.perplexity import load, logprobs_of, public_rows
from tests.serving import serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LENGTH = 100
"""Tokens of each public text."""
MEAN_ERROR = 1e-4
ROUNDING = 1.1
"""The error in bfloat16, of transformers' own in bfloat16."""
BEGINNINGS = (
    "The capital of France is",
    "Water boils at",
    "Once upon a time there was a",
    "def fibonacci(n):\n",
    "The largest planet of the solar system is",
    "Dear Sir or Madam,\n",
    "1, 2, 3, 4, 5,",
    "In 1969, two people",
    "Photosynthesis is the process by which",
    "To make a cup of tea, first",
    '{"name": "Anna", "age":',
    "La capitale de l'Italie est",
)
NUM_WORDS = 24
"""Tokens of each greedy answer."""


def theirs(folder: Path, dtype: torch.dtype) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


@torch.inference_mode()
def their_logprobs(model: Any, texts: list[list[int]]) -> torch.Tensor:
    found = []
    for ids in texts:
        logprobs = model(torch.tensor([ids])).logits[0, :-1].float().log_softmax(-1)
        found.append(logprobs.gather(1, torch.tensor(ids[1:])[:, None])[:, 0])
    return torch.cat(found)


def our_logprobs(folder: Path, dtype: str, texts: list[list[int]]) -> torch.Tensor:
    runner = load(str(folder), dtype)
    return torch.tensor([value for ids in texts for value in logprobs_of(str(folder), runner, ids)])


def mean_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found - exact).abs().mean())


def test_logprobs_are_those_of_transformers(unpacked: Path) -> None:
    texts = [row.ids for row in public_rows(str(unpacked), LENGTH)]
    exact = their_logprobs(theirs(unpacked, torch.float32), texts)
    assert mean_error(our_logprobs(unpacked, "float32", texts), exact) <= MEAN_ERROR
    rounded = mean_error(their_logprobs(theirs(unpacked, torch.bfloat16), texts), exact)
    assert mean_error(our_logprobs(unpacked, "bfloat16", texts), exact) <= ROUNDING * rounded


@torch.inference_mode()
def test_greedy_answers_are_those_of_transformers(unpacked: Path) -> None:
    model = theirs(unpacked, torch.float32)
    options = ("--model", str(unpacked), "--served-model-name", "m", "--dtype", "float32")
    with (
        serving(*options, "--max-model-len", "512") as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client,
    ):
        for beginning in BEGINNINGS:
            answer = client.completions.create(
                model="m",
                prompt=beginning,
                temperature=0,
                max_tokens=NUM_WORDS,
                extra_body={"ignore_eos": True, "return_token_ids": True},
            )
            (choice,) = answer.choices
            assert choice.model_extra is not None
            prompt: list[int] = choice.model_extra["prompt_token_ids"]
            made = model.generate(
                torch.tensor([prompt]),
                max_new_tokens=NUM_WORDS,
                min_new_tokens=NUM_WORDS,
                do_sample=False,
                repetition_penalty=1.0,
            )
            assert choice.model_extra["token_ids"] == made[0, len(prompt) :].tolist(), beginning
