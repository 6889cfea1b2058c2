"""The argument parser of every command: it reports in one line what is wrong, and what was probably meant."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from engine.protocol.did_you_mean import did_you_mean
from proxy.settings.elsewhere import option_here


class CommandParser(argparse.ArgumentParser):
    """Parsers of subcommands are of this class too, as `argparse` makes them of the class of their parent."""

    def parse_known_args(  # type: ignore[override]  # every argument is known, or this exits
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            # The value of a misspelt option may be a key.
            names = [other.partition("=")[0] for other in unknown if other.startswith("-")] or unknown
            known = list(self._option_string_actions)
            hint = did_you_mean(names[0], known) if len(names) == 1 else ""
            elsewhere = [
                f"; there is no {name}{what}" for name in names if (what := option_here(name, known))
            ]
            self.error(f"unrecognized arguments: {' '.join(names)}{''.join(elsewhere) or hint}")
        return known, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            message = f"invalid choice: {value!r}{did_you_mean(str(value), choices)}"
            raise argparse.ArgumentError(action, f"{message} (there are {', '.join(choices)})")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\nSee {self.prog} --help\n")
