"""Secrets: keys and tokens by the formats that their issuers publish, and passwords: `--hook secrets`.

A text without a format of its own is a secret if a word such as `password=` comes before it and it looks
random. The guard holds a key until its end is clear: a password for at most 1,024 characters, a token for
10,173. It holds ordinary text for at most a word. It does not hold a private key once the key has begun: it
withholds everything up to the key's end line, or up to the end of the stream if that line never comes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from hooks import checked
from hooks.builtin.secret_rules.gitleaks import TIMEOUT, rules_of
from hooks.builtin.secret_rules.keys import KEYS
from hooks.builtin.secret_rules.named_keys import NAMED_KEYS
from hooks.builtin.secret_rules.passwords import PASSWORDS
from hooks.detect.argument_types import Names, blamed_on
from hooks.detect.readings import KEYS as KEY_READING
from hooks.detect.readings import Reader
from hooks.detect.rules import RuleDetector, chosen
from hooks.detect.span_guard import SpanGuard, SpanOptions


class Secrets(SpanGuard):
    """Finds keys and tokens of known formats, and passwords."""

    thread_safe = True

    @checked
    def __init__(
        self,
        *,
        entities: Names | None = None,
        rules: str | Path | None = None,
        allow: Sequence[str] = (),
        **options: Unpack[SpanOptions],
    ) -> None:
        """`entities`: the kinds of secret to find (None: all). `rules`: a file with more rules, a
        configuration of gitleaks (TOML); a rule's entity is its id, as `MY_RULE` for my-rule. `allow`: texts
        that are no secrets, and patterns between slashes as `/^demo-/`.

        Raises `ValueError` for an unknown entity, a rule of the file that cannot be kept, or an invalid
        pattern.
        """
        with blamed_on("rules"):
            own = rules_of(Path(rules).expanduser()) if rules is not None else []
        found = chosen([*KEYS, *PASSWORDS, *NAMED_KEYS, *own], entities)
        detector = RuleDetector(found, timeout=None if rules is None else TIMEOUT, allow=allow)
        super().__init__(Reader(detector, KEY_READING), **options)
