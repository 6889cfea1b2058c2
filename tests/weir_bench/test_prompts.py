"""Prompts of random words, and prompts of a dataset."""

from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pytest

from weir_bench.prompts import Dataset, Prompts, WordPrompts, request_bodies


def texts(prompts: Prompts, run: int, count: int) -> list[str]:
    return [fields["prompt"] for fields in islice(prompts.fields(run), count)]


@pytest.mark.parametrize("num_words", [1, 2, 18])
def test_no_two_prompts_are_the_same(num_words: int) -> None:
    prompts = WordPrompts(seed=1, num_words=num_words)
    all_texts = texts(prompts, 1, 300) + texts(prompts, 2, 300)
    assert len(set(all_texts)) == 600
    assert {len(text.split()) for text in all_texts} == {num_words}


def test_prompts_follow_their_seed() -> None:
    first = texts(WordPrompts(1, 8), 3, 20)
    assert first == texts(WordPrompts(1, 8), 3, 20)
    assert not set(first) & set(texts(WordPrompts(2, 8), 3, 20))


def test_a_shared_prefix_begins_every_prompt_of_every_run() -> None:
    prompts = WordPrompts(seed=1, num_words=4, num_shared=10)
    split = [text.split() for run in (1, 2) for text in texts(prompts, run, 20)]
    assert len({tuple(words[:10]) for words in split}) == 1
    assert len({words[10] for words in split}) == 40
    assert {len(words) for words in split} == {14}


def test_the_same_prompt_is_the_same_in_every_run() -> None:
    prompts = WordPrompts(seed=1, num_words=4, same=True)
    assert len({*texts(prompts, 1, 10), *texts(prompts, 2, 10)}) == 1


def write(folder: Path, *lines: Any) -> Path:
    path = folder / "data.jsonl"
    path.write_text(
        "\n".join(line if isinstance(line, str) else orjson.dumps(line).decode() for line in lines)
    )
    return path


def test_a_dataset_repeats_its_lines_in_a_different_order_for_each_run(tmp_path: Path) -> None:
    path = write(tmp_path, *({"prompt": str(i)} for i in range(10)), "")
    dataset = Dataset.load(path, "chat", seed=1)
    first = texts(dataset, 1, 20)
    assert set(first[:10]) == {str(i) for i in range(10)}
    assert first[:10] == first[10:]
    assert first == texts(dataset, 1, 20)
    assert first != texts(dataset, 2, 20)


def test_a_line_of_a_dataset_may_set_any_field(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    path = write(tmp_path, {"messages": messages, "temperature": 1, "output_tokens": 9})
    prompts = Dataset.load(path, "chat", seed=1)
    defaults = {"temperature": 0, "max_tokens": 5, "model": "m"}
    body = orjson.loads(next(request_bodies(prompts, 1, "chat", defaults)))
    assert body == {"messages": messages, "temperature": 1, "max_tokens": 9, "model": "m"}


@pytest.mark.parametrize(
    ("endpoint", "asked"),
    [("chat", {"messages": [{"role": "user", "content": "Hi"}]}), ("completions", {"prompt": "Hi"})],
)
def test_a_prompt_fits_its_endpoint(tmp_path: Path, endpoint: Any, asked: dict[str, Any]) -> None:
    prompts = Dataset.load(write(tmp_path, {"prompt": "Hi"}), endpoint, seed=1)
    assert orjson.loads(next(request_bodies(prompts, 1, endpoint, {}))) == asked


@pytest.mark.parametrize(
    ("line", "endpoint", "message"),
    [
        ("{", "chat", "data.jsonl:2: "),
        ("[]", "chat", "data.jsonl:2: not a JSON object with a 'prompt' or 'messages'"),
        ('{"text": "Hi"}', "chat", "data.jsonl:2: not a JSON object"),
        ('{"messages": []}', "completions", "data.jsonl:2: not a JSON object with a 'prompt'"),
    ],
)
def test_an_error_names_the_line_that_is_no_request(
    tmp_path: Path, line: str, endpoint: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        Dataset.load(write(tmp_path, {"prompt": "Hi"}, line), endpoint, seed=1)


def test_an_empty_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no lines"):
        Dataset.load(write(tmp_path, ""), "chat", seed=1)
