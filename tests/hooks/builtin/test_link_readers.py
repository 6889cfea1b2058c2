"""What readers of an answer fetch and link of what `links` lets pass: nothing outside the list."""

import asyncio

import pytest

from benchmarks import leaks_links
from benchmarks.link_readers.measure import measure
from benchmarks.link_readers.readers import IS_INSTALLED, readers, wrong
from benchmarks.link_readers.texts import SAMPLES

needs_readers = pytest.mark.skipif(
    not IS_INSTALLED, reason="the readers are not installed: make bench NAME=link_readers"
)


@needs_readers
def test_the_readers_take_an_address_from_each_sample() -> None:
    async def read() -> list[bool]:
        async with readers() as node:
            found = await node.read(SAMPLES)
            return [bool(wrong(text, some)) for text, some in zip(SAMPLES, found, strict=True)]

    taken = dict(zip(SAMPLES, asyncio.run(read()), strict=True))
    assert [text for text, is_taken in taken.items() if not is_taken] == []


@needs_readers
@pytest.mark.slow
def test_no_reader_finds_an_address_outside_the_list_in_what_is_released() -> None:
    outcome = asyncio.run(measure(600, seed=48, num_cuts=2))
    assert outcome.by_reader.total() > 60
    assert (outcome.leaked, outcome.uneven) == ([], [])


def test_no_host_leaves_however_the_stream_is_cut() -> None:
    assert asyncio.run(leaks_links.run(200, seed=48)) > 0
