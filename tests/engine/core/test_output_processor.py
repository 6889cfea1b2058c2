"""Each token drawn becomes the deltas that its request gets, up to the end of the output."""

from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from engine.core.output_processor import OutputProcessor
from engine.protocol import LogitsProcessorError
from engine.sampling.sampler import SampledToken
from engine.sampling.sampling_state import Logprobs
from engine.scheduling.sequence import Sequence, SequenceGroup
from engine.sources.model_tokenizer import ModelTokenizer
from engine.text.detokenizer import Detokenizer
from engine.text.tokenizer import LocalTokenizer
from tests.engine.conftest import SPECIAL, completion

EOS = 1


@pytest.fixture(scope="module")
def local(tokenizer: PreTrainedTokenizerFast) -> LocalTokenizer:
    return LocalTokenizer(ModelTokenizer.of(tokenizer))


@pytest.fixture
def processor(local: LocalTokenizer) -> OutputProcessor:
    return OutputProcessor(local)


def sequence_of(local: LocalTokenizer, max_tokens: int = 9, echo: Any = None, **fields: Any) -> Sequence:
    prompt = local.encode("hello")
    group = SequenceGroup(completion(tuple(prompt), **fields))
    return group.add(
        prompt,
        max_tokens=max_tokens,
        detokenizer=Detokenizer(local.fast, prompt, group.request.sampling.stop),
        eos_token_ids=frozenset({EOS}),
        echo_texts=echo,
    )


def drawn(token_id: int) -> SampledToken:
    return SampledToken(token_id, Logprobs(-0.5, [(token_id, -0.5)]))


def test_a_token_with_text_makes_a_delta(processor: OutputProcessor, local: LocalTokenizer) -> None:
    seq, (token_id,) = sequence_of(local), local.encode("x", add_special_tokens=False)
    (delta,) = processor.advance(seq, drawn(token_id))
    assert (delta.text, delta.finish_reason, delta.channel) == ("x", None, "content")
    assert delta.prompt_token_ids == tuple(seq.prompt_token_ids)
    assert delta.tokens[0].logprob is None, "the request asks for no logprobs"
    assert (seq.cumulative_logprob, seq.group.num_output_tokens, processor.num_generated_tokens) == (
        -0.5,
        1,
        1,
    )
    (second,) = processor.advance(seq, drawn(token_id))
    assert second.prompt_token_ids is None


def test_the_last_token_that_is_allowed_ends_the_output(
    processor: OutputProcessor, local: LocalTokenizer
) -> None:
    seq, (token_id,) = sequence_of(local, max_tokens=1), local.encode("x", add_special_tokens=False)
    (delta,) = processor.advance(seq, drawn(token_id))
    assert (delta.text, delta.finish_reason) == ("x", "length")


def test_without_tokens_to_generate_the_output_ends_after_its_echo(
    processor: OutputProcessor, local: LocalTokenizer
) -> None:
    seq = sequence_of(local, max_tokens=0, echo=("hello",))
    echo, end = processor.advance(seq, None)
    assert (echo.channel, echo.text, echo.finish_reason) == ("echo", "hello", None)
    assert (end.channel, end.tokens, end.finish_reason) == ("content", (), "length")
    assert seq.echo_texts is None


def test_a_stop_token_with_text_is_withheld_and_a_special_one_is_given(
    processor: OutputProcessor, local: LocalTokenizer
) -> None:
    (plain,) = local.encode("x", add_special_tokens=False)
    special = SPECIAL.index("<|im_end|>")
    for token_id, reason, given in ((plain, plain, []), (special, special, [special]), (EOS, None, [EOS])):
        seq = sequence_of(local, stop_token_ids=(plain, special))
        (delta,) = processor.advance(seq, drawn(token_id))
        assert (delta.finish_reason, delta.stop_reason) == ("stop", reason)
        assert [token.id for token in delta.tokens] == given


def test_a_sequence_without_a_token_raises(processor: OutputProcessor, local: LocalTokenizer) -> None:
    with pytest.raises(ValueError, match="no token can be drawn"):
        processor.advance(sequence_of(local), None)
    with pytest.raises(LogitsProcessorError):
        processor.advance(sequence_of(local), LogitsProcessorError("likes"))
    assert processor.num_generated_tokens == 0
