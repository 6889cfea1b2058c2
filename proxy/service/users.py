"""The users of keys, as a client names them in the field `user` of its requests."""

import hashlib
from collections.abc import Callable

from proxy.service.periods import Period

MAX_USERS = 10_000
"""Users of one key who have counts of their own in a month. Later ones share one count."""


class Users:
    """The users who have counts of their own in this month. A client may name any number of users."""

    def __init__(self, salt: Callable[[], bytes], clock: Callable[[], float]) -> None:
        """`salt`: of the state that holds the counts. `clock`: seconds since 1970."""
        self._salt = salt
        self._clock = clock
        self._month = 0
        self._users: dict[str, set[str]] = {}
        """Digests of users, by their key."""

    def name(self, key: str, user: str) -> str:
        """The name under which this user of the key is counted. It tells nobody who the user is."""
        month = Period.MONTH.start(int(self._clock() // 60))
        if month != self._month:
            self._month, self._users = month, {}
        salted = hashlib.blake2b(user.encode(errors="surrogatepass"), key=self._salt()[:64], digest_size=12)
        digest, known = salted.hexdigest(), self._users.setdefault(key, set())
        if digest not in known:
            if len(known) >= MAX_USERS:
                return f"{key!r}:others"
            known.add(digest)
        return f"{key!r}:{digest}"
