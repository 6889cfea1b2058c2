"""Real models of GGUF files: their numbers beside transformers' own reading, and their answers as served."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from openai import OpenAI
from transformers import AutoModelForCausalLM, GgufConfig

from engine.execution.model_runner import ModelRunner
from engine.models.decoder import Decoder
from engine.models.transformers_model import TransformersModel
from engine.protocol.options import EngineConfig
from engine.text.tokenizer import LocalTokenizer
from tests.engine.device.decoders import logits_of
from tests.serving import serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TEXT = (
    "The capital of France is Paris. Water boils at 100 degrees Celsius, and the largest planet of the solar"
    " system is Jupiter. In 1969, two people walked on the"
)
MEAN_ERROR = 1e-4


def load(path: Path, dtype: str = "float32") -> ModelRunner:
    return ModelRunner.load(
        EngineConfig(model=str(path), dtype=dtype, max_model_len=512, kv_cache_memory=2**26, num_threads=2)
    )


def logprobs_of(runner: ModelRunner, ids: list[int]) -> torch.Tensor:
    """After each token, `[tokens, vocab]`."""
    found = [logits_of(runner, [ids[:n]], [])[0] for n in range(1, len(ids) + 1)]
    return torch.stack(found).log_softmax(-1)


@torch.inference_mode()
def expected_of(path: Path, ids: list[int]) -> torch.Tensor:
    model: Any = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    return model(torch.tensor([ids])).logits[0].log_softmax(-1)


def test_smollm2_computes_with_the_weights_of_its_file(
    smollm2: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ids = LocalTokenizer.load(str(smollm2)).encode(TEXT)
    with caplog.at_level(logging.INFO, logger="weir.engine"):
        runner = load(smollm2)
    assert isinstance(runner.model, Decoder)
    assert re.search(r"30\.1 MB in Q8_0 and 66\.4 MB in Q4_1 stay as they are", caplog.text)
    found, expected = logprobs_of(runner, ids), expected_of(smollm2, ids)
    assert float((found - expected).abs().mean()) <= MEAN_ERROR
    assert torch.equal(found.argmax(-1), expected.argmax(-1))


def test_smollm2_in_bfloat16_differs_by_the_rounding_of_activations(smollm2: Path) -> None:
    ids = LocalTokenizer.load(str(smollm2)).encode(TEXT)
    found, expected = logprobs_of(load(smollm2, "bfloat16"), ids), expected_of(smollm2, ids)
    given = torch.tensor(ids[1:])[:, None]
    loss, exact = (-one[:-1].gather(1, given).mean() for one in (found, expected))
    assert abs(float(loss / exact) - 1) < 0.02


def test_gemma_runs_on_transformers_code(gemma3: Path) -> None:
    ids = LocalTokenizer.load(str(gemma3)).encode(TEXT)
    runner = load(gemma3)
    assert isinstance(runner.model, TransformersModel)
    found, expected = logprobs_of(runner, ids), expected_of(gemma3, ids)
    assert float((found - expected).abs().mean()) <= MEAN_ERROR
    assert torch.equal(found.argmax(-1), expected.argmax(-1))


def test_smollm2_answers_a_chat_and_ends_it_itself(smollm2: Path) -> None:
    with serving("--model", str(smollm2)) as url, OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        assert [model.id for model in client.models.list()] == ["smollm2"]
        answer = client.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": "What is the capital of France? Answer in one sentence."}],
            temperature=0,
            max_tokens=100,
        )
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"


def test_guards_read_its_answers(smollm2: Path) -> None:
    question = "Which e-mail address is in this text? Please write to anna.lee@initech.com for details."
    with (
        serving("--model", str(smollm2), "--hook", "pii") as url,
        OpenAI(base_url=f"{url}/v1", api_key="none") as client,
    ):
        answer = client.chat.completions.create(
            model="smollm2", messages=[{"role": "user", "content": question}], temperature=0, max_tokens=60
        )
    text = answer.choices[0].message.content or ""
    assert "[EMAIL_ADDRESS]" in text
    assert "initech" not in text


def test_gemma_completes_a_text_and_refuses_chats(gemma3: Path) -> None:
    with serving("--model", str(gemma3), "--max-model-len", "512") as url:
        with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
            done = client.completions.create(
                model="gemma3-270m", prompt="The capital of France is", temperature=0, max_tokens=8
            )
            assert "France" in done.choices[0].text
            with pytest.raises(Exception, match="no chat template"):
                client.chat.completions.create(
                    model="gemma3-270m", messages=[{"role": "user", "content": "Hi"}]
                )
