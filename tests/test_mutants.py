"""The changes that `python -m tools.mutants` makes."""

from tools.mutants import mutant_of, places_of

SOURCE = '''
@dataclass(slots=True)
def f(x):
    """Say it."""
    x += 1
    log(x)
    return x == 1 if x else True
def g(y=True):
    ...
'''
MUTANTS = [mutant_of(SOURCE, place) for place in places_of(SOURCE)]


def test_each_change_is_of_one_place() -> None:
    made = [mutant for _, mutant in MUTANTS]
    assert len(made) == len(set(made))
    assert all("@dataclass(slots=True)" in mutant for mutant in made)
    for part in ("x += 2", "if not x", "x != 1", "else False", "...\n    log(x)", "x += 1\n    ...", "== 2"):
        assert any(part in mutant for mutant in made), part


def test_a_change_is_told_by_its_line() -> None:
    assert {line for line, _ in MUTANTS} == {5, 6, 7}
