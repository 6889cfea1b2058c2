"""The endpoint that a client probably meant, whose address has `/v1` where it should not, or lacks it."""

from collections.abc import Iterable, Iterator

from aiohttp import web

MESSAGES = "/v1/messages"


def hint_for(http: web.Request) -> str:
    """The rest of the message about a path that does not exist. It quotes no part of the path. Empty: no
    endpoint is near."""
    resources = http.match_info.apps[0].router.resources()
    meant = _meant(http.path, [resource.canonical for resource in resources])
    if meant is None:
        return ""
    hint = f" Did you mean {meant}?"
    if http.path.startswith("/v1/v1/"):
        is_messages = meant.startswith(MESSAGES)
        clients = "Clients of the Messages API take" if is_messages else "The client takes"
        return f"{hint} {clients} this server's address {'without /v1' if is_messages else 'with one /v1'}."
    return f"{hint} Clients of OpenAI's API take this server's address with /v1 at its end."


def without_second_version(path: str) -> str:
    """The path, with one `/v1` where it begins with several."""
    while path.startswith("/v1/v1/"):
        path = path.removeprefix("/v1")
    return path


def _meant(path: str, known: Iterable[str]) -> str | None:
    given = without_second_version(path.rstrip("/"))
    tried = given if given.startswith("/v1/") else f"/v1{given}"
    if tried == path.rstrip("/"):
        return None
    return next((one for one in _having_version(known) if _is_at(tried, one)), None)


def _having_version(paths: Iterable[str]) -> Iterator[str]:
    return (path for path in paths if path.startswith("/v1/"))


def _is_at(path: str, known: str) -> bool:
    """Whether the path is the known one, which may end with a name: `/v1/models/{id}`."""
    beginning, has_name, _ = known.partition("{")
    return path.startswith(beginning) and len(path) > len(beginning) if has_name else path == known
