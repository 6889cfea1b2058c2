"""What readers fetch or link of what the guard `links` lets pass: `make bench NAME=link_readers`.

Texts with addresses in every writing that some reader takes are drawn and mutated. Each goes through the
guard whole, by characters, and in random pieces. What is released must be the same, and no program that reads
it may fetch or link an address outside the list.
"""

import argparse
import asyncio
import time

from benchmarks.link_readers.measure import measure
from benchmarks.machine import processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--cuts", type=int, default=3, help="random cuts of each text (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(processor())
    began = time.monotonic()
    outcome = asyncio.run(measure(options.texts, options.seed, options.cuts))
    by_reader = ", ".join(f"{name} {count:,}" for name, count in outcome.by_reader.most_common())
    num_wrong = outcome.by_reader.total()
    print(f"{outcome.num_texts:,} texts; {num_wrong:,} have a wrong address for a reader: {by_reader}.")
    print(f"{outcome.num_streams:,} streams: {len(outcome.uneven):,} differ by the cut;")
    print(f"in what is released of {len(outcome.leaked):,} texts a reader finds a wrong address.")
    for text, out, left in outcome.leaked[:20]:
        print(f"  {text!r}\n    {out!r}\n    {left[0]}")
    for text, pieces in outcome.uneven[:20]:
        print(f"  {text!r} cut into {pieces!r}")
    print(f"{time.monotonic() - began:.0f} s")
    raise SystemExit(bool(outcome.uneven or outcome.leaked))


if __name__ == "__main__":
    main()
