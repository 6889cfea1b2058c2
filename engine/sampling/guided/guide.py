"""Guides follow sequences through their grammars, and a mask takes out the tokens that grammars forbid."""

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import torch
from llguidance import LLTokenizer
from torch import Tensor

from engine.protocol import RequestError
from engine.sampling.guided.compiler import CompiledGrammar, GrammarError
from engine.sampling.guided.reasoning import Reasoning, ReasoningForm
from engine.sampling.logits_processors import TokenIds


class Guide:
    """One sequence's place in its grammar. It reads each token of the sequence once, from wherever it came.

    One thread at a time uses it: the engine's, or one that the engine's waits for.
    """

    def __init__(
        self,
        grammar: CompiledGrammar,
        tokenizer: LLTokenizer,
        token_ids: TokenIds,
        field: str,
        reasoning: ReasoningForm | None = None,
        prompt_end: str = "",
    ) -> None:
        """`field`: of the request that asks for the grammar. `reasoning`: the form of the reasoning that may
        come before the grammar."""
        self.grammar, self._tokenizer, self._token_ids = grammar, tokenizer, token_ids
        self.field = field
        self._form, self._prompt_end = reasoning, prompt_end
        self._begin()

    def _begin(self) -> None:
        self._num_read = self._token_ids.num_prompt_tokens
        self.matcher = self.grammar.matcher.deep_copy()
        """Has read the part of the output that the grammar is for."""
        self.reasoning: Reasoning | None = self._form.begin(self._prompt_end) if self._form else None
        """None: reasoning is over, and the grammar holds."""

    def catch_up(self) -> None:
        """Read the new tokens, or all of them again after a rewind."""
        if len(self._token_ids) < self._num_read:
            self._begin()
        if self._num_read < len(self._token_ids):
            with self.grammar.timed():
                for token_id in self._token_ids[self._num_read :]:
                    self._read(token_id)
        self._num_read = len(self._token_ids)

    def _read(self, token_id: int) -> None:
        if self.reasoning is None:
            self.matcher.consume_token(token_id)
        elif (answer := self.reasoning.observe(token_id)) is not None:
            self.reasoning = None
            ids = self._tokenizer.tokenize_bytes(answer) if isinstance(answer, bytes) else list(answer)
            self.matcher.consume_tokens(ids)

    @property
    def must_end(self) -> bool:
        """Whether only an end of sequence can come."""
        self.catch_up()
        return self.reasoning is None and self.matcher.is_stopped()

    @property
    def next_ids(self) -> frozenset[int] | None:
        """The tokens that may come next. None while reasoning may go on or begin."""
        self.catch_up()
        if self.reasoning is not None:
            return None
        bits = torch.frombuffer(bytearray(self.matcher.deep_copy().compute_bitmask()), dtype=torch.int32)
        (limits,) = unpack(bits.unsqueeze(0), LIMITS)
        return frozenset(limits.isposinf().nonzero().flatten().tolist())

    def fill(self, bits: Tensor) -> None:
        """Set the bits of the tokens that may come next. `bits`: `[vocab / 32]`, int32, all zero.

        Raises `RequestError` if the grammar is too much for the library, takes too long, or leads to a place
        where nothing can follow, and `ValueError` if the sequence has left its grammar.
        """
        self.catch_up()
        if self.matcher.is_error():
            raise ValueError(self.matcher.get_error())
        self._check()
        with self.grammar.timed():
            if self.reasoning is None:
                self.matcher.unsafe_compute_mask_ptr(bits.data_ptr(), bits.nbytes)
            else:
                self._fill_before(self.reasoning, bits)
        self.grammar.num_tokens += 1
        self._check()

    def _check(self) -> None:
        reason = "nothing can follow at a place that it leads to" if self.matcher.is_error() else ""
        try:
            self.grammar.check()
        except GrammarError as error:
            reason = str(error)
        if reason:  # not the library's words: they may have the output's
            raise RequestError(f"{self.field}: {reason}.", param=self.field)

    def _fill_before(self, reasoning: Reasoning, bits: Tensor) -> None:
        """The bits while reasoning continues, or may still begin."""
        if reasoning.is_open:
            bits.fill_(-1)
            for token_id in self._tokenizer.eos_tokens:
                bits[token_id // 32] &= ~_bit(token_id)
            return
        matcher = self.matcher.deep_copy()
        if matcher.try_consume_tokens(reasoning.begun) == len(reasoning.begun):
            matcher.unsafe_compute_mask_ptr(bits.data_ptr(), bits.nbytes)
        for token_id in reasoning.next_ids:
            bits[token_id // 32] |= _bit(token_id)


def _bit(token_id: int) -> int:
    """The token's bit in its word, as a signed 32-bit integer."""
    at = token_id % 32
    return 1 << at if at < 31 else -(1 << 31)


class GuidedMask:
    """Takes out the tokens that grammars forbid, for all rows that have a grammar at once.

    A logits processor of the batch form (contract 7.2). The parameters of a row have its `guide`.
    """

    kind = "mask"

    def __init__(self, device: torch.device, num_threads: int | None = None) -> None:
        """`num_threads`: threads that ask the guides; None: as many as torch uses by itself."""
        self._limits = LIMITS.to(device)
        self._num_threads = num_threads or torch.get_num_threads()
        self._threads = ThreadPoolExecutor(self._num_threads, "weir-guided")

    def __call__(self, logits: Tensor, params: list[dict[str, Any]]) -> Tensor:
        bits = self._allowed([one["guide"] for one in params], logits.shape[-1])
        most = unpack(bits.to(logits.device, non_blocking=True), self._limits)[:, : logits.shape[-1]]
        return torch.minimum(logits, most, out=logits)

    def _allowed(self, guides: list[Guide], vocab_size: int) -> Tensor:
        """A bit for each token, packed in int32 `[rows, vocab / 32]`."""
        shape, is_pinned = (len(guides), (vocab_size + 31) // 32), self._limits.is_cuda
        bits = torch.zeros(shape, dtype=torch.int32, pin_memory=is_pinned)
        rows = list(zip(guides, bits, strict=True))
        own, *rest = (rows[i :: self._num_threads] for i in range(min(self._num_threads, len(rows))))
        filled = [self._threads.submit(_fill, share) for share in rest]
        try:
            _fill(own)
        finally:
            wait(filled)  # so that no other thread still uses a guide
        for some in filled:
            some.result()
        return bits


def _fill(rows: list[tuple[Guide, Tensor]]) -> None:
    with torch.inference_mode():  # each thread has its own mode
        for guide, bits in rows:
            guide.fill(bits)


def unpack(bits: Tensor, values: Tensor) -> Tensor:
    """Unpack int32 `[rows, words]` to float32 `[rows, words * 32]`. `values`: eight floats for each byte."""
    return values.index_select(0, bits.view(torch.uint8).flatten().int()).view(len(bits), -1)


LIMITS = torch.tensor([[float("inf" if byte >> i & 1 else "-inf") for i in range(8)] for byte in range(256)])
"""The most that a logit can be, for each bit of a byte, `[256, 8]`. To look up eight limits at once is
several times as fast as to mask by booleans."""
