"""What a client asks an OpenAI-compatible server before it begins: which models the server has."""

import aiohttp
import orjson


class NoModelError(Exception):
    """A server does not say which models it has, or has none."""


async def first_model(session: aiohttp.ClientSession, url: str) -> str:
    """The name of the first model of the server at the base URL `url`. Raises `NoModelError`."""
    async with session.get(f"{url}/models") as response:
        body = await response.read()
        if response.status != 200:
            raise NoModelError(f"{response.status}: {error_message(body)}")
    try:
        return str(orjson.loads(body)["data"][0]["id"])
    except (orjson.JSONDecodeError, LookupError, TypeError):
        raise NoModelError("the server names no models; give one with --model") from None


def error_message(body: bytes) -> str:
    """The message of an error's body, if the body has the API's shape."""
    try:
        return str(orjson.loads(body)["error"]["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "no reason given"
