"""One sequence's place in its grammar. It reads each of the sequence's tokens once, whoever drew them."""

from llguidance import LLTokenizer
from torch import Tensor

from engine.guided.compiler import Compiled
from engine.guided.reasoning import Reasoning, ReasoningForm
from engine.logits_processors import TokenIds


class Guide:
    """Kept on the sequence, and used by the engine's thread alone."""

    def __init__(
        self,
        grammar: Compiled,
        tokenizer: LLTokenizer,
        ids: TokenIds,
        reasoning: ReasoningForm | None = None,
        prompt_end: str = "",
    ) -> None:
        """`reasoning`: what may come before."""
        self._grammar, self._tokenizer, self._ids = grammar, tokenizer, ids
        self._form, self._prompt_end = reasoning, prompt_end
        self._begin()

    def _begin(self) -> None:
        self._num_read = self._ids.num_prompt_tokens
        self.matcher = self._grammar.matcher.deep_copy()
        """Has read all of the sequence that the grammar is for."""
        self.reasoning: Reasoning | None = self._form.begin(self._prompt_end) if self._form else None
        """None: the grammar holds."""

    def catch_up(self) -> None:
        """Read what is new; all of it again, if some was taken back."""
        if len(self._ids) < self._num_read:
            self._begin()
        if self._num_read < len(self._ids):
            with self._grammar.following():
                for token_id in self._ids[self._num_read :]:
                    self._read(token_id)
        self._num_read = len(self._ids)

    def _read(self, token_id: int) -> None:
        if self.reasoning is None:
            self.matcher.consume_token(token_id)
        elif (answer := self.reasoning.take(token_id)) is not None:
            self.reasoning = None
            ids = self._tokenizer.tokenize_bytes(answer) if isinstance(answer, bytes) else list(answer)
            self.matcher.consume_tokens(ids)

    @property
    def must_end(self) -> bool:
        """Whether nothing but the end can come."""
        self.catch_up()
        return self.reasoning is None and self.matcher.is_stopped()

    def fill(self, bits: Tensor) -> None:
        """Which tokens may come next, in `bits` `[vocab / 32]`, int32, of zeros. Raises `ValueError` if the
        sequence has left its grammar, or is too much for the library, or takes it too long."""
        self.catch_up()
        self._check()
        with self._grammar.following():
            if self.reasoning is None:
                self.matcher.unsafe_compute_mask_ptr(bits.data_ptr(), bits.nbytes)
            else:
                self._fill_before(self.reasoning, bits)
        self._grammar.num_tokens += 1
        self._check()

    def _check(self) -> None:
        self._grammar.check()
        if self.matcher.is_error():
            raise ValueError(self.matcher.get_error())

    def _fill_before(self, reasoning: Reasoning, bits: Tensor) -> None:
        """Before the grammar holds."""
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
    """As an int32 has it."""
    at = token_id % 32
    return 1 << at if at < 31 else -(1 << 31)
