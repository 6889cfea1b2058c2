"""Does a forbidden address get out of `links`? A part of `make bench NAME=leaks`.

Random texts have addresses in every writing that some reader takes, and one that every reader knows, of a
host that no other text names. Each text goes through the guard in random pieces, once whole and once cut
short. What is released must be what the guard releases of the same text in one piece, and nothing of the
known host.
"""

import asyncio
import random

from benchmarks.leaks_families import pieces_of, released
from benchmarks.link_readers.texts import drawn
from engine.protocol import Delta
from hooks.builtin.links import Links

_HOST = "zq7host"
_KNOWN = (
    f"https://{_HOST}.com/?q=1",
    f"![a](//{_HOST}.com/x)",
    f"> ![a](\n> https\\://{_HOST}.com/x)",
    f'<img src="//{_HOST}/x">',
    f"http:\\/\\/{_HOST}.com\\/x",
    f"{_HOST}.com/x?d=1",
    f"[a]:\n  <//{_HOST}.com>",
    f"<p style='a:url(//{_HOST})'>",
    f"<http:{_HOST}.com/x>",
)
_BETWEEN = ("\n", "\n\n", " ", ". ", "\n> ")


async def run(num_streams: int, seed: int) -> int:
    """Run so many streams. Returns how many of them had an address replaced. Raises `AssertionError`."""
    rng = random.Random(seed)
    guards = [Links(allow=["ok.example"], carries=None, action=action) for action in ("redact", "suppress")]
    num_replaced = 0
    for i in range(0, num_streams, 2):
        guard = guards[i // 2 % 2]
        parts = [rng.choice(_KNOWN), drawn(rng)]
        rng.shuffle(parts)
        text = rng.choice(_BETWEEN).join(parts)
        shown = text[: rng.randint(1, len(text))]
        cut = Delta(finish_reason="length")
        for one, last in ((text, None), (shown, cut)):
            whole = await released(guard, [one], last)
            out = await released(guard, list(pieces_of(rng, one)), last)
            assert out == whole, f"{one!r}: streamed {out!r}, whole {whole!r}"
            assert _HOST not in out, f"{one!r}: {out!r}"
            num_replaced += out != one
    return num_replaced


def run_one(num_streams: int, seed: int) -> int:
    return asyncio.run(run(num_streams, seed))
