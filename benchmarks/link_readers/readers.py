"""The programs that read what a client shows, and which of the addresses that they find are wrong.

They run in one process of Node.js: marked, markdown-it, micromark and commonmark.js with parse5, css-tree and
the URL of Node.js, which is that of browsers. `make bench NAME=link_readers` installs them.
"""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
IS_INSTALLED = shutil.which("node") is not None and (FOLDER / "node_modules").is_dir()
ALLOWED = re.compile(r"(?:[\w-]+\.)*ok\.example")
_WITH_HOST = ("http:", "https:", "ftp:", "ws:", "wss:")
_KNOWN = (*_WITH_HOST, "javascript:", "vbscript:", "data:", "file:", "mailto:")
_BATCH = 100
_IS_NAME = re.compile(r"[a-z0-9._:\[\]-]*").fullmatch
_IS_NOTHING = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?[/\\#?]*").fullmatch
_MOST_BYTES = 1 << 24


class Read(NamedTuple):
    """An address that a reader fetches or links."""

    reader: str
    scheme: str
    host: str
    address: str
    """As a browser resolves it."""
    written: str
    """As it is in HTML or CSS."""


def wrong(text: str, found: Sequence[Read]) -> list[Read]:
    """Those of the addresses in a text that the guard should not have let pass. `<other:...>`, which may be a
    tag of XML, may pass, and so may what has no host and says nothing, as `note:`."""
    return [one for one in found if not (_is_right(one) or _is_tag(text, one))]


def _is_right(read: Read) -> bool:
    if read.scheme in _WITH_HOST:
        # No resolver takes a host with characters that names do not have.
        is_listed = ALLOWED.fullmatch(read.host) is not None and read.scheme in ("http:", "https:")
        return is_listed or not _IS_NAME(read.host)
    if read.scheme == "mailto:":
        return "?" not in read.address.partition("@")[2]
    return _IS_NOTHING(read.address) is not None


def _is_tag(text: str, read: Read) -> bool:
    return read.scheme not in _KNOWN and f"<{read.scheme}" in text.lower()


class Readers:
    """Answers which addresses readers take from texts."""

    def __init__(self, node: asyncio.subprocess.Process) -> None:
        self._node = node

    async def read(self, texts: Sequence[str]) -> list[list[Read]]:
        found: list[list[Read]] = []
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        for i in range(0, len(texts), _BATCH):
            self._node.stdin.write(json.dumps(texts[i : i + _BATCH]).encode() + b"\n")
            await self._node.stdin.drain()
            answer = json.loads(await self._node.stdout.readline())
            found += [[Read(*one) for one in addresses] for addresses in answer]
        return found


@asynccontextmanager
async def readers() -> AsyncIterator[Readers]:
    pipe = asyncio.subprocess.PIPE
    node = await asyncio.create_subprocess_exec(
        "node", "readers.mjs", cwd=FOLDER, stdin=pipe, stdout=pipe, limit=_MOST_BYTES
    )
    try:
        yield Readers(node)
    finally:
        if node.returncode is None:
            node.kill()
        await node.wait()
