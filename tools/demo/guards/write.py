"""Writes labelled exchanges as JSON lines, for `weir probe` and `weir eval-guard`.

python -m tools.demo.guards.write --count 3000 --seed 11 [--only safe|unsafe|balanced] > exchanges.jsonl

The lines are in the project's own format (`proxy.cli.labelled.exchange`). The last reply is judged.
About a fifth of the exchanges have one; `balanced` writes as many with one as without.
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from typing import Any

from tools.demo.guards.exchanges import RISK_OF, UNSAFE, Exchange, exchanges

LONGEST = 1500
"""Characters. The demo model has no room for exchanges that are much longer; they are left out."""


def line(exchange: Exchange) -> dict[str, Any]:
    """The exchange in the API's form, with its label."""
    messages = [] if exchange.system is None else [{"role": "system", "content": exchange.system}]
    for question, reply, _ in exchange.turns:
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": reply})
    last = messages.pop()
    return {"messages": messages, "reply": last["content"], "unsafe": exchange.is_offensive} | _offence(
        exchange
    )


def _offence(exchange: Exchange) -> dict[str, Any]:
    unsafe = [one for one in exchange.turns[-1][2] if RISK_OF[one.category] == UNSAFE]
    return {"unsafe_from": unsafe[0].start, "category": unsafe[0].category} if unsafe else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--only", choices=("safe", "unsafe", "balanced"))
    args = parser.parse_args()
    for text in itertools.islice(fitting_lines(args.seed, args.only), args.count):
        print(text)


def fitting_lines(seed: int, only: str | None) -> Iterator[str]:
    """Lines without end, for exchanges that the demo model has room for. `only`: as the option."""
    wanted = {None: itertools.repeat(None), "balanced": itertools.cycle((False, True))}.get(
        only, itertools.repeat(only == "unsafe")
    )
    source = exchanges(seed)
    for is_offensive in wanted:
        while True:
            exchange = next(source)
            text = json.dumps(line(exchange), ensure_ascii=False)
            if len(text) <= LONGEST and is_offensive in (None, exchange.is_offensive):
                yield text
                break


if __name__ == "__main__":
    main()
