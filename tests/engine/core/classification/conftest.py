import pytest
from transformers import PreTrainedTokenizerFast

from tests.engine.device.classifiers import GuardModel, save_guard


@pytest.fixture(scope="session")
def guard(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> GuardModel:
    """A tiny model in the shape of Qwen3Guard-Stream, with a tokenizer."""
    path = tmp_path_factory.mktemp("guard")
    tokenizer.save_pretrained(path)
    return save_guard(path, max_position_embeddings=2304)
