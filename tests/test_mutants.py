"""The changes that `python -m tools.mutants` makes."""

from tools.mutants import mutants_of

SOURCE = '''
def f(x):
    """Say it."""
    x += 1
    log(x)
    return x == 1 if x else True
'''


def test_each_change_is_of_one_place() -> None:
    made = [mutant for _, mutant in mutants_of(SOURCE)]
    assert len(made) == len(set(made))
    for part in ("x += 2", "if not x", "x != 1", "else False", "...\n    log(x)", "x += 1\n    ...", "== 2"):
        assert any(part in mutant for mutant in made), part


def test_a_change_is_told_by_its_line() -> None:
    assert {line for line, _ in mutants_of(SOURCE)} == {4, 5, 6}
