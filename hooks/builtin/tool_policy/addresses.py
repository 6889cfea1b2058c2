"""Hosts in a text, also those without a scheme or a path: a program may make a link of `example.org`."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from hooks.builtin.link_rules.policy import host_of

_ENDINGS = "com|org|net|io|co|ai|app|dev|info|biz|me|xyz|ly|gg|us|uk|eu|de|fr|ch|nl|ru|cn|in|jp|br|ca|au"
_ADDRESS = re.compile(
    rf"""
      [a-z][a-z0-9+.-]{{0,31}}:[/\\]+ [^\s/?\#"'<>()]+                      # a scheme
    | (?<![^\W_]|[.@-]) (?:
          [/\\]{{2}} [^\W_][\w-]*(?:\.[\w-]+)+                       # the page's own scheme
        | www\. (?:[^\W_]|-)+(?:\.(?:[^\W_]|-)+)*                     # what programs make links of
        | (?:(?:[^\W_]|-)+\.)+(?:{_ENDINGS})(?![^\W_]|[@-]|\.[^\W_])  # a host of a well-known ending
        | (?:(?:[^\W_]|-)+\.)+[a-z]{{2,}}(?=/|:\d|\?\w+=)              # a host with something after it
      )
    """,
    re.VERBOSE,
)
"""An address up to its path. Its text is in lower case."""
_DOTS = str.maketrans(dict.fromkeys("\u3002\uff0e\uff61", "."))


def hosts_in(text: str) -> Iterator[tuple[str, str | None]]:
    """Each address in a text, up to its path, with its host; None for an address without a readable one."""
    for found in _ADDRESS.finditer(unicodedata.normalize("NFKC", text).translate(_DOTS).lower()):
        yield found[0], host_of(found[0])


def is_listed(host: str | None, globs: Iterable[str]) -> bool:
    return host is not None and any(fnmatchcase(host, glob.lower()) for glob in globs)
