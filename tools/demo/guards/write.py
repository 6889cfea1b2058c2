"""Writes labelled exchanges as JSON lines, for `weir probe` and `weir eval-guard`.

python -m tools.demo.guards.write --count 3000 --seed 11 [--only safe|unsafe] > exchanges.jsonl

A line has `messages`, which end in the assistant's reply, and `label`: 1 if that reply has an unsafe offence.
"""

import argparse
import itertools
import json
from typing import Any

from tools.demo.guards.exchanges import Exchange, exchanges


def line(exchange: Exchange) -> dict[str, Any]:
    """The exchange in the API's form, with its label."""
    messages = [] if exchange.system is None else [{"role": "system", "content": exchange.system}]
    for question, reply, _ in exchange.turns:
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": reply})
    return {"messages": messages, "label": int(exchange.is_offensive)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--only", choices=("safe", "unsafe"))
    args = parser.parse_args()
    wanted = {"safe": False, "unsafe": True}.get(args.only)
    found = (one for one in exchanges(args.seed) if wanted is None or one.is_offensive == wanted)
    for exchange in itertools.islice(found, args.count):
        print(json.dumps(line(exchange), ensure_ascii=False))


if __name__ == "__main__":
    main()
