"""Hosts of addresses: of a value that is an address, and of the addresses in a text."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

_ENDINGS = "com|org|net|io|co|ai|app|dev|info|biz|me|xyz|ly|gg|us|uk|eu|de|fr|ch|nl|ru|cn|in|jp|br|ca|au"
_ADDRESS = re.compile(
    rf"""
      [a-z][a-z0-9+.-]{{0,31}}:[/\\]+ [^\s/?\#"'<>()]+                      # a scheme
    | (?<![^\W_]|[.@-]) (?:
          [/\\]{{2}} [^\W_][\w-]*(?:\.[\w-]+)+                       # the page's own scheme
        | www\. (?:[^\W_]|-)+(?:\.(?:[^\W_]|-)+)*                     # what programs make links of
        | (?:(?:[^\W_]|-)+\.)+(?:{_ENDINGS})(?![^\W_]|[@-]|\.[^\W_])  # a host of a well-known ending
        | (?:(?:[^\W_]|-)+\.)+[a-z]{{2,}}(?=/|:\d|\?\w+=)              # a host with something behind it
      )
    """,
    re.VERBOSE,
)
"""An address up to its path. Its text is in lower case."""
_DOTS = str.maketrans(dict.fromkeys("\u3002\uff0e\uff61", "."))
_NO_ADDRESS = re.compile(r"[\s\\\x00-\x1f\x7f]")
"""Characters that programs read in different ways in an address."""
_HOST = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?")


def host_of(address: str) -> str | None:
    """The host of an address, with or without a scheme; None if the value is no address."""
    if _NO_ADDRESS.search(address):
        return None
    try:
        parts = urlsplit(address if "://" in address or address.startswith("//") else f"//{address}")
        host = parts.hostname or ""
    except ValueError:
        return None
    if parts.netloc.count("@") > 1 or not _HOST.fullmatch(host):
        return None
    return host.rstrip(".")


def hosts_in(text: str) -> Iterator[tuple[str, str | None]]:
    """Each address in a text, up to its path, with its host; None for an address without a readable one."""
    for found in _ADDRESS.finditer(unicodedata.normalize("NFKC", text).translate(_DOTS).lower()):
        yield found[0], host_of(found[0])


def is_listed(host: str | None, globs: Iterable[str]) -> bool:
    return host is not None and any(fnmatchcase(host, glob.lower()) for glob in globs)
