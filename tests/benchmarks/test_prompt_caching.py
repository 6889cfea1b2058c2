"""The prompt caches of the benchmark find what a server's cache would find."""

from typing import Any

from benchmarks.prompt_caching.cache import BLOCK, MarkedCache, PrefixCache

MARK = {"cache_control": {"type": "ephemeral"}}


def body(*texts: str, marked: int | None = None) -> dict[str, Any]:
    blocks = [{"type": "text", "text": text} for text in texts]
    if marked is not None:
        blocks[marked] = {**blocks[marked], **MARK}
    return {"messages": [{"role": "user", "content": blocks}]}


def test_a_prompt_that_goes_on_is_found_up_to_its_last_whole_block() -> None:
    cache = PrefixCache()
    cache.read(body("a" * 640))
    assert cache.num_hit == 0
    cache.read(body("a" * 640, "b" * 640))
    assert 640 <= cache.num_hit <= 640 + 2 * BLOCK


def test_a_prompt_that_begins_otherwise_is_not_found() -> None:
    cache = PrefixCache()
    cache.read(body("a" * 640))
    cache.read(body("b" + "a" * 639))
    assert cache.num_hit < 2 * BLOCK


def test_what_is_in_front_of_a_mark_is_read_from_the_cache_once_it_was_written() -> None:
    cache = MarkedCache()
    first = cache.usage(body("a" * 400, "b" * 400, marked=0))
    assert first["cache_read_input_tokens"] == 0
    second = cache.usage(body("a" * 400, "c" * 400, marked=1))
    assert second["cache_read_input_tokens"] == first["cache_creation_input_tokens"] > 100
    assert second["cache_creation_input_tokens"] > 100


def test_a_text_is_the_same_written_as_a_string_or_as_a_block() -> None:
    cache = MarkedCache()
    cache.usage(body("a" * 400, marked=0))
    plain = {"messages": [{"role": "user", "content": "a" * 400}]}
    assert cache.usage(plain)["cache_read_input_tokens"] > 100
