"""A request that vLLM's model runner has no room for is a 400: it would end vLLM for everybody."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.core.input_processor import InputProcessor
from engine.local.admission import Admission
from engine.protocol import ModelInfo
from engine.protocol.demo import MODEL_DIR
from engine.protocol.options import EngineConfig
from engine.text.tokenizer import LocalTokenizer
from engine.vllm.engine import VLLMEngine
from engine.vllm.limits import RunnerLimits
from engine.vllm.options import VLLMOptions
from tests.proxy.conftest import CHAT, COMPLETION, Serve

LIMITS = RunnerLimits(
    allowed_token_ids=1024, bad_words=128, bad_word_tokens=1024, logit_bias=1024, stop_token_ids=128
)
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETION,
    "/v1/responses": {"model": "m", "input": "Hi"},
    "/v1/messages": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
}
ON_ALL: dict[str, dict[str, Any]] = {
    "logit_bias": {"logit_bias": {str(i): 1 for i in range(1025)}},
    "stop_token_ids": {"stop_token_ids": [*range(128)], "min_tokens": 1},
}
LIMITS_ON_TOKENS: dict[str, dict[str, Any]] = {
    "allowed_token_ids": {"allowed_token_ids": [*range(1025)]},
    # Each counts twice: with and without a space before it.
    "bad_words": {"bad_words": [f"word{i}" for i in range(65)]},
}
CASES = [(path, field) for path in BODIES for field in ON_ALL] + [
    (path, field) for path in [*BODIES][:2] for field in LIMITS_ON_TOKENS
]


class SecondRunner(VLLMEngine):
    """vLLM's engine with the limits of its second model runner. No vLLM runs."""

    async def start(self) -> None:
        tokenizer = LocalTokenizer.load(str(MODEL_DIR))
        model = SimpleNamespace(
            max_model_len=1024,
            vocab_size=2048,
            eos_token_ids=frozenset({2047}),
            device=torch.device("cpu"),
            probes=(),
        )
        self._processor = InputProcessor.make(tokenizer, model, self.config)
        self._admission = Admission(self.config)
        self._runtime: Any = SimpleNamespace(limits=LIMITS)
        self.tokenizer, self.fields = tokenizer, self._processor.fields
        self.info = ModelInfo(model.max_model_len, model.vocab_size, parses_tool_calls=False)
        self._failure = None


# contract 8.5
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("path", "field"), CASES)
async def test_a_field_that_vllm_has_no_room_for_is_a_400_that_names_it(
    serve: Serve, path: str, field: str, is_streamed: bool
) -> None:
    client = await serve(SecondRunner(EngineConfig(model=str(MODEL_DIR)), VLLMOptions()), max_logit_bias=2000)
    body = {**BODIES[path], **(ON_ALL | LIMITS_ON_TOKENS)[field], "stream": is_streamed}
    status, answer, _ = await client.post(path, body)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert answer["error"]["message"].startswith(f"{field}: there are ")
    if path != "/v1/messages":  # the API has no place for it
        assert answer["error"]["param"] == field
    assert client.engine.stats().num_running == 0
