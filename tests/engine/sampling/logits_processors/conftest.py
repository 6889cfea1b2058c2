"""A model's context, and a folder of processors."""

import sys
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from engine.sampling.logits_processors import Context
from engine.sources.model_tokenizer import ModelTokenizer
from engine.text.tokenizer import LocalTokenizer
from tests.engine.conftest import VOCAB_SIZE


@pytest.fixture(scope="module")
def context(tokenizer: PreTrainedTokenizerFast) -> Context:
    return Context(LocalTokenizer(ModelTokenizer.of(tokenizer)), VOCAB_SIZE, (1,), torch.device("cpu"))


MODULE = """
import torch

class Good:
    def __call__(self, input_ids, logits):
        logits[0] += 1

class Configured:
    def __init__(self, context, by=1.0):
        self.by = by

    def __call__(self, input_ids, logits):
        logits[0] += self.by

class Async:
    async def __call__(self, input_ids, logits):
        pass

class NoForm:
    def __call__(self, input_ids, scores):
        return scores

class NoKind:
    kind = "filter"
    def __call__(self, input_ids, logits): pass

class NoModel:
    Params = dict
    def __call__(self, input_ids, logits): pass

class NeedsMore:
    def __init__(self, file): pass
    def __call__(self, input_ids, logits): pass

class Unprepared:
    @classmethod
    def prepare(cls, context):
        raise ValueError("no such token")
    def __call__(self, input_ids, logits): pass

class BatchThatFails:
    def __init__(self):
        raise RuntimeError("no file here")
    def __call__(self, logits, params): return logits
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "acme_processors.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    monkeypatch.delitem(sys.modules, "acme_processors", raising=False)
    return tmp_path
