"""Weir's clients as people run them: the official SDKs, of Python and of TypeScript."""

from tests.proxy.conftest import serve as serve
