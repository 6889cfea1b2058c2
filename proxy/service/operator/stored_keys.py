"""The keys that the operator made, found by their digests."""

import asyncio
import logging
from typing import Any

from pydantic import ValidationError

from proxy.deployment.keys import Key
from proxy.deployment.read import make_key, previous_key
from proxy.service.operator_side import MadeKeys
from proxy.settings.policy import KeyRules
from proxy.storage.operator import keys
from proxy.storage.operator.keys import StoredKey
from proxy.storage.operator.store import Store
from proxy.storage.query import StateError

logger = logging.getLogger("weir.admin")

INTERVAL = 1.0
"""Seconds between two looks at the store. Another process may have changed a key."""


class StoredKeys(MadeKeys):
    """The keys of the store, as this process knows them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._version = -1
        self._valid: dict[str, Key] = {}
        """By digest."""
        # A store that does not answer opens the server to nobody.
        self.has_any = True

    @property
    def valid(self) -> list[Key]:
        return list(self._valid.values())

    def find(self, digest: str) -> Key | None:
        return self._valid.get(digest)

    async def refresh(self) -> None:
        """Read the keys if one has changed. Raises `StateError`."""
        if await self._store.run(keys.version(), alone=False) != self._version:
            self._version, found = await self._store.run(keys.everything(), alone=False)
            self.has_any = bool(found)
            made = [one for key in found if key.revoked is None for one in _made(key)]
            self._valid = {key.digest: key for key in made}

    async def run(self) -> None:
        """Look at the store now and then. Runs until it is cancelled. While the store does not answer, the
        keys stay as they are."""
        has_answered = True
        while self._store.is_kept:
            await asyncio.sleep(INTERVAL)
            try:
                await self.refresh()
            except StateError as error:
                if has_answered:
                    logger.error("%s: changes of keys are not noticed", error)
                has_answered = False
            else:
                has_answered = True


def _made(key: StoredKey) -> list[Key]:
    """The key, and the key by its earlier value. Empty: it was stored by another version, and this one does
    not know what it may do."""
    try:
        made = key_of(key.name, key.digest, key.settings)
    except ValidationError:
        logger.error("the key %s cannot be used: this version does not know its settings", key.name)
        return []
    previous = key.settings.get("previous")
    return [made, previous_key(made, **previous)] if previous else [made]


def key_of(name: str, digest: str, settings: dict[str, Any]) -> Key:
    """The key that has these settings. A setting that is None, or not there, has its default."""
    given = {field: value for field, value in settings.items() if value is not None and field != "previous"}
    return make_key(name, digest, KeyRules(**given))
