"""Random regular expressions, made of everything that `automaton.regex_analysis` claims to know."""

import random

from hooks.detect.automaton.regex_analysis import analyse

ALPHABET = "ab é\n"
ATOMS = ["a", "b", " ", "[ab]", r"\w", ".", "ab", "a?", "b{1,2}", "[ab]{0,2}?", "a{1,3}+", "(a|b)", "A"]
EDGES = [r"\b", r"\B", r"\m", r"\M", "$", r"\Z", "^", r"\A"]


def random_pattern(rng: random.Random, depth: int = 3) -> str:
    drawn = rng.random() if depth else 0.0

    def part() -> str:
        return random_pattern(rng, depth - 1)

    if drawn < 0.35:
        return rng.choice(ATOMS)
    if drawn < 0.6:
        return part() + part()
    if drawn < 0.7:
        return f"{rng.choice(['(?:', '(?:', '(?a:', '(?u:', '(?i:'])}{part()}|{part()})"
    if drawn < 0.77:
        return f"(?:{part()}){rng.choice(['?', '{1,2}', '{0,2}?'])}"
    if drawn < 0.85:
        return rng.choice(EDGES) + part() if rng.random() < 0.5 else part() + rng.choice(EDGES)
    if drawn < 0.92:
        return part() + f"(?{rng.choice('=!')}{part()})" + rng.choice(["", part()])
    return f"(?<{rng.choice('=!')}{rng.choice(ATOMS)}){part()}" if drawn < 0.96 else f"(?>{part()})"


def analysable(rng: random.Random) -> str:
    while True:
        pattern = rng.choice(["", "", "(?i)", "(?m)", "(?s)"]) + random_pattern(rng)
        try:
            analyse(pattern)
        except ValueError:
            continue
        return pattern
