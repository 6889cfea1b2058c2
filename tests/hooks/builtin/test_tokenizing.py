"""Threads on which the texts that guard models read are tokenized."""

import threading

import pytest

from hooks.builtin.guard_prompts.growing_text import tokenize


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


async def test_a_long_text_is_tokenized_on_a_thread_and_a_short_one_at_once() -> None:
    assert await tokenize(10, threading.current_thread) is threading.current_thread()
    assert await tokenize(100_000, threading.current_thread) is not threading.current_thread()
