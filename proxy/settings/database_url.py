"""The URL of a database, as an option gives it."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from pydantic import SecretStr


def check_url(url: SecretStr | None, schemes: Sequence[str]) -> SecretStr | None:
    """The URL. Raises `ValueError` for one that cannot be used. The message does not quote the URL, which may
    have a password."""
    if url is None:
        return None
    text = url.get_secret_value()
    scheme = next((one for one in schemes if text.startswith(one)), None)
    if scheme is None:
        raise ValueError(f"the URL must begin with {' or '.join(schemes)}")
    if scheme == "sqlite:///":
        if text == scheme:
            raise ValueError("the URL names no file")
        return url
    try:
        parts = urlsplit(text)
        for host in parts.netloc.rpartition("@")[2].split(","):  # PostgreSQL may have several
            _ = urlsplit(f"//{host}").port  # raises, if it is no number
    except ValueError:
        raise ValueError("the URL cannot be read") from None
    if "@" in parts.path:
        raise ValueError("the URL has an @ after a /: write %2F for / in a password")
    return url
