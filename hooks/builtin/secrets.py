"""Secrets: keys and tokens by the formats that their issuers publish, and passwords: `--hook secrets`.

What has no format of its own is taken for a secret where a word such as `password=` stands before it and it
looks drawn at random. A key is held until its end shows: a password for at most 1,024 characters, a token for
10,173; ordinary text for no more than a word. Of a private key nothing is held once it has begun: all is
withheld up to its end line, or to the stream's end if that never comes.
"""

from typing import Unpack

from hooks import checked
from hooks.builtin.secret_rules.keys import KEYS
from hooks.builtin.secret_rules.passwords import PASSWORDS
from hooks.detect.actor import Options
from hooks.detect.argument_types import Names
from hooks.detect.readings import ESCAPES, Reader
from hooks.detect.rules import RuleDetector, chosen
from hooks.detect.spans import SpanGuard


class Secrets(SpanGuard):
    """Finds keys and tokens of known formats, and passwords."""

    @checked
    def __init__(self, *, entities: Names | None = None, **options: Unpack[Options]) -> None:
        """`entities`: which to find (None: all). Raises `ValueError` for one that is not known."""
        super().__init__(Reader(RuleDetector(chosen([*KEYS, *PASSWORDS], entities)), ESCAPES), **options)
