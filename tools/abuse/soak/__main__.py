"""`make soak`: mixed traffic of every endpoint, engine and guard for an hour, while things break.

Four servers run side by side: the model that ships, with its guards; an echo behind two hook workers, which
are killed, and whose disk is full now and then; a hostile upstream that is recorded; and a replay. Traffic
stops after a warm-up and at the end. What the servers hold is compared between the two. The command exits
with 1 if anything grew, if a server failed without a reason, or if a client got a character of a secret.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tools.abuse.soak.run import soak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long traffic goes on")
    parser.add_argument("--clients", type=int, default=4, help="clients of each server")
    parser.add_argument("--seed", type=int, default=None, help="what the traffic is drawn from")
    parser.add_argument("--max-growth", type=int, default=40, help="MB that a server's memory may grow by")
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    with tempfile.TemporaryDirectory() as folder:
        growth = options.max_growth * 1_000_000
        errors = asyncio.run(soak(options.seconds, Path(folder), options.clients, seed, growth))
    for error in errors:
        print(f"\nWRONG: {error}")
    print("\nNothing grew, and nothing leaked." if not errors else f"\n{len(errors)} things are wrong.")
    sys.exit(bool(errors))


if __name__ == "__main__":
    main()
