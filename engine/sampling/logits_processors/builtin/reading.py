"""The base of processors that keep state from the tokens they read: a step reads only the new ones."""

from engine.sampling.logits_processors import TokenIds


class Reading:
    """Reads each token once. It begins again if the sequence is not longer than before: then the output was
    rewound, or a call is repeated."""

    def __init__(self) -> None:
        self._num_read = 0
        self.begin()

    def begin(self) -> None:
        """Forget all tokens."""

    def take(self, token_id: int, at: int, is_prompt: bool) -> None:
        """Read the next token, which is at place `at` of the sequence."""

    def catch_up(self, input_ids: TokenIds) -> None:
        """Read the tokens that are new."""
        if len(input_ids) <= self._num_read:
            self._num_read = 0
            self.begin()
        for at in range(self._num_read, len(input_ids)):
            self.take(input_ids[at], at, at < input_ids.num_prompt_tokens)
        self._num_read = len(input_ids)
