"""The room that vLLM's second model runner has for one request.

The runner keeps some fields of each request in rows of a fixed width. A longer field raises in vLLM's worker
and ends vLLM for all requests, so Weir refuses it before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.protocol import EngineError, RequestError
from engine.scheduling.sequence import Sequence


@dataclass(frozen=True, slots=True)
class RunnerLimits:
    """The largest numbers of each that one request may have."""

    allowed_token_ids: int
    bad_words: int
    bad_word_tokens: int
    """Tokens of all bad words together."""
    logit_bias: int
    stop_token_ids: int
    """With `min_tokens`: it masks these ids for as long."""

    @classmethod
    def of_second_runner(cls) -> "RunnerLimits":
        """The limits of the installed vLLM. The environment may change the limits of bad words."""
        from vllm import envs
        from vllm.v1.worker.gpu.sample import logit_bias

        return cls(
            allowed_token_ids=logit_bias.MAX_NUM_ALLOWED_TOKEN_IDS,
            bad_words=envs.VLLM_MAX_NUM_BAD_WORDS,
            bad_word_tokens=envs.VLLM_MAX_BAD_WORDS_TOTAL_TOKENS,
            logit_bias=logit_bias.MAX_NUM_LOGIT_BIAS_TOKENS,
            stop_token_ids=logit_bias.MAX_NUM_STOP_TOKEN_IDS,
        )

    def check(self, seq: Sequence, eos_token_ids: frozenset[int]) -> None:
        """Raise `RequestError` for the first field of the sequence's request that has no room.

        vLLM adds `eos_token_ids` to the stop ids of every request.
        """
        p, limits = seq.sampling.params, seq.sampling.limits
        allowed = limits["allowed_token_ids"].token_ids if "allowed_token_ids" in limits else ()
        words = limits["bad_words"].sequences if "bad_words" in limits else ()
        # A bias forbids the end of a word that began in vLLM's prompt.
        biased = {*p.logit_bias, *(word[-1] for word in words)}
        ends = {*p.stop_token_ids, *eos_token_ids} if p.min_tokens else ()
        for field, num, most, what in (
            ("allowed_token_ids", len(allowed), self.allowed_token_ids, "token ids"),
            ("bad_words", len(words), self.bad_words, "words, each with and without a space before it"),
            ("bad_words", sum(map(len, words)), self.bad_word_tokens, "tokens"),
            ("logit_bias", len(biased), self.logit_bias, "token ids, with the last ones of bad_words"),
            ("stop_token_ids", len(ends), self.stop_token_ids, "ids, with the model's own, for min_tokens"),
        ):
            if num > most:
                raise RequestError(f"{field}: there are {num} {what}; at most {most} are taken.", param=field)

    def check_bias(self, fields: Mapping[str, Any]) -> None:
        """Raise `EngineError` if rewinds have added too many biases to the `request_fields` of an output.

        Rewinds forbid tokens by biases, and penalize those that were kept.
        """
        if len(fields.get("logit_bias", ())) > self.logit_bias:
            raise EngineError("The engine cannot continue this output after a rewind.")
