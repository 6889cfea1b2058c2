"""The catalogue: every attack, by name. A module of attacks is a part of it once it is imported here."""

from tools.abuse import bodies, connections, greed
from tools.abuse.attack import ATTACKS

__all__ = ["ATTACKS", "bodies", "connections", "greed"]
