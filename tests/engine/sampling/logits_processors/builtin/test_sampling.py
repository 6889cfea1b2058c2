"""Two processors only change a request's sampling parameters."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from engine.protocol import RequestError
from engine.protocol.options import LogitsProcessorConfig
from tests.engine.conftest import completion
from tests.engine.sampling.logits_processors.processors import named


def test_min_tokens_and_logit_bias_only_change_the_sampling_parameters(tiny_core: Callable[..., Any]) -> None:
    configs = (
        LogitsProcessorConfig("min_tokens", "min_tokens", mandatory=True, params={"min_tokens": 7}),
        LogitsProcessorConfig("logit_bias", "logit_bias"),
    )
    core = tiny_core(logits_processors=configs)
    bias = named(logit_bias={"logit_bias": {"1": 50.0, "4": 2.0}})
    request = completion((5, 6), max_tokens=20, logit_bias={4: 1.0, 9: -1.0}, logits_processors=bias)
    group = core.add(request)
    (seq,) = group.sequences
    assert seq.sampling.processors == ()
    assert seq.sampling.params.logit_bias == {4: 3.0, 9: -1.0, 1: 50.0}
    core.run()
    assert len(core.answers(group)[0].ids) == 8, "seven tokens and the end of sequence"
    for own, most, expected in ((0, 3, 3), (9, 20, 9), (0, None, 7)):
        (seq,) = core.processor.process(completion((5, 6), min_tokens=own, max_tokens=most)).sequences
        assert seq.sampling.params.min_tokens == expected


def test_an_invalid_bias_is_refused(tiny_core: Callable[..., Any]) -> None:
    core = tiny_core(logits_processors=(LogitsProcessorConfig("logit_bias", "logit_bias"),))
    for bias in ({"400": 1.0}, {"x": 1.0}, {"4": math.inf}, {"4": math.nan}, {"4": 1e31}):
        with pytest.raises(RequestError) as caught:
            core.add(completion((5, 6), logits_processors=named(logit_bias={"logit_bias": bias})))
        assert caught.value.param is not None
        assert caught.value.param.startswith("logits_processors[0].params.logit_bias")
