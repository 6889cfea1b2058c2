"""What Weir reads of GGUF files: headers, tokenizers, ends of answers; and which files it refuses."""

import logging
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import GenerationRequest, RequestError
from engine.sources.files import config_of, eos_token_ids_of, tokenizer_of
from engine.sources.gguf_file import GgufFile
from engine.text.tokenizer import LocalTokenizer
from tests.engine.gguf_files import VOCAB_SIZE, WORDS, Kind, write_gguf
from tests.helpers import examples


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    write_gguf(path, "llama", Kind.Q4_0)
    return path


def written(path: Path, metadata: dict[str, Any]) -> str:
    write_gguf(path / "m.gguf", "llama", metadata=metadata)
    return str(path / "m.gguf")


def test_a_header_has_what_the_package_gguf_reads(file: Path) -> None:
    found, reader = GgufFile(file), GGUFReader(file)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF."):
            assert found.metadata[key] == field.contents(), key
    stored = {
        t.name: (tuple(map(int, reversed(t.shape))), int(t.data_offset), t.n_bytes) for t in reader.tensors
    }
    assert {name: (t.shape, t.offset, t.num_bytes) for name, t in found.tensors.items()} == stored


def test_a_long_array_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    words = [f"word {i}" for i in range(2000)]
    path = written(tmp_path, {"a.words": words, "a.numbers": [*range(2000)], "b.after": 7})
    found = GgufFile(Path(path))
    assert found.values("a.words") == words
    assert found.values("a.numbers") == [*range(2000)]
    assert found.metadata["b.after"] == 7
    assert found.values("a.missing") == []


@examples(60)
@given(share=st.floats(0, 1))
def test_a_file_that_is_cut_short_is_refused_by_its_name(file: Path, share: float) -> None:
    data = file.read_bytes()
    cut = file.with_name("cut.gguf")
    cut.write_bytes(data[: int(share * (len(data) - 1))])
    with pytest.raises(ValueError, match=r"cut\.gguf"):
        GgufFile(cut)


@examples(200)
@given(place=st.integers(0, 3000), value=st.integers(0, 255))
def test_a_damaged_header_is_refused_or_read(file: Path, place: int, value: int) -> None:
    """There is no other error, and no array as long as a damaged count."""
    data = bytearray(file.read_bytes())
    data[place] = value
    damaged = file.with_name("damaged.gguf")
    damaged.write_bytes(data)
    with suppress(ValueError):
        config_of(str(damaged))


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("This is a text, and no model at all.")
    with pytest.raises(ValueError, match=r"text\.gguf is not a GGUF file"):
        config_of(str(tmp_path / "text.gguf"))
    (tmp_path / "old.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 1, 0, 0))
    with pytest.raises(ValueError, match=r"old\.gguf has version 1 of GGUF"):
        config_of(str(tmp_path / "old.gguf"))


def test_the_parts_of_a_split_file_are_one_model(file: Path, tmp_path: Path) -> None:
    """Each part has a header and some of the tensors, and the first one has the metadata."""
    from gguf import GGUFWriter

    writer = GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=20)
    reader = GGUFReader(file)
    for key, field in reader.fields.items():
        if not key.startswith(("GGUF.", "general.architecture")):
            writer.add_key_value(key, field.contents(), field.types[0], sub_type=field.types[-1])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file(tmp_path / "m.gguf")
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    parts = sorted(tmp_path.glob("m-*.gguf"))
    assert len(parts) > 2
    whole = GgufFile(parts[0])
    assert whole.tensors.keys() == GgufFile(file).tensors.keys()
    assert vars(config_of(str(parts[0]))) == vars(config_of(str(file)))
    parts[1].unlink()
    with pytest.raises(ValueError, match=rf"{parts[1].name} is missing"):
        GgufFile(parts[0])


def test_the_vocabulary_is_as_large_as_the_embedding(file: Path, tmp_path: Path) -> None:
    assert config_of(str(file)).vocab_size == VOCAB_SIZE > len(WORDS)
    many = [*WORDS, *(f"<{i}>" for i in range(100))]
    with pytest.raises(ValueError, match=f"{len(many)} tokens and embeddings for {VOCAB_SIZE}"):
        config_of(written(tmp_path, {"tokenizer.ggml.tokens": many}))


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"general.architecture": "qwen35"}, r"architecture 'qwen35'.*llama, qwen2.*--engine openai"),
        ({"llama.expert_count": 8}, "mixture of experts"),
        ({"llama.block_count": None}, r"does not say llama\.block_count"),
        ({"llama.attention.head_count_kv": [2, 2, 1, 2, 2, 2]}, "layers of different sizes"),
        ({"llama.rope.dimension_count": 8}, "rotates a part of each head"),
        ({"llama.rope.scaling.type": "other"}, "positions of the kind 'other'"),
        ({"llama.attention.value_length": 64}, "keys and values of different lengths"),
    ],
)
def test_a_model_that_cannot_be_served_is_refused_with_the_reason(
    metadata: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=rf"m\.gguf .*{reason}"):
        config_of(written(tmp_path, metadata))


def test_every_token_that_ends_an_answer_does(file: Path, tmp_path: Path) -> None:
    assert eos_token_ids_of(str(file), config_of(str(file))) == {0, 2}
    path = written(tmp_path, {"tokenizer.ggml.eot_token_id": 30, "tokenizer.ggml.eos_token_id": 2})
    assert eos_token_ids_of(path, config_of(path)) == {0, 2, 30}


def chat(text: str) -> GenerationRequest:
    messages = ({"role": "user", "content": text},)
    return GenerationRequest(request_id="r", model="m", endpoint="chat", messages=messages)


def test_the_tokenizer_and_the_chat_template_come_out_of_the_file(file: Path) -> None:
    tokenizer = LocalTokenizer.load(str(file))
    ids = tokenizer.encode_chat(chat("hello"))
    assert tokenizer.decode(ids) == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert ids[0] == WORDS.index("<|im_start|>")
    assert WORDS.index("hell") in ids
    assert tokenizer.special_ids == {0, 1, 2}


@pytest.mark.parametrize("adds", [True, False])
def test_a_text_begins_with_the_first_token_only_where_the_file_says_so(adds: bool, tmp_path: Path) -> None:
    tokenizer = LocalTokenizer.load(written(tmp_path, {"tokenizer.ggml.add_bos_token": adds}))
    assert tokenizer.encode("hell") == [1] * adds + [WORDS.index("hell")]


def test_a_chat_without_a_template_is_refused_and_the_log_says_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="weir.engine"):
        tokenizer = LocalTokenizer.load(written(tmp_path, {"tokenizer.chat_template": None}))
    assert "--tokenizer" in caplog.text
    with pytest.raises(RequestError, match="no chat template"):
        tokenizer.encode_chat(chat("hello"))


@pytest.mark.parametrize(
    "metadata", [{"tokenizer.ggml.tokens": None}, {"tokenizer.ggml.model": "bert"}], ids=["none", "unknown"]
)
def test_a_tokenizer_that_cannot_be_read_may_be_given(metadata: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"m\.gguf.*--tokenizer"):
        tokenizer_of(written(tmp_path, metadata))
