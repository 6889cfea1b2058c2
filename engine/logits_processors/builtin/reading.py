"""For processors that keep something of what they have read, so that a step costs what it adds."""

from engine.logits_processors import TokenIds


class Reading:
    """Reads each token once. With a sequence that is no longer than before it begins anew: some tokens were
    taken back, or a call is repeated."""

    def __init__(self) -> None:
        self._num_read = 0
        self.begin()

    def begin(self) -> None:
        """Forget everything."""

    def take(self, token_id: int, at: int, is_prompt: bool) -> None:
        """The next token, which stands at place `at`."""

    def catch_up(self, input_ids: TokenIds) -> None:
        if len(input_ids) <= self._num_read:
            self._num_read = 0
            self.begin()
        for at in range(self._num_read, len(input_ids)):
            self.take(input_ids[at], at, at < input_ids.num_prompt_tokens)
        self._num_read = len(input_ids)
