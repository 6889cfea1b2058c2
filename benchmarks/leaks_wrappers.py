"""Does anything of a forbidden span get out of a wrapper or an adapter? `make bench NAME=leaks_wrappers`.

A model streams random texts full of a few phrases, in random chunks that are cut anywhere. Each wrapper of
the library, and each adapter that carries text, asks for each text, streamed or whole, through hooks that
redact the phrases or end at them. The text that comes out, and the tokens of its logprobs, are compared with
those that should, and with what `weir.guard` releases of the same chunks.
"""

import argparse
import random
import time
from collections.abc import Sequence
from importlib.util import find_spec

from benchmarks.leak_guards import MATCH, EndAtPhrases, RedactPhrases
from benchmarks.leaks import expected, random_tokens
from benchmarks.machine import processor
from benchmarks.wrapped_answers import WRAPPERS, Wrapper
from weir import Guards, guard


def _kept(raws: Sequence[bytes], *, ends: bool) -> bytes:
    """The bytes of the tokens without a byte of what hooks change. Tokens of one character stay together."""
    text = b"".join(raws).decode()
    spans = [(found.start(), found.end()) for found in MATCH.finditer(text)]
    spans = [(spans[0][0], len(text))] if ends and spans else spans
    gone = "".join("-" if any(a <= i < b for a, b in spans) else "+" for i in range(len(text)))
    marks = b"".join(mark.encode() * len(one.encode()) for mark, one in zip(gone, text, strict=True))
    kept, group, start = b"", b"", 0
    for raw in raws:
        group += raw
        if group.decode(errors="ignore").encode() != group:
            continue  # it ends within a character
        if b"-" not in marks[start : start + len(group)]:
            kept += group
        start, group = start + len(group), b""
    return kept


def run(num_streams: int, seed: int, wrapper: Wrapper) -> None:
    """Run so many streams. Raises `AssertionError`."""
    rng = random.Random(seed)
    guards = {False: Guards(RedactPhrases()), True: Guards(EndAtPhrases())}
    for _ in range(num_streams):
        tokens, ends = random_tokens(rng), rng.random() < 0.3
        pieces, rest = [], list(tokens)
        while rest:
            size = rng.randint(1, 6)
            while size < len(rest) and not rest[size - 1].text:
                size += 1
            pieces.append(rest[:size])
            rest = rest[size:]
        text, of_tokens = wrapper(guards[ends], rng, pieces)
        assert text == expected(tokens, ends=ends, is_cut=False)[0]
        chunks = ["".join(token.text for token in piece) for piece in pieces]
        assert text == "".join(guard(chunks, guards[ends]))
        assert of_tokens in (None, _kept([token.raw for token in tokens], ends=ends))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=20_000, help="through each wrapper (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    packages = [package for package, _ in WRAPPERS.values()]
    parser.add_argument(
        "--only", choices=packages, action="append", help="the wrapper of this package; repeat"
    )
    options = parser.parse_args()
    print(processor())
    for name, (package, wrapper) in WRAPPERS.items():
        if options.only and package not in options.only:
            continue
        if find_spec(package) is None:
            print(f"{name}: {package} is not installed here.")
            continue
        started = time.monotonic()
        run(options.streams, options.seed, wrapper)
        seconds = time.monotonic() - started
        print(
            f"{options.streams:,} through {name}, streamed or whole: nothing got out ({seconds:.0f} s).",
            flush=True,
        )


if __name__ == "__main__":
    main()
