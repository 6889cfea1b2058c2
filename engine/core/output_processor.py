"""The deltas for each drawn token: echo, decided text, stops and finish reasons."""

from itertools import chain, repeat

from engine.protocol import Delta, EngineError, ProbeInfo, PromptScores, Scores, Token, TopLogprob
from engine.sampling.sampler import SampledToken
from engine.sampling.sampling_state import Logprobs, NoOtherToken
from engine.scheduling.sequence import DueTokens, Sequence
from engine.text.tokenizer import LocalTokenizer

StopReason = str | int | None
"""The stop string or the stop token's id that ended an output. None: something else did, or it continues."""


class OutputProcessor:
    def __init__(self, tokenizer: LocalTokenizer, probes: tuple[ProbeInfo, ...] = ()) -> None:
        """`probes`: those that score tokens, if any are scored."""
        self._tokenizer = tokenizer
        self._probes = probes
        self.num_generated_tokens = 0
        """Tokens of all requests so far."""

    def advance(
        self, seq: Sequence, sampled: SampledToken | NoOtherToken | EngineError | None
    ) -> list[Delta]:
        """Append the token drawn to a sequence that is computed to its end.

        Returns the sequence's echo, if it is due, and then the text that the token decides. If probes
        score the sequence, this text waits until the next call: then the token is computed, and has scores. A
        sequence that has ended gets no token. Raises the `EngineError` that is in place of a token, and
        `ValueError` if there is neither.
        """
        deltas = [] if seq.due is None else self._give_due(seq, seq.due)
        if seq.finish_reason is not None:
            return deltas
        if seq.echo_texts is not None:
            deltas.append(self._delta(seq, self._echo_tokens(seq, seq.echo_texts), is_echo=True))
            seq.echo_texts = None
        tokens: tuple[Token, ...] = ()
        stop_reason: StopReason = None
        # `max_tokens` may be 0, and an output may be rewound to all of its tokens.
        num_before = seq.num_output_tokens
        if num_before == seq.max_tokens:
            seq.finish_reason = "length"
        elif isinstance(sampled, NoOtherToken):
            seq.finish_reason = "content_filter"  # see `Rewind`
        else:
            tokens, stop_reason = self._decide(seq, self._append(seq, sampled), num_before + 1)
        if tokens or seq.finish_reason:
            due = DueTokens(tokens, stop_reason)
            if not seq.scores or len(seq.scores) == seq.num_tokens:
                deltas += self._give_due(seq, due)
            else:
                seq.due = due
        return deltas

    def _give_due(self, seq: Sequence, due: DueTokens) -> list[Delta]:
        """The delta of the decided tokens."""
        tokens, stop_reason = due
        seq.due = None
        if seq.is_scored:
            # The tokens are the output's next ones: a detokenizer gives every token, and in order.
            first = seq.num_prompt_tokens + seq.num_decided_tokens
            seq.num_decided_tokens += len(tokens)
            tokens = tuple([_scored(token, seq.scores[i]) for i, token in enumerate(tokens, first)])
        return [self._delta(seq, tokens, stop_reason=stop_reason)]

    def _append(self, seq: Sequence, sampled: SampledToken | EngineError | None) -> Token:
        if isinstance(sampled, EngineError):
            raise sampled
        if sampled is None:
            raise ValueError("no token can be drawn: the logits are not numbers")
        self.num_generated_tokens += 1
        seq.group.num_output_tokens += 1
        seq.token_ids.append(sampled.id)
        if sampled.logprobs is not None:
            seq.cumulative_logprob += sampled.logprobs.logprob
        return self._token(sampled.id, None if seq.sampling.params.logprobs is None else sampled.logprobs)

    def _decide(
        self, seq: Sequence, token: Token, num_output_tokens: int
    ) -> tuple[tuple[Token, ...], StopReason]:
        """The tokens whose text the new token decides, and the stop reason if the output stops."""
        sampling = seq.sampling
        if token.id in sampling.eos_token_ids or token.id in sampling.params.stop_token_ids:
            seq.finish_reason = "stop"
            return last_tokens(seq, token, self._tokenizer.special_ids)
        detokenizer = seq.detokenizer
        tokens = detokenizer.decode(token, may_stop=num_output_tokens > sampling.params.min_tokens)
        if detokenizer.stopped is not None:
            seq.finish_reason = "stop"
        elif num_output_tokens == seq.max_tokens:
            seq.finish_reason = "length"
            tokens += detokenizer.flush()
        return tokens, detokenizer.stopped

    def _echo_tokens(self, seq: Sequence, texts: tuple[str, ...]) -> tuple[Token, ...]:
        # The first token has no logprob. The later ones have one if the request asks for logprobs.
        logprobs = chain([None], seq.prompt_logprobs, repeat(None))
        tokens = map(self._token, seq.token_ids, logprobs, texts)
        if not seq.is_scored:
            return tuple(tokens)
        return tuple([_scored(token, scores) for token, scores in zip(tokens, seq.scores, strict=False)])

    def _token(self, token_id: int, logprobs: Logprobs | None, text: str = "") -> Token:
        raw = self._tokenizer.raw
        if logprobs is None:
            return Token(token_id, text, raw(token_id))
        top = tuple(TopLogprob(i, raw(i), logprob) for i, logprob in logprobs.top)
        return Token(token_id, text, raw(token_id), logprobs.logprob, top, rank=logprobs.rank)

    def _delta(
        self, seq: Sequence, tokens: tuple[Token, ...], is_echo: bool = False, stop_reason: StopReason = None
    ) -> Delta:
        is_first, seq.has_begun = not seq.has_begun, True
        return Delta(
            index=seq.index,
            text=tokens[0].text if len(tokens) == 1 else "".join([token.text for token in tokens]),
            tokens=tokens,
            channel="echo" if is_echo else "content",
            finish_reason=None if is_echo else seq.finish_reason,
            stop_reason=stop_reason,
            prompt_token_ids=tuple(seq.prompt_token_ids) if is_first else None,
            prompt_scores=self._prompt_scores(seq) if is_first and seq.is_scored else None,
            usage=seq.group.usage,
        )

    def _prompt_scores(self, seq: Sequence) -> PromptScores:
        return PromptScores(self._probes, tuple(seq.scores[: seq.num_prompt_tokens]))


def _scored(token: Token, scores: Scores) -> Token:
    return Token._make((*token[:-1], scores))  # `_replace` takes twice as long


def last_tokens(
    seq: Sequence, end: Token, special_ids: frozenset[int]
) -> tuple[tuple[Token, ...], StopReason]:
    """The tokens that are still due, and the stop reason, when the token `end` ends the output."""
    tokens = seq.detokenizer.flush()
    stop_reason = None if end.id in seq.sampling.eos_token_ids else end.id
    if stop_reason is None or end.id in special_ids:
        return (*tokens, end), stop_reason
    # A stop token with text is withheld, like a stop string: no hook was shown its text.
    return tokens, stop_reason
