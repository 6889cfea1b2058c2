"""The states of a joint screen: what they keep in memory."""

from hooks.loading.screen import JointScreen, Mark, Screen


class Sets(Screen):
    """Makes a set of rules anew at each step, as a whole number of many bits."""

    width = 1
    start = Mark(0, (1 << 2000, None))
    anywhere = start

    def step(self, mark: Mark, char: str) -> Mark | None:
        return Mark(1, ((1 << 2000) + ord(char) % 2, None), (("open", 1 << 3000),))

    def step_over(self, mark: Mark, char: str) -> Mark:
        return mark


def sets_of(value: object) -> list[int]:
    if isinstance(value, tuple):
        return [found for part in value for found in sets_of(part)]
    return [value] if isinstance(value, int) and value.bit_length() > 64 else []


def test_states_share_equal_sets_of_rules() -> None:
    screen = JointScreen([Sets(), Sets()])
    states = [screen.start[char] for char in "abcdefgh"]
    found = [one for state in states if state is not None for one in sets_of(state.marks)]
    assert len({id(one) for one in found}) == len(set(found)) == 3
    assert all(isinstance(mark, Mark) for state in states if state is not None for mark in state.marks)


def test_a_screen_that_forgets_its_states_forgets_their_sets(monkeypatch) -> None:
    monkeypatch.setattr("hooks.loading.screen.MAX_STEPS", 3)
    screen = JointScreen([Sets()])
    for char in "abcdefgh":
        screen.read(screen.start, char)
    assert len(screen._sets) <= 3
    assert len(screen._states) <= 3


class Last(Screen):
    """Knows the last character, and gives up at an x."""

    width = 1
    start = Mark(0, "")
    anywhere = start

    def step(self, mark: Mark, char: str) -> Mark | None:
        return None if char == "x" else Mark(len(mark.before), char)

    def step_over(self, mark: Mark, char: str) -> Mark:
        return Mark(0, char)


def test_a_piece_is_read_as_its_characters_are_and_kept() -> None:
    screen = JointScreen([Last()])
    for text in ("a", "word", "a longer text than a token", "", "axe"):
        assert screen.read_piece(screen.start, text) is screen.read(screen.start, text)
    assert screen.start.pieces == {"word": screen.read(screen.start, "word")}


def test_pieces_are_forgotten_before_they_are_too_many(monkeypatch) -> None:
    monkeypatch.setattr("hooks.loading.screen.MAX_PIECES", 3)
    screen = JointScreen([Last()])
    for number in range(10):
        assert screen.read_piece(screen.start, f"w{number}") is not None
        assert len(screen.start.pieces) <= 3
    monkeypatch.setattr("hooks.loading.screen.MAX_STEPS", 3)
    for char in "abcdefgh":
        screen.read(screen.start, char)
    assert not screen.start.pieces
